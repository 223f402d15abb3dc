"""Schedules: step by step against torch.optim.lr_scheduler, and where they have to know the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undivided
from undivided import (
    SGD,
    Constant,
    CosineDecay,
    Dense,
    ExponentialDecay,
    Model,
    Network,
    OneCycle,
    StepDecay,
    Warmup,
)
from undivided.errors import ArgumentError
from undivided.training.schedules import Schedule, learning_rate_at

STEPS = 40


def theirs(torch: Any, make: Any, rate: float) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    scheduler = make(torch.optim.lr_scheduler, optimizer)
    found = [optimizer.param_groups[0]["lr"]]
    for _ in range(STEPS - 1):
        optimizer.step()
        scheduler.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found


CASES: dict[str, tuple[Schedule, float, Any]] = {
    "constant": (Constant(0.1), 0.1, lambda s, o: s.LambdaLR(o, lambda step: 1)),
    "step": (StepDecay(0.1, 7, 0.3), 0.1, lambda s, o: s.StepLR(o, 7, 0.3)),
    "exponential": (ExponentialDecay(0.1, 1, 0.9), 0.1, lambda s, o: s.ExponentialLR(o, 0.9)),
    "cosine": (CosineDecay(0.1, STEPS), 0.1, lambda s, o: s.CosineAnnealingLR(o, STEPS)),
    "cosine, not to zero": (
        CosineDecay(0.1, STEPS, alpha=0.2),
        0.1,
        lambda s, o: s.CosineAnnealingLR(o, STEPS, eta_min=0.02),
    ),
    "one cycle": (OneCycle(0.1, STEPS), 0.1, lambda s, o: s.OneCycleLR(o, 0.1, total_steps=STEPS)),
    "one cycle, other parts": (
        OneCycle(0.1, STEPS, warmup=0.1, div_factor=10.0, final_div_factor=100.0),
        0.1,
        lambda s, o: s.OneCycleLR(
            o, 0.1, total_steps=STEPS, pct_start=0.1, div_factor=10, final_div_factor=100
        ),
    ),
    "warm-up": (
        Warmup(0.1, 8, start=0.25),
        0.1,
        lambda s, o: s.LinearLR(o, start_factor=0.25, total_iters=8),
    ),
    "warm-up into cosine": (
        Warmup(CosineDecay(0.1, 32), 8, start=0.1),
        0.1,
        lambda s, o: s.SequentialLR(
            o, [s.LinearLR(o, 0.1, 1.0, 8), s.CosineAnnealingLR(o, 32)], milestones=[8]
        ),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_step_by_step_against_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    schedule, rate, make = CASES[name]
    found = [schedule.at(step) for step in range(STEPS)]
    np.testing.assert_allclose(found, theirs(torch, make, rate), rtol=1e-10)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_a_warm_up_goes_before_any(name: str) -> None:
    torch = pytest.importorskip("torch")
    schedule, rate, make = CASES[name]
    after = theirs(torch, make, rate)[: STEPS - 5]
    up = np.linspace(0.2, 1, 6)[:-1] * after[0]
    found = [Warmup(schedule, 5, start=0.2).at(step) for step in range(STEPS)]
    np.testing.assert_allclose(found, [*up, *after], rtol=1e-10)


def test_what_comes_after_the_last_step() -> None:
    assert CosineDecay(0.1, 10, alpha=0.5).at(1000) == pytest.approx(0.05)
    assert OneCycle(0.1, 10).at(1000) == pytest.approx(0.1 / 25 / 1e4)
    assert OneCycle(0.1, 1).at(0) == pytest.approx(0.1 / 25 / 1e4)


def test_the_end_is_that_of_the_training() -> None:
    for schedule, known in [
        (CosineDecay(0.1), CosineDecay(0.1, 50)),
        (OneCycle(0.1), OneCycle(0.1, 50)),
        (Warmup(CosineDecay(0.1), 10), Warmup(CosineDecay(0.1, 40), 10)),
    ]:
        for step in range(60):
            assert learning_rate_at(schedule, step, 50) == known.at(step)
        with pytest.raises(ArgumentError, match=r"has to know how many steps there will be"):
            schedule.at(20)


def network(schedule: Any, **train: Any) -> Network:
    return Network(
        input=(4,),
        layers=(Dense(3),),
        loss="mse",  # type: ignore[arg-type]
        optimizer=SGD(schedule),
        train=undivided.Train(**train),
    )


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(33, 4)).astype(np.float32), random.normal(size=(33, 3))


def test_a_fit_tells_its_schedule_when_it_ends() -> None:
    by_fit = Model(network(OneCycle(0.1)))
    by_hand = Model(network(OneCycle(0.1, total_steps=3 * 5)))
    losses = [[e.loss for e in m.fit(data(), epochs=3, batch_size=8)] for m in (by_fit, by_hand)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_accumulated_gradients_have_the_bits_of_the_large_batch(engine: Any) -> None:
    results = []
    for train in ({"batch_size": 4, "gradient_accumulation_steps": 4}, {"batch_size": 16}):
        model = Model(network(CosineDecay(0.1), epochs=3, **train), engine=engine)
        history = model.fit(data())
        results.append(([e.loss for e in history], model.steps, dict(model.parameters)))
    assert results[0][:2] == results[1][:2]
    assert results[0][1] == 3 * 3
    for name, values in results[0][2].items():
        np.testing.assert_array_equal(values, results[1][2][name])


def test_schedules_in_text() -> None:
    text = """
        network N {
          input: (4)
          layers: Dense(3)
          optimizer: AdamW(
            Warmup(CosineDecay(0.003, alpha=0.1), steps=100),
            clip_norm=1.0,
            groups=[Group("dense_1.bias", frozen=true), Group("*", learning_rate=0.5)]
          )
          train { batch_size: 16, gradient_accumulation_steps: 4 }
        }
    """
    parsed = undivided.parse(text)
    assert parsed.optimizer.learning_rate == Warmup(CosineDecay(0.003, alpha=0.1), steps=100)
    assert parsed.train.gradient_accumulation_steps == 4
    assert undivided.parse(parsed.to_text()) == parsed
    rates = {name: p.rate for name, p in parsed.plan().parameters.items()}
    assert rates == {"dense_1.weight": 0.5, "dense_1.bias": 0.0}
