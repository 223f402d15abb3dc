"""What layers say of themselves: each has a line, a page and an example that trains."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import undivided
from undivided.layers.documentation import (
    example_of,
    heading_of,
    known_layers,
    line_of,
    markdown,
    page_of,
)

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_all_layers_is_current() -> None:
    again = "python -m undivided.layers.documentation > docs/layers.md"
    assert (DOCS / "layers.md").read_text("utf-8") == markdown(), again


@pytest.mark.parametrize("name", known_layers())
def test_every_layer_says_what_it_is(name: str) -> None:
    cls = known_layers()[name]
    assert 10 <= len(line_of(cls)) <= 100
    page = page_of(cls)
    assert heading_of(cls) in page
    for field in fields(cls):  # type: ignore[arg-type]
        assert field.metadata["doc"] and field.metadata["doc"] in page


@pytest.mark.parametrize("name", known_layers())
def test_every_example_has_the_layer_and_trains(name: str) -> None:
    network = undivided.parse(example_of(known_layers()[name]))
    assert f"{name}(" in network.to_text() or f"{name} " in network.to_text()
    model = undivided.Model(network, seed=1)
    shape = [7 if n is None else n for n in network.input]
    random = np.random.default_rng(0)
    x = random.normal(size=(6, *shape)).astype(np.float32)
    if name == "Embedding":
        x = random.integers(0, 100, size=(6, *shape))
    y = np.arange(6) % 2
    before = {key: value.copy() for key, value in model.parameters.items()}
    (epoch,) = model.fit((x, y), epochs=1, batch_size=3)
    assert np.isfinite(epoch.loss)
    assert any((model.parameters[key] != value).any() for key, value in before.items())
    assert undivided.parse(network.to_text()) == network


def test_the_public_names_hold_every_layer() -> None:
    for name, cls in known_layers().items():
        if cls.__module__.startswith("undivided."):
            assert getattr(undivided, name) is cls
