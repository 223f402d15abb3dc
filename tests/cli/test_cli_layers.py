"""`undivided layers`, `--use` and `--set`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_program import Run

import undivided
from undivided.layers.documentation import known_layers

OWN = """
import undivided

@undivided.register
def Doubled(builder, x, times: int = 1):
    \"\"\"y = 2x, as often as said.\"\"\"
    for _ in range(times):
        x = builder.rescale(x, 2.0, 0.0)
    return x
"""

NETWORK = """
network own {
  input: (8, 8)
  data: digits
  layers:
    Flatten()
    Doubled(2)
    Dense(4, activation="relu")
    Output(10)
  train { epochs: 1 batch_size: 600 }
}
"""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    before = dict(undivided.Layer.members)
    yield
    undivided.Layer.members.clear()
    undivided.Layer.members.update(before)


def test_the_list_has_every_layer_with_a_line(run: Run) -> None:
    lines = run("layers").output.splitlines()
    assert [line.split()[0] for line in lines] == list(known_layers())
    assert all(len(line.split()) > 2 for line in lines)


def test_a_layer_says_everything(run: Run) -> None:
    page = run("layers", "Conv2D").output
    for part in ("Conv2D(filters, kernel_size, strides=1,", "one of 'valid', 'same'", "Example:"):
        assert part in page


def test_an_unknown_layer(run: Run) -> None:
    error = run("layers", "Conv2", code=2).stderr
    assert "There is no layer 'Conv2'. Did you mean 'Conv2D'?" in error


def test_layers_of_ones_own_and_other_values(run: Run, folder: Path) -> None:
    (folder / "own.py").write_text(OWN)
    (folder / "own.neural").write_text(NETWORK)
    assert "y = 2x, as often as said." in run("layers", "--use", "own.py").output
    found = run(
        *("describe", "own.neural", "--use", "own.py", "--json"),
        *("--set", "layers.2.units=7", "--set", "optimizer.learning_rate=0.25"),
    )
    facts = json.loads(found.output)
    assert facts["layers"][2]["shape"] == [7] and "learning_rate=0.25" in facts["optimizer"]
    run("train", "own.neural", "--use", "own.py", "--set", "layers.1.times=1", "--quiet")
    model = undivided.load("own.safetensors")
    assert model.network.layers[1].times == 1  # type: ignore[attr-defined]
    assert "test_acc" in run("evaluate", "own.safetensors", "--use", "own.py").output
    del undivided.Layer.members["Doubled"]
    refused = run("evaluate", "own.safetensors", code=1).stderr
    assert "its network has Doubled, which undivided does not know" in refused
    assert "--use FILE.py" in refused


def test_what_is_wrong_is_said(run: Run, folder: Path) -> None:
    (folder / "bad.py").write_text("import undivided\nundivided.register(3)\n")
    assert "bad.py, line 2: ArgumentError" in run("layers", "--use", "bad.py", code=2).stderr
    assert "no Python file 'none.py'" in run("layers", "--use", "none.py", code=2).stderr
    for setting, message in {
        "train.epochs": "--set takes PATH=VALUE, such as train.epochs=3. Got 'train.epochs'.",
        "train.epoch=3": "Train has no 'epoch'. Did you mean 'epochs'?",
        "train.epochs=0": "The 'epochs' of train must be a whole number ≥ 1. Got 0.",
        "layers.77.units=3": "layers has no number 77",
    }.items():
        error = run("describe", "digits-attention", "--set", setting, code=2).stderr
        assert message.replace("Train", "train") in error
