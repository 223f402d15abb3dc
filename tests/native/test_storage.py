"""Where parameters lie: live views of one array, whose padding is and stays zero."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from agreement import Trio, batch_for
from native_cases import CASES
from padded_networks import PADDED, padding, padding_after_training
from small_models import NETWORKS, OPTIMIZERS, engine_for, samples_for, trained

from undivided.engines.native import NativeEngine


def test_views_have_the_plans_order_and_shapes() -> None:
    for each in PADDED.values():
        engine = NativeEngine(each.plan(), 1)
        assert list(engine.parameters) == list(engine.plan.parameters)
        for name, parameter in engine.plan.parameters.items():
            view = engine.parameters[name]
            assert view.shape == parameter.shape and view.dtype == np.float32
            assert view.flags.writeable and not view.any()


def test_parameters_never_overlap() -> None:
    for case in CASES:
        parameters = NativeEngine(case.network.plan(), 1).parameters
        for (a, x), (b, y) in combinations(parameters.items(), 2):
            assert not np.shares_memory(x, y), f"{case}: {a} and {b}"


def test_what_is_written_counts_at_once() -> None:
    network = NETWORKS["pre-norm block"]
    used = Trio(network)
    batch = batch_for(used.plan, 5)
    before = used.found.predict(batch.x)
    for name in used.plan.parameters:
        used.found.loss_and_gradients(batch.x, batch.y)
        for engine in used.engines:
            engine.parameters[name][..., -1] += 0.5
        if not name.endswith("key.bias"):  # softmax does not see it
            assert (used.found.predict(batch.x) != before).any(), name
        for engine in used.engines:
            engine.parameters[name][..., -1] -= 0.5
        np.testing.assert_allclose(used.found.predict(batch.x), before, atol=1e-5)
    used.check(batch).verify()  # the backward pass reads transposed copies


def test_writing_between_steps_counts_in_the_next() -> None:
    """Training, a change by hand, more training: as if it had started from there."""
    for name in NETWORKS:
        for optimizer in OPTIMIZERS.values():
            engine = engine_for(name, optimizer, threads=2)
            trained(engine)
            for array in engine.parameters.values():
                array *= 0.5
            fresh = engine_for(name, optimizer)
            for parameter, array in engine.parameters.items():
                fresh.parameters[parameter][...] = array
            for slot, arrays in engine.slots.items():
                for parameter, array in arrays.items():
                    fresh.slots[slot][parameter][...] = array
            for a, b in zip(trained(engine), trained(fresh), strict=True):
                np.testing.assert_array_equal(a, b)


def test_results_are_copies() -> None:
    """Nothing that is handed out changes with the next call, or changes the engine."""
    engine = engine_for("classifier")
    x, y = samples_for(engine, 8)
    other = samples_for(engine, 8, seed=1)[0]
    dy = np.ones((8, 10), np.float32)

    def results(x: np.ndarray) -> list[np.ndarray]:
        weights = engine.attention_weights(x).values()
        dx, pulled = engine.pull_back(x, dy)
        gradients = engine.loss_and_gradients(x, y)[1]
        return [engine.predict(x), *weights, dx, *pulled.values(), *gradients.values()]

    first = results(x)
    kept = [array.copy() for array in first]
    results(other)
    for array, copy in zip(first, kept, strict=True):
        np.testing.assert_array_equal(array, copy)
        array[...] = np.nan
    for array, copy in zip(results(x), kept, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", PADDED)
def test_padding_stays_zero(name: str, optimizer: str) -> None:
    assert not padding_after_training(name, OPTIMIZERS[optimizer]).any()


def test_that_padding_is_found() -> None:
    engine = engine_for("pre-norm block")
    views = dict(engine.parameters)
    behind = padding(engine._flat, views)
    assert 0 < behind.size == engine._flat.size - engine.plan.parameter_count
    del views["dense_1.bias"]
    assert padding(engine._flat, views).size == behind.size + 12
