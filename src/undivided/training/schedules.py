"""Learning rates that change as training goes on."""

from __future__ import annotations

from dataclasses import dataclass

from undivided.description import Description, argument

__all__ = ["ExponentialDecay", "Schedule", "learning_rate_at"]


@dataclass(frozen=True)
class Schedule(Description, family=True):
    """A learning rate as a function of the number of steps already done."""

    def at(self, step: int) -> float:
        raise NotImplementedError


@dataclass(frozen=True)
class ExponentialDecay(Schedule):
    """rate(step) = initial · decay_rate^(step / decay_steps)."""

    initial_learning_rate: float = argument(doc="the rate of the first step", above=0.0)
    decay_steps: int = argument(doc="steps until decay_rate has been applied once", at_least=1)
    decay_rate: float = argument(doc="what the rate is multiplied by", above=0.0)

    def at(self, step: int) -> float:
        return self.initial_learning_rate * self.decay_rate ** (step / self.decay_steps)


def learning_rate_at(rate: float | Schedule, step: int) -> float:
    """The learning rate of a step, the first being 0."""
    return rate.at(step) if isinstance(rate, Schedule) else rate
