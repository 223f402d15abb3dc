"""What may be written, and what it means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import undivided.language
from undivided.description import argument
from undivided.errors import ArgumentError
from undivided.language import parse, parse_fragment, to_text
from undivided.language.diagnostics import Diagnostics
from undivided.language.parser import Parser
from undivided.layers import (
    Activation,
    Dense,
    Flatten,
    Layer,
    LayerNormalization,
    MultiHeadAttention,
    Output,
    Patches,
    Repeat,
    Rescaling,
    Residual,
)
from undivided.network import Digits, Execution, File, Mnist, Network, Train
from undivided.training.optimizers import Adam
from undivided.training.schedules import ExponentialDecay


def layers(text: str) -> tuple[Layer, ...]:
    return parse(f"network N {{ input: (3) layers: {text} }}").layers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Dense(32)", Dense(32)),
        ("Dense(units=32)", Dense(32)),
        ("Dense(units: 32)", Dense(32)),
        ("Dense(32, 'relu', false)", Dense(32, "relu", False)),
        ("Dense(32, relu, False, name = d)", Dense(32, "relu", False, name="d")),
        ("Dense(32, activation=None,)", Dense(32)),
        ("Dense\n(\n32\n)", Dense(32)),
        ("Dense { units: 32 activation: relu }", Dense(32, "relu")),
        ("Flatten", Flatten()),
        ("Flatten()", Flatten()),
        ("Flatten { }", Flatten()),
        ("Flatten * 3", Repeat(Flatten(), 3)),
        ("Dense(32) * 2 * 3", Repeat(Repeat(Dense(32), 2), 3)),
        ("Repeat(Flatten, 3, name='r')", Repeat(Flatten(), 3, name="r")),
        ("Residual { Flatten Flatten }", Residual((Flatten(), Flatten()))),
        ("Residual { Flatten, Flatten, }", Residual((Flatten(), Flatten()))),
        ("Residual {}", Residual(())),
        ("Residual(name='r') { Flatten } * 3", Residual((Flatten(),), name="r") * 3),
        ("Residual { Flatten name: r }", Residual((Flatten(),), name="r")),
        ("Residual { layers: Flatten }", Residual((Flatten(),))),
        ("Residual((Flatten, Dense(3)))", Residual((Flatten(), Dense(3)))),
        ("Residual(layers=[Flatten])", Residual((Flatten(),))),
        ("Patches(4)", Patches(4)),
        ("Patches((4, 2))", Patches((4, 2))),
        ("Patches([4, 2])", Patches((4, 2))),
        ("Rescaling(1/255)", Rescaling(1 / 255)),
        ("Rescaling(-1/255, -.5)", Rescaling(-1 / 255, -0.5)),
        ("Rescaling(2)", Rescaling(2.0)),
        ("Rescaling(2.)", Rescaling(2.0)),
        ("Rescaling(2e3)", Rescaling(2000.0)),
        ("Rescaling(2.5E-3)", Rescaling(0.0025)),
        ("Rescaling(1 / 4)", Rescaling(0.25)),
        ("Rescaling(0.0e-999)", Rescaling(0.0)),
        ("Activation(relu)", Activation("relu")),
        (
            r'Flatten(name="a\n\t\r\\\"\'\0\x41\u00e4\U0001f600")',
            Flatten(name="a\n\t\r\\\"'\0Aä😀"),
        ),
        ("Flatten(name='say \"a\"')", Flatten(name='say "a"')),
        ('Flatten(name="# no // comment {")', Flatten(name="# no // comment {")),
    ],
)
def test_layers(text: str, expected: Layer) -> None:
    assert layers(text) == (expected,)


def test_sections_come_in_any_order_and_spelling() -> None:
    network = Network(
        name="N",
        input=(None, 8),
        data=Digits(),
        layers=(Dense(3), Output(2)),
        optimizer=Adam(ExponentialDecay(0.0001, 10000, 0.96), beta_1=0.5),
        train=Train(epochs=2, seed=3),
        execution=Execution(threads=2),
    )
    spellings = [
        """network N { input: (None, 8) data: digits layers: Dense(3) Output(2)
           loss: "sparse_categorical_crossentropy"
           optimizer: Adam(learning_rate=ExponentialDecay(0.0001, 10000, 0.96), beta_1=0.5)
           train { epochs: 2 seed: 3 } execution { threads: 2 } }""",
        """network N {
             execution: { threads=2 }  // the machine
             train: { epochs=2, seed: 3, }  # how long
             optimizer = Adam(ExponentialDecay(0.0001, decay_steps=10000, decay_rate=0.96), 1/2)
             loss: sparse_categorical_crossentropy,
             layers { Dense(3) Output(2) }
             data: digits() input: [None, 8] }""",
        """network { name: "N" layers: (Dense(3), Output(2)) execution { threads: 2 }
             optimizer: Adam { learning_rate: ExponentialDecay(0.0001, 10000, 0.96) beta_1: 0.5 }
             train { epochs: 2, seed: 3 } data: "digits" input: (None, 8,) }""",
    ]
    for spelling in spellings:
        assert parse(spelling) == network


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mnist", Mnist()),
        ("mnist(folder='here')", Mnist("here")),
        ("digits", Digits()),
        ('"digits"', Digits()),
        ('"some/where.npz"', File("some/where.npz")),
        ("file('mnist')", File("mnist")),
        ("None", None),
    ],
)
def test_data(text: str, expected: object) -> None:
    assert parse(f"network N {{ input: (3) layers: Flatten data: {text} }}").data == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_comments(end: str) -> None:
    lines = [
        "# first",
        "network N { // name",
        "input: (3) # shape",
        "layers: Flatten",
        "}",
        "// end",
    ]
    assert parse(end.join(lines)).layers == (Flatten(),)
    assert parse("\ufeff" + end.join(lines)).layers == (Flatten(),)


def test_fragments() -> None:
    assert parse_fragment("") == {}
    assert parse_fragment("Dense(3)\n# more\nFlatten * 2") == {"layers": (Dense(3), Flatten() * 2)}
    assert parse_fragment(
        "optimizer: Adam(\n  learning_rate=ExponentialDecay(0.0001, 10000, 0.96)\n)"
    ) == {"optimizer": Adam(ExponentialDecay(0.0001, 10000, 0.96))}
    assert parse_fragment("train {\n  batch_size: 16  # Reduce for longer sequences\n}") == {
        "train": Train(batch_size=16)
    }
    assert parse_fragment("Dense(3) train { epochs: 2 } data: mnist") == {
        "layers": (Dense(3),),
        "train": Train(epochs=2),
        "data": Mnist(),
    }


def test_the_first_network_of_the_attention_guide() -> None:
    network = parse("""
        network MultiHeadExample {
          input: (100, 512)
          layers:
            # 8 parallel attention heads
            MultiHeadAttention(num_heads=8, key_dim=64)
            LayerNormalization()
            Dense(512, activation="relu")

          loss: "sparse_categorical_crossentropy"
          optimizer: Adam(learning_rate=0.001)
        }""")
    assert network.layers == (MultiHeadAttention(8, 64), LayerNormalization(), Dense(512, "relu"))


GUIDE = [
    """network EncoderDecoderWithCrossAttention {
      input: (100, 512)
      layers:
        Embedding(input_dim=10000, output_dim=512)

        # Encoder: self-attention
        TransformerEncoder(num_heads=8, d_model=512, dff=2048) * 6
        TransformerDecoder(num_heads=8, d_model=512, dff=2048) * 6
        Dense(10000, activation="softmax")

      loss: "sparse_categorical_crossentropy"
      optimizer: Adam(learning_rate=2e-5)
    }""",
    """network VisionAttention {
      input: (224, 224, 3)  // a picture
      layers:
        Conv2D(768, kernel_size=(16, 16), strides=16)
        Reshape(target_shape=(196, 768))
        TransformerEncoder(
          num_heads=8,
          dropout_rate=0.1  # Applied to attention and FFN
        )
        Dense(1)  # Regression
      loss: "mse"
      optimizer: Adam(learning_rate=0.001)
      train { batch_size: 16  gradient_accumulation_steps: 4 }
      metrics: ["accuracy"]
    }""",
]


@pytest.mark.parametrize("text", GUIDE)
def test_the_grammar_takes_the_attention_guide_whatever_layers_there_are(text: str) -> None:
    problems = Diagnostics(text, "guide")
    definition = Parser(text, problems).definition()
    assert definition is not None
    assert len(problems) == 0


@dataclass(frozen=True)
class Branches(Layer):
    """A layer as somebody else may write it, with kinds of arguments that no built-in one has."""

    left: tuple[Layer, ...] = argument(doc="one block")
    right: tuple[Layer, ...] = argument((), doc="another block")
    pairs: tuple[tuple[int, int], ...] = argument((), doc="pairs of numbers")
    inner: Layer | None = argument(None, doc="a layer")


@pytest.fixture
def branches() -> Iterator[None]:
    Layer.members["Branches"] = Branches
    yield
    del Layer.members["Branches"]


del Layer.members["Branches"]


@pytest.mark.usefixtures("branches")
def test_a_new_layer_needs_no_change_to_the_language() -> None:
    branched = Branches((Flatten(),), (Dense(3), Residual((Flatten(),))), ((1, 2),), Dense(4) * 2)
    network = Network(input=(3,), layers=(branched,))
    text = to_text(network)
    assert parse(text) == network
    assert (
        "    Branches(right=(Dense(3), Residual {\n"
        "      Flatten()\n"
        "    }), pairs=((1, 2)), inner=Dense(4) * 2) {\n"
        "      Flatten()\n"
        "    }\n"
    ) in text
    assert layers("Branches { left: Flatten right: { Dense(3) } }") == (
        Branches((Flatten(),), (Dense(3),)),
    )


def test_the_grammar_knows_no_layer() -> None:
    folder = Path(undivided.language.__file__).parent
    for file in ("tokens", "cursor", "parser", "syntax", "diagnostics", "signatures", "given"):
        source = (folder / f"{file}.py").read_text(encoding="utf-8")
        code = re.sub(r'""".*?"""|#[^\n]*', "", source, flags=re.DOTALL)
        words = set(re.findall(r"\w+", code))
        assert not words & set(Layer.members), file


def test_only_a_string_is_text() -> None:
    with pytest.raises(ArgumentError, match=r"A network's text is a string\. Got bytes\."):
        parse(b"network N {}")  # type: ignore[arg-type]
