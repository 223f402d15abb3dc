"""Learning rates that change as training goes on.

A schedule is a function of the steps already done, the first step being 0. Where it has to know
when training ends and is not told, that is the end of the `fit` that is running.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from undivided.description import Description, argument

__all__ = [
    "Constant",
    "CosineDecay",
    "ExponentialDecay",
    "OneCycle",
    "Schedule",
    "StepDecay",
    "Warmup",
    "learning_rate_at",
]


@dataclass(frozen=True)
class Schedule(Description, family=True):
    """A learning rate as a function of the number of steps already done."""

    def at(self, step: int, end: int | None = None) -> float:
        """The rate of a step. `end` is the number of steps after which training ends."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Schedule):
    """rate(step) = learning_rate."""

    learning_rate: float = argument(doc="the rate", at_least=0.0)

    def at(self, step: int, end: int | None = None) -> float:
        return self.learning_rate


@dataclass(frozen=True)
class StepDecay(Schedule):
    """rate(step) = initial · decay_rate^⌊step / decay_steps⌋: down by a factor now and then."""

    initial_learning_rate: float = argument(doc="the rate of the first step", above=0.0)
    decay_steps: int = argument(doc="steps until the rate goes down", at_least=1)
    decay_rate: float = argument(0.1, doc="what the rate is multiplied by", above=0.0)

    def at(self, step: int, end: int | None = None) -> float:
        return self.initial_learning_rate * self.decay_rate ** (step // self.decay_steps)


@dataclass(frozen=True)
class ExponentialDecay(Schedule):
    """rate(step) = initial · decay_rate^(step / decay_steps)."""

    initial_learning_rate: float = argument(doc="the rate of the first step", above=0.0)
    decay_steps: int = argument(doc="steps until decay_rate has been applied once", at_least=1)
    decay_rate: float = argument(doc="what the rate is multiplied by", above=0.0)

    def at(self, step: int, end: int | None = None) -> float:
        return self.initial_learning_rate * self.decay_rate ** (step / self.decay_steps)


@dataclass(frozen=True)
class CosineDecay(Schedule):
    """Half a cosine from the initial rate down to alpha times it, which then stays.

    rate(step) = initial · (alpha + (1 − alpha)·(1 + cos(π·step/decay_steps))/2)
    """

    initial_learning_rate: float = argument(doc="the rate of the first step", above=0.0)
    decay_steps: int | None = argument(None, doc="steps; else all of the training", at_least=1)
    alpha: float = argument(0.0, doc="the share of the rate that is left", at_least=0.0, at_most=1)

    def at(self, step: int, end: int | None = None) -> float:
        share = min(step / _steps(self.decay_steps, end, self), 1.0)
        left = self.alpha + (1 - self.alpha) * (1 + math.cos(math.pi * share)) / 2
        return self.initial_learning_rate * left


@dataclass(frozen=True)
class OneCycle(Schedule):
    """Up from max/div_factor in the first part of the steps, then down to almost nothing.

    Both ways are half a cosine; the last step has max/div_factor/final_div_factor.
    """

    max_learning_rate: float = argument(doc="the highest rate", above=0.0)
    total_steps: int | None = argument(None, doc="steps; else all of the training", at_least=1)
    warmup: float = argument(0.3, doc="the share of the steps that go up", at_least=0.0, at_most=1)
    div_factor: float = argument(25.0, doc="max / the rate of the first step", at_least=1.0)
    final_div_factor: float = argument(1e4, doc="the first rate / the last", at_least=1.0)

    def at(self, step: int, end: int | None = None) -> float:
        last = _steps(self.total_steps, end, self) - 1
        top = self.warmup * (last + 1) - 1
        first = self.max_learning_rate / self.div_factor
        if step <= top:
            return _cosine(first, self.max_learning_rate, step / top if top > 0 else 1.0)
        share = min((step - top) / (last - top), 1.0) if last > top else 1.0
        return _cosine(self.max_learning_rate, first / self.final_div_factor, share)


@dataclass(frozen=True)
class Warmup(Schedule):
    """Linearly up to what a schedule begins with, and then that schedule from its beginning.

    rate(step) = (start + (1 − start)·step/steps) · schedule(0) at first, then
    schedule(step − steps).
    """

    schedule: float | Schedule = argument(doc="the rate, or the schedule, after it", at_least=0.0)
    steps: int = argument(doc="how many steps it lasts", at_least=1)
    start: float = argument(0.0, doc="the share of the rate to start from", at_least=0.0, at_most=1)

    def at(self, step: int, end: int | None = None) -> float:
        after = None if end is None else max(end - self.steps, 1)
        if step >= self.steps:
            return learning_rate_at(self.schedule, step - self.steps, after)
        share = self.start + (1 - self.start) * step / self.steps
        return share * learning_rate_at(self.schedule, 0, after)


def learning_rate_at(rate: float | Schedule, step: int, end: int | None = None) -> float:
    """The learning rate of a step, the first being 0."""
    return rate.at(step, end) if isinstance(rate, Schedule) else rate


def _cosine(start: float, stop: float, share: float) -> float:
    return stop + (start - stop) / 2 * (1 + math.cos(math.pi * share))


def _steps(given: int | None, end: int | None, schedule: Schedule) -> int:
    if given is not None:
        return given
    if end is None:
        from undivided.errors import ArgumentError

        raise ArgumentError(
            f"{schedule.keyword} has to know how many steps there will be, and no training is "
            "going on. Say how many it is for."
        )
    return end
