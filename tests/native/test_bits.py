"""The same bits: for any number of threads, any chunks of steps, any company, any run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_models
from agreement import batch_for, fill, start_values
from native_cases import CASES
from small_models import NETWORKS, OF_IDS, OPTIMIZERS, STEPS, engine_for, samples_for, trained

from undivided.engines.engine import Packed
from undivided.engines.native import NativeEngine
from undivided.plan.schedule import schedule

THREADS = (1, 2, 3, 4, 7)


def same_bits(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert a.tobytes() == b.tobytes()


def alike(results: Any) -> list[np.ndarray]:
    """The arrays of a result, whatever they lie in."""
    if isinstance(results, dict):
        return [array for value in results.values() for array in alike(value)]
    if isinstance(results, list | tuple):
        return [array for value in results for array in alike(value)]
    return [np.asarray(results)]


def taken(x: Any, rows: Any) -> Any:
    return [x[row] for row in rows] if isinstance(x, list) else x[np.array(rows)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", [*NETWORKS, *OF_IDS])
def test_training_on_any_number_of_threads(name: str, optimizer: str) -> None:
    first, *others = (
        trained(engine_for(name, OPTIMIZERS[optimizer], threads=threads)) for threads in THREADS
    )
    assert np.isfinite(first[0]).all() and len(first[0]) == STEPS
    for other in others:
        same_bits(other, first)


@pytest.mark.parametrize("name", [*NETWORKS, *OF_IDS])
def test_everything_else_on_any_number_of_threads(name: str) -> None:
    expected = None
    for threads in THREADS:
        engine = engine_for(name, threads=threads)
        for count in (1, 2, 17, 40):
            x, y = samples_for(engine, count)
            dy = np.random.default_rng(count).normal(size=(count, engine.plan.output.width))
            found = alike(
                [
                    engine.predict(x),
                    engine.attention_weights(x),
                    engine.loss_and_gradients(x, y),
                    engine.pull_back(x, dy),
                ]
            )
            if threads == 1:
                expected = expected or {}
                expected[count] = found
            assert expected is not None
            same_bits(found, expected[count])


def test_wide_layers_on_any_number_of_threads() -> None:
    """Whose groups are larger in training, and whose gradients lie beyond a core's own cache."""
    (case, *_) = (case for case in CASES if case.option == "wide")
    plan = case.network.plan()
    groups = [schedule(plan).program(purpose).group for purpose in ("predict", "train")]
    assert groups == [1, 6]
    expected = None
    for threads in THREADS:
        engine = NativeEngine(plan, threads)
        fill(engine, start_values(plan))
        found = []
        for count in (1, 5, 30):
            batch = batch_for(plan, count)
            found += alike(engine.loss_and_gradients(batch.x, batch.y))
            found += alike(engine.pull_back(batch.x, batch.dy))
            if count > 1:  # what a sample's own gradient is does not depend on the others
                dx = engine.pull_back(batch.x, batch.dy)[0]
                same_bits([engine.pull_back(batch.x[:1], batch.dy[:1])[0]], [dx[:1]])
        expected = expected or found
        same_bits(found, expected)


@pytest.mark.parametrize("chunks", [(1, 7, 12), (1,) * STEPS, (19, 1)], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_any_chunks_of_steps(optimizer: str, chunks: tuple[int, ...]) -> None:
    for name in NETWORKS:
        whole = trained(engine_for(name, OPTIMIZERS[optimizer], threads=2))
        pieces = trained(engine_for(name, OPTIMIZERS[optimizer], threads=2), chunks)
        same_bits(pieces, whole)


def test_what_came_in_between_does_not_matter() -> None:
    """Predictions and gradients between the chunks, on the same engine, change nothing."""
    for name in NETWORKS:
        whole = trained(engine_for(name, OPTIMIZERS["AdamW"]))
        engine = engine_for(name, OPTIMIZERS["AdamW"])
        train, x, y = engine.train, *samples_for(engine, 33, seed=5)

        def interrupted(*arguments: Any, engine=engine, train=train, x=x, y=y) -> Any:  # type: ignore[no-untyped-def]
            engine.predict(x)
            engine.loss_and_gradients(x, y)
            result = train(*arguments)
            engine.pull_back(x, np.ones((33, engine.plan.output.width)))
            engine.attention_weights(x)
            return result

        engine.train = interrupted  # type: ignore[method-assign]
        same_bits(trained(engine, (3, 10, 7)), whole)


@pytest.mark.parametrize("name", [*NETWORKS, *OF_IDS])
def test_company_does_not_matter(name: str) -> None:
    """What a sample gives alone it gives in any batch, at any place in it, beside anyone."""
    engine = engine_for(name, threads=2)
    x, _ = samples_for(engine, 67)
    dy = np.random.default_rng(0).normal(size=(67, engine.plan.output.width)).astype(np.float32)

    def of(rows: list[int]) -> list[list[np.ndarray]]:
        """What each sample gives in this batch."""
        batch = taken(x, rows)
        results = [engine.predict(batch)]
        if engine.plan.input.vocabulary is None:  # ids have no gradient
            results.append(engine.pull_back(batch, dy[rows])[0])
        results += engine.attention_weights(batch).values()
        return [[np.asarray(result[i]) for result in results] for i in range(len(rows))]

    alone = [of([row])[0] for row in range(67)]
    batches = [list(range(count)) for count in (2, 3, 5, 8, 13, 16, 17, 32, 33, 64, 67)]
    random = np.random.default_rng(1)
    batches += [random.integers(0, 67, 33).tolist() for _ in range(4)]
    batches += [[5] * 20, list(reversed(range(67)))]
    for rows in batches:
        for row, found in zip(rows, of(rows), strict=True):
            same_bits(found, alone[row])


def test_asking_for_weights_changes_no_prediction() -> None:
    for name in NETWORKS:
        engine = engine_for(name)
        x, y = samples_for(engine)
        before = alike(engine.predict(x))
        engine.attention_weights(x)
        engine.loss_and_gradients(x, y)
        same_bits(alike(engine.predict(x)), before)


def test_longer_samples_change_no_prediction_of_shorter_ones() -> None:
    """An arena made for longer samples is laid out anew: nothing but room changes."""
    engine = engine_for("any length", OPTIMIZERS["AdamW"])
    x, _ = samples_for(engine)
    trained(engine)
    parameters = dict(engine.parameters)
    before = alike([engine.predict(x), engine.attention_weights(x)])
    engine.predict([np.ones((200, 7), np.float32)])
    same_bits(alike([engine.predict(x), engine.attention_weights(x)]), before)
    for name, array in engine.parameters.items():
        assert array is parameters[name]


def test_longer_samples_change_no_gradient_of_shorter_ones() -> None:
    """How a batch is cut depends on the plan and the batch, not on what was seen before."""
    fresh, used = (engine_for("any length", OPTIMIZERS["AdamW"]) for _ in range(2))
    x, y = samples_for(fresh)
    used.predict([np.ones((200, 7), np.float32)])
    same_bits(alike(used.loss_and_gradients(x, y)), alike(fresh.loss_and_gradients(x, y)))
    same_bits(trained(used), trained(fresh))


def test_samples_put_end_to_end_beforehand() -> None:
    for threads in (1, 2):
        engine = engine_for("any length", threads=threads)
        x, y = samples_for(engine)
        packed = Packed(x)
        same_bits(alike(engine.predict(packed)), alike(engine.predict(x)))
        learned = engine.loss_and_gradients(packed, y)
        same_bits(alike(learned), alike(engine.loss_and_gradients(x, y)))


def test_a_second_run_and_a_fresh_process() -> None:
    first = small_models.digest()
    assert small_models.digest(threads=3) == first
    done = subprocess.run(
        [sys.executable, str(Path(small_models.__file__)), "2"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == [first], done.stderr


def test_that_a_digest_sees_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    first = small_models.digest()
    monkeypatch.setattr(small_models, "start_values", nudged)
    assert small_models.digest() != first


def nudged(plan: Any, seed: int) -> dict[str, np.ndarray]:
    values = start_values(plan, seed)
    last = list(values.values())[-1]
    last[0] = np.nextafter(last[0], np.float32(2))
    return values
