"""Anything in a network by its path, checked as in a file."""

from __future__ import annotations

from typing import Any

import pytest

import undivided
from undivided.overriding import override_text

NETWORK = undivided.parse(
    """
    network N {
      input: (8, 8)
      data: digits
      layers:
        Patches(4)
        Dense(16, activation="relu", name=body)
        Residual { LayerNormalization() MultiHeadAttention(num_heads=2) } * 3
        Dropout(0.5)
        GlobalAveragePooling1D()
        Output(10)
      optimizer: Adam(learning_rate=CosineDecay(0.001, 100))
    }
    """
)

GOOD: list[tuple[str, str, Any]] = [
    ("layers.1.units", "24", 24),
    ("layers.body.units", "24", 24),
    ("layers.-1.units", "7", 7),
    ("layers.1.activation", "gelu", "gelu"),
    ("layers.1.activation", "None", None),
    ("layers.0.size", "(2, 4)", (2, 4)),
    ("layers.2.times", "5", 5),
    ("layers.2.layers.1.num_heads", "4", 4),
    ("layers.2.layer.layers.1.num_heads", "4", 4),
    ("layers.3.rate", "1/4", 0.25),
    ("optimizer", "AdamW(weight_decay=0.1)", undivided.AdamW(weight_decay=0.1)),
    ("optimizer.beta_1", "0.8", 0.8),
    ("optimizer.learning_rate", "3e-4", 3e-4),
    ("optimizer.learning_rate.decay_steps", "7", 7),
    ("train.epochs", "3", 3),
    ("name", "other-name", "other-name"),
    ("metrics", "accuracy", (undivided.Accuracy(),)),
    ("metrics", "[accuracy, top_k]", (undivided.Accuracy(), undivided.TopK())),
    ("train.log", "runs/log.csv", "runs/log.csv"),
    ("execution.engine", "reference", "reference"),
    ("data", "mnist", undivided.network.Mnist()),
    ("data", "some/file.npz", undivided.network.File("some/file.npz")),
]


def at(network: Any, path: str) -> Any:
    for step in path.split("."):
        if isinstance(network, tuple):
            named = [item for item in network if getattr(item, "name", None) == step]
            network = named[0] if named else network[int(step)]
        else:
            inside = hasattr(network, step) or not hasattr(network, "layer")
            network = getattr(network if inside else network.layer, step)
    return network


@pytest.mark.parametrize(("path", "text", "value"), GOOD)
def test_a_value_at_a_path(path: str, text: str, value: Any) -> None:
    before = NETWORK.to_text()
    for changed in (
        override_text(NETWORK, path, text),
        undivided.override(NETWORK, {path: value}),
    ):
        assert at(changed, path) == value
        assert undivided.parse(changed.to_text()) == changed
    assert NETWORK.to_text() == before


BAD: list[tuple[str, str, str]] = [
    ("layers.1.unit", "3", "Dense has no 'unit'. Did you mean 'units'?"),
    ("optimiser.beta_1", "3", "network has no 'optimiser'. Did you mean 'optimizer'?"),
    ("layers.9.units", "3", "layers has no number 9. It has 0 (Patches), 1 (Dense)"),
    ("layers.bdy.units", "3", "layers has no 'bdy'. Did you mean 'body'?"),
    ("layers.2.layers.1.heads", "3", "MultiHeadAttention has no 'heads'"),
    ("layers.1", "Dense(3)", "it is a Dense: go on to one of its arguments, "),
    ("layers.1.units.x", "3", "layers.1.units is 16, which has nothing inside it."),
    ("layers.1.units", "0", "The 'units' of Dense must be a whole number ≥ 1. Got 0."),
    ("layers.1.activation", "rleu", "Did you mean 'relu'?"),
    ("layers.1.units", "3 4", "Expected the end"),
    ("optimizer", "Adm()", "There is no optimizer 'Adm'. Did you mean 'Adam'?"),
    ("layers..units", "3", "A path is names with dots between"),
]


@pytest.mark.parametrize(("path", "text", "message"), BAD)
def test_what_cannot_be_is_refused(path: str, text: str, message: str) -> None:
    with pytest.raises((undivided.ArgumentError, undivided.LanguageError)) as refused:
        override_text(NETWORK, path, text)
    assert message in str(refused.value)
    assert str(refused.value).startswith(path) or ".." in path


def test_wrong_values_of_python() -> None:
    with pytest.raises(undivided.ArgumentError, match=r"layers\.1\.units: The 'units' of Dense"):
        undivided.override(NETWORK, {"layers.1.units": "many"})
    several = undivided.override(NETWORK, {"layers.1.units": 3, "layers.1.bias": False})
    assert several.layers[1] == undivided.Dense(3, "relu", False, name="body")
