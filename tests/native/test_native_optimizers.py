"""The native updates against their definition, `training/optimizers.py` run by the reference."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from agreement import NEAR, Checks, Trio, fill, start_values
from native_cases import Case, compact
from small_models import BLOCK, OPTIMIZERS, engine_for, samples_for

from undivided.engines.engine import Engine, TrainedSteps
from undivided.layers import (
    Dense,
    GlobalAveragePooling1D,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    Output,
    Residual,
)
from undivided.network import Network
from undivided.training.optimizers import SGD, Adam, AdamW, Group, Optimizer

SAMPLES = 30
# Without the biases of attention: that of the keys gets gradients of rounding alone, which Adam
# makes as large as any other. Without relu, whose kinks would sooner or later be met.
NETWORK = Network(
    input=(5, 7),
    layers=(
        Dense(12),
        LearnedPositions(),
        Residual((LayerNormalization(), MultiHeadAttention(2, bias=False))),
        Residual((LayerNormalization(), Dense(20, activation="gelu"), Dense(12))),
        GlobalAveragePooling1D(),
        Output(4),
    ),
)
MORE: dict[str, Optimizer] = {
    **OPTIMIZERS,
    "slow momentum": SGD(momentum=0.1),
    "Adam, other numbers": Adam(beta_1=0.8, beta_2=0.95, epsilon=1e-3),
    "Adam without mean": Adam(beta_1=0.0),
    "AdamW without decay": AdamW(weight_decay=0.0),
    "Nesterov": SGD(momentum=0.7, nesterov=True),
    "AdamW, epsilon uncorrected": AdamW(epsilon=1e-3, epsilon_uncorrected=True),
    "clipped by value": SGD(clip_value=0.01),
    "clipped by norm": Adam(clip_norm=0.05),
    "clipped by both": SGD(momentum=0.5, clip_value=0.02, clip_norm=0.1),
    "norm below the limit": SGD(clip_norm=1e3),
    "groups": AdamW(
        weight_decay=0.5,
        groups=(
            Group("attention_1.query.*", learning_rate=0.3),
            Group("attention_1.value.weight", decays=False),
            Group("dense_1.*", frozen=True),
            Group("*.bias", learning_rate=2.0, decays=True),
            Group("*.weight", learning_rate=0.5),
        ),
        clip_norm=0.2,
    ),
    "AdamW, large decay": AdamW(weight_decay=2.0, epsilon=1e-2, epsilon_inside_root=True),
}


def with_optimizer(name: str) -> Network:
    return dataclasses.replace(NETWORK, optimizer=MORE[name])


def take(
    engine: Engine, x: Any, y: Any, rates: np.ndarray, batch: int, first: int = 0, short: int = 0
) -> TrainedSteps:
    """One step for each rate, through the samples in another order than they come in."""
    order = (np.arange(len(rates) * batch - short) * 7 % len(x)).astype(np.uint32)
    return engine.train(x, y, order, batch, first, rates)


def meet(checks: Checks, trio: Trio, results: list[TrainedSteps]) -> None:
    """Losses, parameters and slots of all three engines."""
    assert not any(result.failed for result in results)
    checks.compare("losses", *(result.losses for result in results))
    for name in trio.plan.parameters:
        checks.compare(name, *(engine.parameters[name] for engine in trio.engines))
        for slot in trio.plan.optimizer.kept():
            checks.compare(
                f"{slot} of {name}", *(engine.slots[slot][name] for engine in trio.engines)
            )


@pytest.mark.parametrize("name", MORE)
def test_many_steps(name: str) -> None:
    """25 steps whose rates differ, the last batch short: everything that they leave behind."""
    trio = Trio(with_optimizer(name))
    rates = 0.004 * (1.5 + np.sin(np.arange(25)))
    checks = Checks()
    for number in range(24):
        trio.neighbour(number)
        for engine in trio.engines:
            for arrays in engine.slots.values():
                for array in arrays.values():
                    array[...] = 0
        x, y = samples_for(trio.found, SAMPLES, seed=number % 3)
        meet(checks, trio, [take(e, x, y, rates, batch=8, short=3) for e in trio.engines])
        if number >= 3 and checks.agree:
            break
    assert len(checks.results) == 1 + len(trio.plan.parameters) * (1 + len(trio.found.slots))
    checks.verify()


@pytest.mark.parametrize("case", compact(), ids=str)
def test_steps_through_any_network(case: Case) -> None:
    """Four steps on the same samples: what one leaves in memory must not come into the next."""
    lengths = tuple(n for n in case.lengths if n <= 65)
    trio = Trio(dataclasses.replace(case.network, optimizer=SGD(momentum=0.5)))
    batch = dataclasses.replace(case, lengths=lengths, count=min(case.count, 6)).batch(trio)
    checks = Checks()
    for number in range(64):
        trio.neighbour(number)
        for engine in trio.engines:
            for array in engine.slots["velocity"].values():
                array[...] = 0
        near, rates = batch.neighbour(number), np.full(4, 0.02)
        meet(checks, trio, [take(e, near.x, near.y, rates, batch=3) for e in trio.engines])
        if number >= 3 and checks.agree:
            break
    checks.verify()


@pytest.mark.parametrize("first", [0, 1, 30, 100_000])
@pytest.mark.parametrize("name", MORE)
def test_one_step_from_anywhere(name: str, first: int) -> None:
    """From the same parameters and slots, with averages of every size."""
    trio = Trio(with_optimizer(name))
    checks = Checks()
    for number in range(24):
        trio.neighbour(number)
        random, near = np.random.default_rng(first), np.random.default_rng([number, 5])
        for parameter in trio.plan.parameters.values():
            size = 10.0 ** random.integers(-3, 0) * random.uniform(0.5, 1.5, parameter.shape)
            for slot in trio.plan.optimizer.kept():
                values = size**2 if slot == "square" else size * random.normal(size=size.shape)
                values *= 1 + NEAR * near.normal(size=size.shape)
                for engine in trio.engines:
                    engine.slots[slot][parameter.name][...] = values.astype(np.float32)
        x, y = samples_for(trio.found, SAMPLES)
        rates = np.array([0.01])
        meet(checks, trio, [take(e, x, y, rates, batch=8, first=first) for e in trio.engines])
        if number >= 3 and checks.agree:
            break
    checks.verify()


def test_decay_only_where_parameters_decay() -> None:
    found = {}
    for name, optimizer in {"Adam": Adam(), "AdamW": AdamW(weight_decay=0.5)}.items():
        engine = engine_for("pre-norm block", optimizer)
        x, y = samples_for(engine)
        take(engine, x, y, np.array([0.1]), batch=8)
        found[name] = engine
    plain, decayed = found["Adam"], found["AdamW"]
    start = start_values(plain.plan)
    kept = {name for name, p in plain.plan.parameters.items() if not p.decays}
    assert kept == {n for n in start if not n.endswith(".weight")}
    for name in start:
        if name in kept:
            np.testing.assert_array_equal(decayed.parameters[name], plain.parameters[name])
        else:
            difference = plain.parameters[name] - decayed.parameters[name]
            np.testing.assert_allclose(difference, 0.1 * 0.5 * start[name], atol=1e-6)


def test_a_rate_of_zero_changes_no_parameter() -> None:
    for optimizer in OPTIMIZERS.values():
        engine = engine_for("pre-norm block", optimizer)
        x, y = samples_for(engine)
        result = take(engine, x, y, np.zeros(4), batch=8)
        assert len(result.losses) == 4 and not result.failed
        for name, values in start_values(engine.plan).items():
            np.testing.assert_array_equal(engine.parameters[name], values)


def test_losses_are_those_of_the_batches() -> None:
    """Each is the sum over its samples, before the step that it leads to."""
    engine = engine_for("classifier", SGD())
    x, y = samples_for(engine, 20)
    result = engine.train(x, y, np.arange(20, dtype=np.uint32), 8, 0, np.zeros(3))
    assert result.losses.dtype == np.float64 and len(result.losses) == 3
    for loss, rows in zip(result.losses, (slice(0, 8), slice(8, 16), slice(16, 20)), strict=True):
        mean, _ = engine.loss_and_gradients(x[rows], y[rows])
        assert loss == pytest.approx(mean * len(y[rows]), rel=1e-6)


def test_a_step_is_the_gradient_of_its_batch() -> None:
    """SGD from the gradient that `loss_and_gradients` gives, to the last bit."""
    engine = engine_for("pre-norm block", SGD())
    x, y = samples_for(engine, 8)
    _, gradients = engine.loss_and_gradients(x, y)
    before = {name: array.copy() for name, array in engine.parameters.items()}
    engine.train(x, y, np.arange(8, dtype=np.uint32), 8, 0, np.array([0.5]))
    for name, array in engine.parameters.items():
        np.testing.assert_allclose(
            array, before[name] - np.float32(0.5) * gradients[name], rtol=2e-7, atol=1e-8
        )


def test_slots_are_live_views() -> None:
    for name, optimizer in OPTIMIZERS.items():
        engine = engine_for("pre-norm block", optimizer)
        kept = {"SGD": (), "momentum": ("velocity",)}.get(name, ("mean", "square"))
        assert tuple(engine.slots) == kept == optimizer.kept()
        for arrays in engine.slots.values():
            assert list(arrays) == list(engine.plan.parameters)
            for parameter in engine.plan.parameters.values():
                view = arrays[parameter.name]
                assert view.shape == parameter.shape and view.dtype == np.float32
                assert view.flags.writeable and not view.any()
        x, y = samples_for(engine)
        take(engine, x, y, np.full(3, 0.01), batch=8)
        for arrays in engine.slots.values():
            assert all(array.any() for array in arrays.values())


def test_what_is_written_into_a_slot_counts() -> None:
    engine = engine_for("classifier", SGD(momentum=0.5))
    x, y = samples_for(engine)
    _, gradients = engine.loss_and_gradients(x[:8], y[:8])
    engine.slots["velocity"]["output_1.bias"][...] = 4.0
    before = engine.parameters["output_1.bias"].copy()
    engine.train(x, y, np.arange(8, dtype=np.uint32), 8, 0, np.array([0.25]))
    velocity = 2.0 + gradients["output_1.bias"]
    np.testing.assert_allclose(engine.slots["velocity"]["output_1.bias"], velocity, rtol=1e-6)
    np.testing.assert_allclose(
        engine.parameters["output_1.bias"], before - 0.25 * velocity, rtol=1e-5, atol=1e-6
    )


def test_no_steps() -> None:
    engine = engine_for("classifier", Adam())
    x, y = samples_for(engine)
    fill(engine, start_values(engine.plan, seed=4))
    result = engine.train(x, y, np.zeros(0, np.uint32), 8, 0, np.zeros(0))
    assert len(result.losses) == 0 and not result.failed
    for name, values in start_values(engine.plan, seed=4).items():
        np.testing.assert_array_equal(engine.parameters[name], values)


def test_learning_goes_on() -> None:
    """Hundreds of steps on the same samples bring the loss near 0 with every optimizer."""
    rates = {"SGD": 0.1, "momentum": 0.02}
    for name, optimizer in OPTIMIZERS.items():
        network = Network(
            input=(5, 7),
            layers=(Dense(12), *BLOCK, GlobalAveragePooling1D(), Output(4)),
            optimizer=optimizer,
        )
        engine = Trio(network).found
        x, y = samples_for(engine, 16)
        result = take(engine, x, y, np.full(600, rates.get(name, 0.01)), batch=8)
        assert result.losses[-2:].sum() / 16 < 0.1 < result.losses[:2].sum() / 16


@pytest.mark.parametrize("heads", [1, 2])
def test_frozen_parameters_stay_and_the_norm_is_without_them(heads: int) -> None:
    """With one head, weights behind folds too."""
    frozen = Group("attention_1.*", frozen=True), Group("dense_2.weight", frozen=True)
    network = Network(
        input=(5, 7),
        layers=(
            Dense(40),
            MultiHeadAttention(heads, bias=False, output_projection=False),
            Dense(6),
            GlobalAveragePooling1D(),
            Output(4),
        ),
        optimizer=SGD(clip_norm=0.05, groups=frozen),
    )
    trio = Trio(network)
    before = {name: values.copy() for name, values in trio.found.parameters.items()}
    x, y = samples_for(trio.found, SAMPLES)
    checks = Checks()
    for number in range(24):
        trio.neighbour(number)
        meet(checks, trio, [take(e, x, y, np.full(6, 0.5), batch=8) for e in trio.engines])
        if number >= 3 and checks.agree:
            break
    checks.verify()
    trio.neighbour(0)
    take(trio.found, x, y, np.full(6, 0.5), batch=8)
    for name, values in trio.found.parameters.items():
        same = name.startswith("attention_1") or name == "dense_2.weight"
        assert np.array_equal(values, before[name]) is same, name


def test_clipping_gives_the_same_bits_for_any_threads() -> None:
    results = []
    for threads in (1, 2, 3):
        engine = engine_for(
            "pre-norm block", AdamW(clip_norm=0.01, clip_value=0.1), threads=threads
        )
        x, y = samples_for(engine)
        take(engine, x, y, np.full(10, 0.01), batch=16)
        results.append({name: values.copy() for name, values in engine.parameters.items()})
    for result in results[1:]:
        for name, values in result.items():
            np.testing.assert_array_equal(values, results[0][name])
