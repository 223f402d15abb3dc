"""The training loop: Python around native chunks of steps.

An engine takes many steps in one call, because a step may last 100 µs and an interpreter inside
it would be felt. The loop owns what a person cares about between the calls: progress, Ctrl-C,
the stop at a loss that is not finite, the test after an epoch. How many steps go into a call is
measured, and nothing that comes out depends on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from undivided.engines.engine import Engine
from undivided.errors import NonFiniteError
from undivided.samples import Samples, taken
from undivided.targets import Targets, as_targets
from undivided.training.evaluation import evaluate
from undivided.training.history import Epoch, TrainingState
from undivided.training.metrics import Metric
from undivided.training.progress import Interruption, Progress, StopTraining
from undivided.training.schedules import Schedule, learning_rate_at
from undivided.training.stopping import EarlyStopping, Patience

__all__ = ["train"]

# N samples x [N, *input.shape] and their targets y; a step takes `batch_size` of them.

Labelled = tuple[Samples, Any]

Diagnosis = Callable[[Samples, Targets], str | None]
"""Says where in a batch (x, y) the first number that is not finite appears."""

CHUNK_SECONDS = 0.05
"""How long one call of the engine should last: the time until Ctrl-C or a bar answers."""

_FASTEST_GROWTH = 16
"""A chunk is at most so many times the one before: one measurement may be an accident."""


def train(
    engine: Engine,
    state: TrainingState,
    samples: Labelled,
    test: Labelled | None,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float | Schedule,
    metrics: Sequence[Metric] | None = None,
    augment: Callable[[int], Samples] | None = None,
    stopping: EarlyStopping | None = None,
    watchers: Iterable[Progress] = (),
    diagnose: Diagnosis | None = None,
) -> list[Epoch]:
    """Go over all samples `epochs` times, from where `state` stands; one entry an epoch.

    `augment` gives the samples as an epoch of that number is to see them. `stopping` may end it
    sooner, with the parameters of the best epoch.
    """
    watchers = tuple(watchers)
    history: list[Epoch] = []
    with Interruption() as interruption:
        state.end = state.steps + epochs * math.ceil(len(samples[0]) / batch_size)
        run = _Run(
            engine, state, samples, batch_size, learning_rate, watchers, diagnose, interruption
        )
        patience = None if stopping is None else Patience(stopping, engine)
        for _ in range(epochs):
            loss, seconds = run.epoch(augment)
            state.epochs += 1
            entry = Epoch(state.epochs, loss, seconds)
            if test is not None:
                found = evaluate(engine, *test, metrics, interruption.check)
                entry = replace(
                    entry,
                    test_accuracy=found.accuracy,
                    test_loss=found.loss,
                    metrics=found.metrics,
                )
            state.history.append(entry)
            history.append(entry)
            try:
                for watcher in watchers:
                    watcher.finished(entry)
            except StopTraining:
                break
            interruption.check()
            if patience is not None and patience.is_over(entry):
                break
        if patience is not None:
            patience.restore()
    return history


class _Run:
    """One `fit`: what stays the same from epoch to epoch, and the measured size of a chunk."""

    def __init__(
        self,
        engine: Engine,
        state: TrainingState,
        samples: Labelled,
        batch_size: int,
        learning_rate: float | Schedule,
        watchers: tuple[Progress, ...],
        diagnose: Diagnosis | None,
        interruption: Interruption,
    ) -> None:
        self.engine = engine
        self.state = state
        self.x = samples[0]
        self.y = as_targets(engine.plan, samples[1], len(self.x))
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.watchers = watchers
        self.diagnose = diagnose
        self.interruption = interruption
        self.steps_in_chunk = 1

    def epoch(self, augment: Callable[[int], Samples] | None) -> tuple[float, float]:
        """Shuffle, then take every sample once; the mean loss and the seconds it took."""
        started = perf_counter()
        if augment is not None:
            self.x = augment(self.state.epochs)
        order = self.state.order_of(len(self.x))
        self.state.generator.shuffle(order)
        seconds = perf_counter() - started

        count, done, seen, weight = len(order), 0, 0.0, 0.0
        losses: list[np.ndarray] = []
        while done < count:
            self.interruption.check()
            left = math.ceil((count - done) / self.batch_size)
            steps = min(self.steps_in_chunk, left)
            chunk = order[done : done + steps * self.batch_size]
            elapsed = self._chunk(chunk, steps, losses)
            seconds += elapsed
            done += len(chunk)
            seen += float(losses[-1].sum())
            self._pace(steps, elapsed)
            weight += self.y.weight_of(chunk)
            for watcher in self.watchers:
                watcher.advanced(self.state.epochs + 1, done, count, seen / (weight or 1.0))
        # Summed at the end and not chunk by chunk, or the last digit would tell the chunks.
        return float(np.concatenate(losses).sum() / self.y.weight_of()), seconds

    def _chunk(self, chunk: np.ndarray, steps: int, losses: list[np.ndarray]) -> float:
        """Take the steps; the seconds of the engine's call alone."""
        state = self.state
        rates = self._rates(steps)
        started = perf_counter()
        result = self.engine.train(
            self.x, self.y, chunk, self.batch_size, state.steps, rates, state.optimizer_steps
        )
        elapsed = perf_counter() - started
        taken = len(result.losses)
        state.steps += taken
        state.optimizer_steps += taken
        losses.append(np.array(result.losses, np.float64))
        if result.failed:
            batch = chunk[taken * self.batch_size : (taken + 1) * self.batch_size]
            raise self._not_finite(batch, sum(map(len, losses)) + 1)
        return elapsed

    def _rates(self, steps: int) -> np.ndarray:
        if not isinstance(self.learning_rate, Schedule):
            return np.full(steps, self.learning_rate)
        schedule, first, end = self.learning_rate, self.state.steps, self.state.end
        return np.array([learning_rate_at(schedule, first + i, end) for i in range(steps)])

    def _pace(self, steps: int, elapsed: float) -> None:
        wanted = int(steps * CHUNK_SECONDS / max(elapsed, 1e-9))
        self.steps_in_chunk = max(1, min(wanted, steps * _FASTEST_GROWTH))

    def _not_finite(self, batch: np.ndarray, step: int) -> NonFiniteError:
        found = None
        if self.diagnose is not None:
            found = self.diagnose(taken(self.x, batch), self.y.take(batch))
        where = f"\nThe first number that is not: {found}." if found else ""
        return NonFiniteError(
            f"The loss of epoch {self.state.epochs + 1}, step {step} is not finite.{where}\n"
            "Training stopped before the step changed anything: the weights are those of the "
            "step before it. A smaller learning rate is the usual cure."
        )
