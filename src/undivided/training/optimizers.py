"""Optimizers: how a gradient changes a parameter. This page is their definition.

g is the gradient of the batch's mean loss, t the number of the step (the first is 1), η the
learning rate. `update` changes `parameter` and `slots` in place; the native engine computes the
same in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from undivided.description import Description, argument
from undivided.training.schedules import Schedule

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]


@dataclass(frozen=True)
class Optimizer(Description, family=True):
    """An update rule, and the names of the arrays that it keeps for each parameter."""

    slots: ClassVar[tuple[str, ...]] = ()

    learning_rate: float | Schedule = argument(0.001, doc="η, or a schedule", at_least=0.0)

    def kept(self) -> tuple[str, ...]:
        """The slots that this optimizer, with these arguments, really keeps."""
        return self.slots

    def update(
        self,
        parameter: np.ndarray,
        gradient: np.ndarray,
        slots: dict[str, np.ndarray],
        step: int,
        learning_rate: float,
        decays: bool,
    ) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class SGD(Optimizer):
    """p ← p − η·g; with momentum μ: v ← μ·v + g, p ← p − η·v."""

    slots: ClassVar[tuple[str, ...]] = ("velocity",)

    learning_rate: float | Schedule = argument(0.01, doc="η, or a schedule", at_least=0.0)
    momentum: float = argument(0.0, doc="μ", at_least=0.0, below=1.0)

    def kept(self) -> tuple[str, ...]:
        return self.slots if self.momentum else ()

    def update(self, parameter, gradient, slots, step, learning_rate, decays):
        if self.momentum:
            velocity = slots["velocity"]
            velocity *= self.momentum
            velocity += gradient
            gradient = velocity
        parameter -= learning_rate * gradient


@dataclass(frozen=True)
class Adam(Optimizer):
    """m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², p ← p − η·m̂/(√v̂ + ε).

    m̂ = m/(1−β₁ᵗ) and v̂ = v/(1−β₂ᵗ).
    """

    slots: ClassVar[tuple[str, ...]] = ("mean", "square")

    beta_1: float = argument(0.9, doc="β₁", at_least=0.0, below=1.0)
    beta_2: float = argument(0.999, doc="β₂", at_least=0.0, below=1.0)
    epsilon: float = argument(1e-8, doc="ε", above=0.0)

    def update(self, parameter, gradient, slots, step, learning_rate, decays):
        mean, square = slots["mean"], slots["square"]
        mean += (1 - self.beta_1) * (gradient - mean)
        square += (1 - self.beta_2) * (gradient * gradient - square)
        mean_hat = mean / (1 - self.beta_1**step)
        square_hat = square / (1 - self.beta_2**step)
        parameter -= learning_rate * mean_hat / self._root(square_hat)

    def _root(self, square_hat: np.ndarray) -> np.ndarray:
        return np.sqrt(square_hat) + self.epsilon


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled decay: p ← p·(1 − η·λ) first, where the parameter decays.

    Weights of linear layers decay; biases, normalisations and positions do not.
    `epsilon_inside_root` divides by √(v̂ + ε) in place of √v̂ + ε.
    """

    weight_decay: float = argument(0.01, doc="λ", at_least=0.0)
    epsilon_inside_root: bool = argument(False, doc="whether ε is added below the root")

    def update(self, parameter, gradient, slots, step, learning_rate, decays):
        if decays:
            parameter *= 1 - learning_rate * self.weight_decay
        super().update(parameter, gradient, slots, step, learning_rate, decays)

    def _root(self, square_hat: np.ndarray) -> np.ndarray:
        if self.epsilon_inside_root:
            return np.sqrt(square_hat + self.epsilon)
        return super()._root(square_hat)
