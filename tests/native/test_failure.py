"""What is not finite stops a run before it changes anything, and stays where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from agreement import start_values
from small_models import NETWORKS, OPTIMIZERS, engine_for, samples_for

from undivided.engines.native import NativeEngine
from undivided.engines.reference import ReferenceEngine
from undivided.errors import ArgumentError
from undivided.layers import Output, Rescaling
from undivided.network import Network

BATCH, STEPS = 8, 5
NOT_FINITE = {"NaN": np.nan, "infinity": np.inf, "minus infinity": -np.inf}
FLOATS = [name for name, network in NETWORKS.items() if network.input != (12, 12)]


def everything(engine: NativeEngine) -> dict[str, bytes]:
    """All bits of parameters and slots."""
    found = {name: array.tobytes() for name, array in engine.parameters.items()}
    for slot, arrays in engine.slots.items():
        found |= {f"{slot} {name}": array.tobytes() for name, array in arrays.items()}
    return found


def take(engine: NativeEngine, x: Any, y: Any, steps: int) -> Any:
    order = np.arange(steps * BATCH, dtype=np.uint32)
    return engine.train(x, y, order, BATCH, 0, np.full(steps, 0.01))


def spoil(x: Any, sample: int, value: float) -> None:
    x[sample].reshape(-1)[-2] = value


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("at", range(STEPS))
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", FLOATS)
def test_nothing_changes_from_the_step_that_fails(
    name: str, optimizer: str, at: int, threads: int
) -> None:
    for value in NOT_FINITE.values():
        engine = engine_for(name, OPTIMIZERS[optimizer], threads=threads)
        x, y = samples_for(engine)
        expected = engine_for(name, OPTIMIZERS[optimizer])
        done = take(expected, x, y, at)
        spoil(x, at * BATCH + 5, value)
        result = take(engine, x, y, STEPS)
        assert result.failed
        assert len(result.losses) == at
        np.testing.assert_array_equal(result.losses, done.losses)
        assert everything(engine) == everything(expected)


def test_what_failed_goes_on_with_other_samples() -> None:
    """Nothing of the failure is left in the memory that the next call works in."""
    for name in FLOATS:
        for threads in (1, 2):
            engine = engine_for(name, OPTIMIZERS["AdamW"], threads=threads)
            x, y = samples_for(engine)
            expected = engine_for(name, OPTIMIZERS["AdamW"])
            take(expected, x, y, STEPS)
            loss, gradients = expected.loss_and_gradients(x, y)
            whole = [sample.copy() for sample in x]
            for sample in range(len(x)):
                x[sample][...] = np.nan
            assert take(engine, x, y, STEPS).failed
            assert np.isnan(engine.loss_and_gradients(x, y)[0])
            for sample, values in enumerate(whole):
                x[sample][...] = values
            assert not take(engine, x, y, STEPS).failed
            assert everything(engine) == everything(expected)
            again, gradients_again = engine.loss_and_gradients(x, y)
            assert again == loss
            for parameter in gradients:
                np.testing.assert_array_equal(gradients_again[parameter], gradients[parameter])


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_that_the_user_spoiled(name: str) -> None:
    for parameter in ("output_1.weight", "dense_1.weight", "dense_1.bias"):
        for value in (np.nan, np.inf):
            engine = engine_for(name, OPTIMIZERS["AdamW"], threads=2)
            x, y = samples_for(engine)
            engine.parameters[parameter][..., 0] = value
            before = everything(engine)
            result = take(engine, x, y, 2)
            assert result.failed and len(result.losses) == 0
            assert everything(engine) == before
            engine.parameters[parameter][...] = start_values(engine.plan)[parameter]
            assert not take(engine, x, y, 2).failed


def test_a_step_too_far_fails_at_the_next() -> None:
    """A rate of 10³⁸ is taken as it is; the loss after it is not finite."""
    engine = engine_for("table", OPTIMIZERS["SGD"])
    x, y = samples_for(engine)
    order = np.arange(3 * BATCH, dtype=np.uint32)
    result = engine.train(x, y, order, BATCH, 0, np.array([0.01, 1e38, 0.01]))
    assert result.failed and len(result.losses) == 2
    assert any(np.abs(array).max() > 1e30 for array in engine.parameters.values())


def test_a_loss_too_large_for_float32() -> None:
    network = Network(input=(2,), layers=(Output(3, bias=False), Rescaling(3e38)))
    engine = NativeEngine(network.plan(), 1)
    engine.parameters["output_1.weight"][...] = [[0, 0, 1], [0, 0, 0]]
    before = engine.parameters["output_1.weight"].copy()
    x, y = np.array([[1, 0], [2, 0]], np.float32), np.zeros(2, np.int32)
    assert engine.train(x, y, np.array([1], np.uint32), 1, 0, np.ones(1)).failed
    np.testing.assert_array_equal(engine.parameters["output_1.weight"], before)


@pytest.mark.parametrize("value", NOT_FINITE.values(), ids=NOT_FINITE)
@pytest.mark.parametrize("name", FLOATS)
def test_a_spoiled_sample_reaches_no_other(name: str, value: float) -> None:
    engine = engine_for(name, threads=2)
    x, _ = samples_for(engine, 33)
    dy = np.random.default_rng(0).normal(size=(33, engine.plan.output.width))

    def results() -> list[list[np.ndarray]]:
        asked = [engine.predict(x), engine.pull_back(x, dy)[0]]
        asked += engine.attention_weights(x).values()
        return [[np.array(result[i]) for result in asked] for i in range(33)]

    whole = results()
    for spoiled in (0, 1, 16, 32):
        kept = x[spoiled].copy()
        x[spoiled][...] = value
        for sample, found in enumerate(results()):
            if sample == spoiled:
                assert np.isnan(found[0]).all()
                continue
            for a, b in zip(found, whole[sample], strict=True):
                np.testing.assert_array_equal(a, b)
        x[spoiled][...] = kept
    for found, expected in zip(results(), whole, strict=True):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_one_number_that_is_none_reaches_only_its_own_output() -> None:
    """A NaN in one sample's last feature, in every network: the loss says so."""
    for name in FLOATS:
        engine = engine_for(name)
        x, y = samples_for(engine, 3)
        spoil(x, 1, np.nan)
        found = engine.predict(x)
        assert np.isnan(found[1]).all()
        assert np.isfinite(found[[0, 2]]).all()
        assert np.isnan(engine.loss_and_gradients(x, y)[0])


# What is asked for wrongly, and refused as the reference refuses it.


@pytest.mark.parametrize("worst", [40, 41, 2**32 - 1])
def test_an_order_out_of_range(worst: int) -> None:
    engine = engine_for("table", OPTIMIZERS["AdamW"])
    x, y = samples_for(engine, 40)
    before = everything(engine)
    order = np.arange(16, dtype=np.uint32)
    order[11] = worst
    for each in (engine, ReferenceEngine(engine.plan)):
        with pytest.raises(ArgumentError) as caught:
            each.train(x, y, order, BATCH, 0, np.full(2, 0.01))
        assert str(caught.value) == (
            f"train expects an order over 40 samples. It names sample {worst}."
        )
    assert everything(engine) == before


@pytest.mark.parametrize("count", [0, 7, 16])
def test_an_order_that_does_not_fill_the_steps(count: int) -> None:
    engine = engine_for("table", OPTIMIZERS["SGD"])
    x, y = samples_for(engine, 40)
    for each in (engine, ReferenceEngine(engine.plan)):
        with pytest.raises(ArgumentError) as caught:
            each.train(x, y, np.arange(count, dtype=np.uint32), BATCH, 0, np.full(3, 0.01))
        assert str(caught.value) == (
            f"train expects an order that fills 3 steps of 8. Got {count} samples."
        )
