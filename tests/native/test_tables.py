"""Large tables: slices list the rows that they add to, and only those are cleared and summed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from agreement import Trio, batch_for, fill, start_values
from native_cases import CASES, Case
from test_bits import THREADS, alike, same_bits

import undivided
from undivided.engines.native import NativeEngine
from undivided.plan.describe import describe_json
from undivided.plan.plan import Plan
from undivided.plan.schedule import schedule, storage
from undivided.training.optimizers import SGD, Adam, AdamW, Group

OF_IDS = [
    case
    for case in CASES
    if any(entry.vocabulary is not None for entry in case.network.plan().inputs)
]

DEEPER = undivided.parse("""network Deeper { input: (None) layers:
    Embedding(300, 12)
    TransformerEncoder(num_heads=2, ff_dim=20, dropout=0.1)
    TransformerDecoder(num_heads=2, ff_dim=20)
    Output(300) }""")
"""Source and target share a table."""

OPTIMIZERS = {
    "SGD": SGD(),
    "clipped by norm": Adam(clip_norm=0.02),
    "clipped by value": AdamW(weight_decay=0.1, clip_value=1e-4),
    "slower": SGD(momentum=0.9, groups=(Group("*.table", learning_rate=0.5),)),
    "frozen": Adam(groups=(Group("*.table", frozen=True),)),
}


@pytest.fixture(autouse=True)
def every_table_is_large() -> Iterator[None]:
    with patch.object(storage, "LISTED_TABLE", 1), patch.object(storage, "LISTED_PIECES", 3):
        yield


def listed(plan: Plan) -> int:
    return sum(block.listed > 0 for block in schedule(plan).storage.blocks)


@pytest.mark.parametrize("case", OF_IDS, ids=str)
def test_the_table_of_cases(case: Case) -> None:
    trio = Trio(case.network, threads=2)
    trio.check(case.batch(trio)).verify()


def test_cases_have_tables_that_are_listed_and_some_that_are_tied() -> None:
    found = [listed(case.network.plan()) for case in OF_IDS]
    assert found.count(0) >= 2 and sum(found) >= 5
    assert listed(DEEPER.plan()) == 1


def trained(plan: Plan, threads: int) -> list[np.ndarray]:
    engine = NativeEngine(plan, threads)
    fill(engine, start_values(plan))
    batch = batch_for(plan, lengths=tuple(1 + n % 7 for n in range(30)))
    found = alike(engine.loss_and_gradients(batch.x, batch.y))
    order = np.arange(120, dtype=np.uint32) % 30
    for first in (0, 5):
        rates = np.full(5, 0.01)
        result = engine.train(batch.x, batch.y, order[first * 12 :], 12, first, rates)
        found.append(np.array(result.losses))
    found += alike(engine.loss_and_gradients(batch.x, batch.y))
    return [*found, *map(np.array, engine.parameters.values())]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_on_any_number_of_threads_and_beside_whole_copies(optimizer: str) -> None:
    plan = replace(DEEPER, optimizer=OPTIMIZERS[optimizer]).plan()
    expected = trained(plan, 1)
    for threads in THREADS[1:]:
        same_bits(trained(plan, threads), expected)
    with patch.object(storage, "LISTED_TABLE", 1 << 30):
        assert not listed(plan)
        whole = trained(plan, 1)
    for found, other in zip(expected, whole, strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-3, atol=1e-4)


def test_room_is_for_the_rows_of_a_batch() -> None:
    network = undivided.parse(
        "network N { input: (8) layers: Embedding(60000, 16) GlobalAveragePooling1D Output(3) }"
    )
    bytes_ = describe_json(network)["bytes"]
    assert bytes_["gradients"] < bytes_["parameters"] / 50
