"""Sequences that go on with what is kept of them say what whole sequences say.

The reference in float64 up to the rounding of sums, the native engine to the bit: an element is the
same chain of multiply-adds whatever stands beside it. Where whole sequences go tile by tile (a
softcap, more than 512 keys) and what is kept does not, within the tolerance of every other result.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from agreement import Checks
from kept_sequences import (
    DECODERS,
    IDS,
    LAYERS,
    SOURCES,
    Compared,
    compared,
    language,
    model_of,
    translation,
)

import undivided
from undivided import Model
from undivided.engines.native import NativeEngine
from undivided.engines.native import sequences as native_sequences
from undivided.engines.reference import ReferenceEngine
from undivided.plan.continuing import continuing
from undivided.plan.describe import describe_json

NAMES = [*DECODERS, *LAYERS, *SOURCES]
STREAMED = ("softcap",)


def network_of(name: str) -> tuple[undivided.Network, int | None]:
    return (translation(name), None) if name in SOURCES else (language(name), 40)


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_says_the_same(name: str) -> None:
    network, window = network_of(name)
    found = compared(model_of(network, "reference", dtype="float64"), 6, window)
    for kept, whole in zip(found.kept, found.whole, strict=True):
        np.testing.assert_allclose(kept, whole, rtol=1e-12, atol=1e-12 * np.abs(whole).max())


@pytest.mark.parametrize("name", NAMES)
def test_the_native_engine_says_the_same(name: str) -> None:
    network, window = network_of(name)
    steps = 75 if name in SOURCES else 12  # beyond the room that it begins with
    model = model_of(network)
    found = compared(model, steps, window)
    if any(word in name for word in STREAMED):
        agree(network, steps, window, found)
    else:
        assert found.same


def agree(
    network: undivided.Network, steps: int, window: int | None, found: Compared, long: int = 0
) -> None:
    """Within the tolerance of a result of the native engine."""
    checks = Checks()
    exact, rounded = (
        compared(model_of(network, "reference", dtype=dtype), steps, window, long).whole
        for dtype in ("float64", "float32")
    )
    checks.compare("scores", *(np.stack(each) for each in (found.kept, exact, rounded)))
    checks.verify()


@pytest.mark.parametrize("positions", ["", "alibi", "relative", "rotary"])
def test_long_sequences_agree(positions: str) -> None:
    network = undivided.parse(
        f"""network Long {{ input: (None) layers: Embedding({IDS}, 16)
        TransformerDecoder(2, dff=32{f", positions={positions}" if positions else ""}) * 2
        Dense({IDS}) }}"""
    )
    found = compared(model_of(network), 3, None, long=600)
    agree(network, 3, None, found, long=600)


def test_threads_change_no_bit() -> None:
    one, three = (
        compared(model_of(language("rotary"), threads=threads), 12, 40) for threads in (1, 3)
    )
    assert all((a == b).all() for a, b in zip(one.kept, three.kept, strict=True))


def test_new_parameters_count_for_those_that_begin() -> None:
    model = model_of(language("one head, folded"))
    compared(model, 3, 40)
    for values in model.parameters.values():
        values *= 1.5
    assert compared(model, 3, 40).same


# Texts are the same with what is kept and without.


def without(model: Model, *given: Any, **options: Any) -> Any:
    with patch.object(type(model._engine), "begin", lambda *_, **__: None):
        return model.generate(*given, **options)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("engine", ["native", "reference"])
def test_texts_are_the_same(engine: str, temperature: float) -> None:
    model = model_of(language("sinusoidal positions", window=12), engine)
    drawn = {"temperature": temperature, "top_k": 5, "top_p": 0.9, "seed": 4}
    for begun in ([1, 2, 3], np.array([[4, 5], [6, 7]]), [np.arange(20), np.array([3])]):
        found, other = model.generate(begun, 25, **drawn), without(model, begun, 25, **drawn)
        np.testing.assert_array_equal(found, other)


def test_sequences_are_the_same_up_to_their_ends() -> None:
    model = model_of(translation("source with an end"))
    x = np.random.default_rng(0).integers(1, 11, (20, 9))
    x[3:, 4:] = 0
    drawn = {"temperature": 9.0, "seed": 2}  # so that ends are drawn too
    found = model.generate(x, 15, **drawn)
    np.testing.assert_array_equal(found, without(model, x, 15, **drawn))
    lengths = {len(each) for each in model.generate([row[row > 0] for row in x], 15, **drawn)}
    assert len(lengths) > 3


def test_tokens_are_told_as_they_come() -> None:
    model = model_of(language("alibi"))
    told: list[tuple[int, int]] = []
    found = model.generate([[1, 2], [3]], 3, on_token=lambda *each: told.append(each))
    assert [i for i, _ in told] == [0, 1] * 3
    for i, ids in enumerate(found):
        assert [token for number, token in told if number == i] == ids.tolist()


# What cannot go on begins again with every token, as ever.

WHOLE = {
    "what comes later is seen": "MultiHeadAttention(2)",
    "a window ahead": "MultiHeadAttention(2, window=(3, 1))",
    "neighbours on both sides": 'Conv1D(16, 3, padding="same")',
    "an encoder": "TransformerEncoder(2)",
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_looks_ahead_is_not_continued(name: str) -> None:
    text = f"network Whole {{ input: (8) layers: Embedding(7, 16) {WHOLE[name]} Dense(7) }}"
    network = undivided.parse(text)
    assert continuing(network.plan(ragged="Conv1D" not in text)) is None
    if "Conv1D" not in text:
        for engine in ("native", "reference"):
            model = model_of(network, engine)
            assert model._engine.begin(1, 8) is None
            assert len(model.generate([1, 2], 12)) == 12


def test_what_does_not_fit_is_not_kept() -> None:
    model = model_of(language("rotary"))
    with patch.object(native_sequences, "memory_limit", lambda: 10_000):
        assert model._engine.begin(3, 40) is None
        assert len(model.generate([1], 5)) == 5


# The plan itself.


def test_the_plan_says_what_is_kept() -> None:
    plan = language("fewer key heads").plan(ragged=True)
    going = continuing(plan)
    assert going is not None and plan.states == {}
    assert [name.split(".", 1)[1] for name in going.states] == [
        "attention.key",
        "attention.value",
    ] * 2
    (axis, width) = next(iter(going.states.values())).shape
    assert axis.continued and axis.most == 40 and width == 8
    assert [op.kind for op in going.operations[len(plan.operations) :]] == ["pick"]
    assert going.output.shape == (IDS,)
    describe_json(language("fewer key heads"))


def test_the_plan_keeps_what_a_source_gives() -> None:
    going = continuing(translation("source").plan())
    assert going is not None
    given = [name for name, value in going.states.items() if value.shape[0] == 9]
    assert len(given) == 4 and all(".cross." in name for name in given)


def test_the_last_block_is_worked_out_for_one_row() -> None:
    """All that is wanted of a prompt's other rows are the keys and values of every block."""
    network = undivided.parse(
        f"network Two {{ input: (40) layers: Embedding({IDS}, 16) TransformerDecoder(2) * 2 "
        f"Dense({IDS}, tied_to=embedding_1) }}"
    )
    engine = model_of(network)._engine
    assert isinstance(engine, NativeEngine)
    assert engine.begin(1, 40) is not None and engine._continuing is not None
    program = engine._continuing.schedule(64).program("continue", 32)
    made = [
        (op.kind, program.axes[program.buffers[op.y].axis].rows)
        for op in program.instructions
        if op.y >= 0
    ]
    first, second = (i for i, (kind, _) in enumerate(made) if kind == "recall")
    assert made[first][1] == -1 and {rows for _, rows in made[second:]} == {1}
    assert ("linear", 1) in made[second:] and ("linear", 1) not in made[:first]


def test_reference_sequences_forget() -> None:
    engine = ReferenceEngine(language("rotary").plan(ragged=True), np.float64)
    kept = engine.begin(2, 40)
    assert kept is not None
    kept.scores([0, 1], [np.array([1, 2]), np.array([3])])
    assert kept.lengths([1, 0]) == [1, 2]
    kept.forget([0])
    assert kept.lengths([0, 1]) == [0, 1]
