"""The attention guide: its ten networks, as printed there, and its fragments."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undivided
from undivided.description import Description
from undivided.network import Network
from undivided.plan.plan import Ragged
from undivided.recipes import recipe_path

sys.path.insert(0, str(Path(__file__).parent / "native"))

from agreement import Trio, batch_for

NAMES = (
    "MultiHeadExample",
    "SelfAttentionExample",
    "EncoderDecoderWithCrossAttention",
    "BidirectionalAttention",
    "CausalAttention",
    "VisualizableAttention",
    "AttentionWithPositionalEncoding",
    "NLPAttention",
    "VisionAttention",
    "TimeSeriesAttention",
)

PARAMETERS = {
    "MultiHeadExample": 1_314_304,
    "SelfAttentionExample": 18_517_514,
    "EncoderDecoderWithCrossAttention": 54_388_496,
    "BidirectionalAttention": 85_056_002,
    "CausalAttention": 123_702_097,
    "VisualizableAttention": 3_157_514,
    "AttentionWithPositionalEncoding": 7_095_562,
    "NLPAttention": 108_102_154,
    "TimeSeriesAttention": 50_049,
}

SMALLER: dict[str, dict[int, int]] = {
    "d_model": {512: 16, 768: 24, 64: 16},
    "dff": {2048: 32, 3072: 48, 256: 32},
    "num_heads": {8: 2, 12: 3},
    "key_dim": {64: 8},
    "input_dim": {30000: 40, 10000: 20},
    "output_dim": {512: 16, 768: 24},
    "units": {512: 16, 10000: 20, 50257: 30, 1000: 10},
    "filters": {768: 24},
    "kernel_size": {16: 2},
    "strides": {16: 2},
    "target_shape": {196: 16, 768: 24},
    "times": {6: 2, 12: 2},
}
LENGTHS = {100: 6, 128: 7, 512: 9, 224: 8}


def smaller(value: Any, name: str = "") -> Any:
    """The same network with smaller widths; the text is left alone."""
    if isinstance(value, Description):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **{n: smaller(v, n) for n, v in fields.items()})
    if name == "input":
        first, *rest = value
        widths = {**LENGTHS, **SMALLER["d_model"]}
        return (LENGTHS[first], *(widths.get(n, n) for n in rest))
    if isinstance(value, tuple):
        return tuple(smaller(item, name) for item in value)
    return SMALLER.get(name, {}).get(value, value)


def small(name: str) -> Network:
    network = undivided.recipe(f"guide/{name}")
    made = smaller(network)
    assert isinstance(made, Network)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_it_is_read_described_and_printed_back(name: str) -> None:
    path = recipe_path(f"guide/{name}")
    network = undivided.read(path)
    assert network.name == name
    assert undivided.parse(network.to_text()) == network
    plan = network.plan()
    if name in PARAMETERS:
        assert plan.parameter_count == PARAMETERS[name]


@pytest.mark.parametrize("name", ["TimeSeriesAttention", "SelfAttentionExample"])
def test_it_is_described(name: str) -> None:
    page = undivided.recipe(f"guide/{name}").describe()
    assert f"{PARAMETERS[name]:,}" in page
    assert "sinusoidal positions are added to the tokens before 'encoder_1'" in page


IDS = "comes before an Embedding"
LOGITS = "ends in relu, where the loss would take a softmax"
SOFTMAX = "the softmax of the last layer is left to the loss"
POSITIONS = "sinusoidal positions are added to the tokens before 'encoder_1'"
READINGS = {
    "MultiHeadExample": [LOGITS],
    "SelfAttentionExample": [IDS, POSITIONS],
    "EncoderDecoderWithCrossAttention": [
        "input (100, 512) comes before an Embedding 512 wide: a sample is 100 ids",
        POSITIONS,
        "the declared input is the source; the decoder is given the targets shifted right",
        "sinusoidal positions are added to the tokens before 'decoder_1'",
        SOFTMAX,
    ],
    "BidirectionalAttention": [POSITIONS],
    "CausalAttention": [
        "decoders without encoders before them are a causal language model",
        "sinusoidal positions are added to the tokens before 'decoder_1'",
        SOFTMAX,
    ],
    "VisualizableAttention": [POSITIONS],
    "AttentionWithPositionalEncoding": [POSITIONS],
    "NLPAttention": [IDS, POSITIONS],
    "VisionAttention": [POSITIONS, SOFTMAX],
    "TimeSeriesAttention": [POSITIONS],
}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_read_into_it_is_said(name: str) -> None:
    notes = undivided.recipe(f"guide/{name}").plan().notes
    assert len(notes) == len(READINGS[name])
    for note, reading in zip(notes, READINGS[name], strict=True):
        assert reading in note


@pytest.mark.parametrize("name", NAMES)
def test_both_engines_agree(name: str) -> None:
    trio = Trio(small(name))
    ragged = any(isinstance(entry.shape[0], Ragged) for entry in trio.plan.inputs)
    trio.check(batch_for(trio.plan, 2, lengths=(4, 6) if ragged else ())).verify()


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_in_both_engines(name: str) -> None:
    losses = []
    for engine in ("native", "reference"):
        network = small(name)
        optimizer = dataclasses.replace(network.optimizer, learning_rate=0.003)
        model = undivided.Model(
            dataclasses.replace(network, optimizer=optimizer), seed=3, engine=engine
        )
        x, y = data_for(model)
        history = model.fit((x, y), epochs=6, batch_size=4)
        losses.append([epoch.loss for epoch in history])
    assert losses[0][-1] < losses[0][0]
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-3)


def data_for(model: undivided.Model) -> tuple[np.ndarray, np.ndarray]:
    """Eight samples, and targets of the kind that the network's loss wants."""
    random, plan = np.random.default_rng(5), model.plan
    shape = (8, *(n for n in plan.input.shape if isinstance(n, int)))
    if plan.input.vocabulary is None:
        x = random.normal(size=shape).astype(np.float32)
    else:
        x = random.integers(0, plan.input.vocabulary, shape)
    rows = (8, *(5 if isinstance(n, Ragged) else n for n in plan.output.shape[:-1]))
    width = plan.output.width
    if plan.loss.targets == "values":
        return x, random.normal(size=(*rows, width)).astype(np.float32)
    classes = random.integers(0, width, rows)
    return x, np.eye(width, dtype=np.float32)[classes] if plan.loss.targets == (
        "distributions"
    ) else classes


FRAGMENTS = {
    "heads": """
        # Number of heads must divide d_model evenly
        TransformerEncoder(num_heads=8, d_model=512, dff=2048)
        # Each head dimension: 512 / 8 = 64

        # More heads for larger models
        TransformerEncoder(num_heads=16, d_model=1024, dff=4096)
        """,
    "dropout": """
        TransformerEncoder(
          num_heads=8,
          d_model=512,
          dff=2048,
          dropout_rate=0.1  # Applied to attention and FFN
        )
        """,
    "key dimensions": """
        # key_dim = d_model / num_heads
        MultiHeadAttention(num_heads=8, key_dim=64)  # For d_model=512

        # Or specify explicitly
        MultiHeadAttention(num_heads=8, key_dim=96)  # Non-standard but valid
        """,
    "schedule": """
        optimizer: Adam(
          learning_rate=ExponentialDecay(0.0001, 10000, 0.96)
        )
        """,
    "accumulation": """
        train {
          batch_size: 16  # Reduce for longer sequences
          gradient_accumulation_steps: 4  # Effective batch size: 64
        }
        """,
}


@pytest.mark.parametrize("name", FRAGMENTS)
def test_fragments_are_read(name: str) -> None:
    found = undivided.parse_fragment(FRAGMENTS[name])
    if name == "accumulation":
        assert found["train"].gradient_accumulation_steps == 4
    elif name == "schedule":
        assert found["optimizer"].learning_rate.decay_rate == 0.96
    else:
        assert len(found["layers"]) == {"heads": 2, "dropout": 1, "key dimensions": 2}[name]


def test_a_width_that_is_not_d_model_names_both() -> None:
    text = "network N { input: (9, 16) layers: TransformerEncoder(2, d_model=32) Output(2) }"
    with pytest.raises(undivided.ShapeError, match=r"32, its d_model.*\(9, 16\)"):
        undivided.parse(text).plan()
