"""The printed text, to the letter."""

from __future__ import annotations

import pytest

from undivided.language import parse, to_text
from undivided.layers import (
    Activation,
    Dense,
    Flatten,
    MultiHeadAttention,
    Output,
    Patches,
    Rescaling,
    Residual,
)
from undivided.network import Execution, File, Mnist, Network, Train
from undivided.training.optimizers import SGD, Adam
from undivided.training.schedules import ExponentialDecay

WHOLE = """\
network Example {
  input: (28, 28)
  data: mnist
  layers:
    Rescaling(1/255, offset=-0.5)
    Patches((4, 2))
    Dense(16, activation="relu", name="first")
    Residual(name="mix") {
      MultiHeadAttention(num_heads=2, output_projection=false)
      Residual {
        Activation("gelu") * 2 * 3
      } * 4
    } * 6
    Flatten()
    Output(10)
  loss: "sparse_categorical_crossentropy"
  optimizer: SGD(learning_rate=ExponentialDecay(0.0001, decay_steps=10000, decay_rate=0.96))
  train {
    epochs: 7
    log: "logs/a \\"b\\".csv"
  }
  execution {
    engine: "reference"
    threads: 2
  }
}
"""


def test_a_network_with_everything() -> None:
    network = Network(
        name="Example",
        input=(28, 28),
        data=Mnist(),
        layers=(
            Rescaling(1 / 255, -0.5),
            Patches((4, 2)),
            Dense(16, "relu", name="first"),
            Residual(
                (
                    MultiHeadAttention(2, output_projection=False),
                    Residual((Activation("gelu") * 2 * 3,)) * 4,
                ),
                name="mix",
            )
            * 6,
            Flatten(),
            Output(10),
        ),
        optimizer=SGD(ExponentialDecay(0.0001, 10000, 0.96)),
        train=Train(epochs=7, log='logs/a "b".csv'),
        execution=Execution("reference", 2),
    )
    assert to_text(network) == WHOLE
    assert parse(WHOLE) == network


def test_defaults_are_left_out() -> None:
    network = Network(input=(12,), layers=(Flatten(),), name="two words", optimizer=Adam(0.001))
    assert to_text(network) == (
        'network "two words" {\n'
        "  input: (12)\n"
        "  layers:\n"
        "    Flatten()\n"
        '  loss: "sparse_categorical_crossentropy"\n'
        "  optimizer: Adam()\n"
        "}\n"
    )


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1 / 255, "1/255"),
        (-1 / 255, "-1/255"),
        (1 / 16, "1/16"),
        (1 / 3, "1/3"),
        (0.001, "0.001"),
        (0.25, "0.25"),
        (0.0025, "0.0025"),
        (2 / 3, "0.6666666666666666"),
        (1.0, "1.0"),
        (16.0, "16.0"),
        (1e-05, "1e-05"),
        (1e300, "1e+300"),
        (5e-324, "5e-324"),
    ],
)
def test_numbers(number: float, text: str) -> None:
    printed = to_text(Network(input=(3,), layers=(Rescaling(number),)))
    assert f"Rescaling({text})\n" in printed
    assert parse(printed).layers == (Rescaling(number),)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (Mnist("my digits"), 'mnist(folder="my digits")'),
        (File("a.npz"), '"a.npz"'),
        (File("mnist"), 'file("mnist")'),
    ],
)
def test_sources(data: object, text: str) -> None:
    printed = to_text(Network(input=(3,), layers=(Flatten(),), data=data))
    assert f"  data: {text}\n" in printed
