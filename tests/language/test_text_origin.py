"""Errors that are found when shapes are known still say where in the file the layer stands."""

from __future__ import annotations

import pytest

import undivided
from undivided.errors import ArgumentError, ShapeError, UndividedError

BEGINNING = "network N {\n  input: (8, 8)\n  layers:\n"


def place(layers: str, error: type[UndividedError]) -> list[str]:
    network = undivided.parse(f"{BEGINNING}{layers}\n}}\n", file="n.neural")
    with pytest.raises(error) as caught:
        network.plan()
    message, *lines = str(caught.value).splitlines()
    return [message.split(": ")[0], message.split(": ", 1)[1][:30], *lines]


def test_the_layer_that_cannot_take_what_it_is_given() -> None:
    assert place("    Patches(2)\n    MultiHeadAttention(num_heads=3)", ShapeError) == [
        "n.neural:5:5",
        "MultiHeadAttention (attention_",
        "  5 |     MultiHeadAttention(num_heads=3)",
        "    |     ^^^^^^^^^^^^^^^^^^",
    ]


def test_inside_a_block_and_repeated() -> None:
    found = place("    Patches(2)\n    Residual {\n      Patches(3) * 2\n    }", ShapeError)
    assert found[0] == "n.neural:6:7"


def test_a_block_that_changes_the_shape_is_named_itself() -> None:
    assert place("Patches(2)\nResidual { Dense(7) }", ShapeError)[0] == "n.neural:5:1"


def test_a_name_taken_twice() -> None:
    found = place("Flatten()\nDense(5, name=a)\nDense(5, name=a)", ArgumentError)
    assert found[0] == "n.neural:6:1"


def test_networks_made_in_python_have_no_place() -> None:
    layers = [undivided.Patches(3)]
    with pytest.raises(ShapeError, match=r"^Patches \(patches_1\) expects"):
        undivided.Network(input=(8, 8), layers=layers).plan()


def test_where_it_was_read_is_no_part_of_a_network() -> None:
    text = f"{BEGINNING}Flatten() Output(3) }}"
    network = undivided.parse(text)
    assert network == undivided.parse(network.to_text())
    assert "origin" not in repr(network)
