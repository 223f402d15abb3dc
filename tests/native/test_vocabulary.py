"""Scores of a vocabulary: never there as a whole, and the same bits for any number of threads."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from agreement import batch_for, fill, start_values
from native_cases import CASES, Case
from test_bits import alike, same_bits

import undivided
from undivided.engines.native import NativeEngine
from undivided.plan.describe import describe, describe_json
from undivided.plan.plan import Plan
from undivided.plan.schedule import schedule, vocabulary
from undivided.plan.schedule.program import Instruction

ROWS = [case for case in CASES if case.primitive == "vocabulary"]

LANGUAGE = """network Language { input: (200) layers:
    Embedding(5000, 16)
    TransformerDecoder(num_heads=2, ff_dim=24)
    Dense(5000, tied_to="embedding_1") }"""


def last(plan: Plan) -> Instruction:
    """The instruction that the loss comes from."""
    losses = {"vocabulary", "cross_entropy", "binary_cross_entropy", "deviation"}
    (found,) = (i for i in schedule(plan).program("train").instructions if i.kind in losses)
    return found


def engine_of(plan: Plan, threads: int = 1) -> NativeEngine:
    engine = NativeEngine(plan, threads)
    fill(engine, start_values(plan))
    return engine


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_on_any_number_of_threads(case: Case) -> None:
    plan = case.network.plan()
    assert last(plan).kind == "vocabulary"
    batch = batch_for(plan, case.count, lengths=case.lengths, weighted=case.weighted)
    expected = alike(engine_of(plan).loss_and_gradients(batch.x, batch.y))
    for threads in (2, 3):
        found = alike(engine_of(plan, threads).loss_and_gradients(batch.x, batch.y))
        same_bits(found, expected)


def test_longer_samples_change_no_gradient_of_shorter_ones() -> None:
    case = next(case for case in ROWS if case.option == "ragged, after gelu")
    plan = case.network.plan()
    batch = batch_for(plan, lengths=(3, 1, 9))
    fresh, used = engine_of(plan), engine_of(plan)
    used.predict([np.ones((300, 5), np.float32)])
    found, expected = (each.loss_and_gradients(batch.x, batch.y) for each in (used, fresh))
    same_bits(alike(found), alike(expected))


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_one_chunk_is_the_same_as_no_chunks(case: Case) -> None:
    """Cut or whole, up to the order in which rows are added to gradients."""
    plan = case.network.plan()
    batch = batch_for(plan, case.count, lengths=case.lengths, weighted=case.weighted)
    chunked = engine_of(plan).loss_and_gradients(batch.x, batch.y)
    with patch.object(vocabulary, "LEAST_WORDS", 1 << 30):
        assert last(plan).kind == "cross_entropy"
        whole = engine_of(plan).loss_and_gradients(batch.x, batch.y)
    same_bits([np.array(chunked[0])], [np.array(whole[0])])
    for name, gradient in whole[1].items():
        scale = np.abs(gradient).max(initial=0)
        np.testing.assert_allclose(chunked[1][name], gradient, rtol=0, atol=2e-6 * scale)


def test_what_decides_is_the_layer_and_its_loss() -> None:
    def kind(layers: str, loss: str = "sparse_categorical_crossentropy") -> str:
        text = f'network N {{ input: (3, 4) layers: {layers} loss: "{loss}" }}'
        return last(undivided.parse(text).plan()).kind

    assert kind("Dense(2048)") == "vocabulary"
    assert kind("Dense(2047)") == "cross_entropy"
    assert kind("Dense(2048) Rescaling(0.5)") == "cross_entropy"
    assert kind('Dense(2048, activation="relu")') == "cross_entropy"
    assert kind('Dense(2048, activation="softmax")') == "vocabulary"
    assert kind("Dense(2048)", "categorical_crossentropy") == "cross_entropy"
    assert kind("Dense(2048)", "mse") == "deviation"


def test_describe_says_what_room_it_takes() -> None:
    network = undivided.parse(LANGUAGE)
    said = describe_json(network)["schedule"]["vocabulary"]
    padded = 5008
    assert said == {
        "scores": 5000,
        "rows_at_a_time": 128,
        "bytes": 128 * padded * 4,
        "bytes_as_a_whole": 2 * 200 * padded * 4,
    }
    assert "5,000 scores of a row" in describe(network)
    with patch.object(vocabulary, "LEAST_WORDS", 1 << 30):
        whole = describe_json(network)
        assert whole["schedule"]["vocabulary"] is None
    arena = describe_json(network)["bytes"]["arena_training"]
    assert arena < whole["bytes"]["arena_training"] - 1.2 * 200 * padded * 4
