"""Optimizers: how a gradient changes a parameter. This page is their definition.

g is the gradient of the batch's mean loss, t the number of the step (the first is 1), η the
learning rate. `update` changes `parameter` and `slots` in place; the native engine computes the
same in float32.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar

import numpy as np

from undivided.description import Description, argument
from undivided.errors import ArgumentError
from undivided.plan.plan import Parameter
from undivided.training.schedules import Schedule

__all__ = ["SGD", "Adam", "AdamW", "Group", "Optimizer"]


@dataclass(frozen=True)
class Group(Description, family=True, keyword="Group"):
    """Parameters whose names match a pattern, and how they differ from the others in training."""

    pattern: str = argument(doc="names, with * for anything: 'embedding_*', '*.query.*'")
    learning_rate: float = argument(1.0, doc="what the rate is multiplied by", at_least=0.0)
    decays: bool | None = argument(None, doc="whether weight decay applies; else as usual")
    frozen: bool = argument(False, doc="whether they stay as they are")

    def matches(self, name: str) -> bool:
        return fnmatchcase(name, self.pattern)


@dataclass(frozen=True)
class Optimizer(Description, family=True):
    """An update rule, and the names of the arrays that it keeps for each parameter.

    Before the rule, gradients may be clipped: every number to ±clip_value, then, where the root
    of the sum of all squares is above clip_norm, all of them by the same factor. Of the groups
    that match a parameter's name the first counts.
    """

    slots: ClassVar[tuple[str, ...]] = ()

    learning_rate: float | Schedule = argument(0.001, doc="η, or a schedule", at_least=0.0)
    clip_norm: float | None = argument(
        None, doc="the largest norm of all gradients together", above=0.0, kw_only=True
    )
    clip_value: float | None = argument(
        None, doc="the largest size of a number in a gradient", above=0.0, kw_only=True
    )
    groups: tuple[Group, ...] = argument((), doc="parameters that are treated apart", kw_only=True)

    def kept(self) -> tuple[str, ...]:
        """The slots that this optimizer, with these arguments, really keeps."""
        return self.slots

    def grouped(self, parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
        """Parameters as their groups want them: their share of the rate, and their decay."""
        for group in self.groups:
            if not any(group.matches(name) for name in parameters):
                known = ", ".join(list(parameters)[:6]) + (", …" if len(parameters) > 6 else "")
                raise ArgumentError(
                    f"The pattern {group.pattern!r} of a Group of {self.keyword} matches no "
                    f"parameter. There are: {known or 'none'}.",
                    argument="groups",
                )
        return {name: self._grouped(parameter) for name, parameter in parameters.items()}

    def _grouped(self, parameter: Parameter) -> Parameter:
        group = next((g for g in self.groups if g.matches(parameter.name)), None)
        if group is None:
            return parameter
        decays = parameter.decays if group.decays is None else group.decays
        rate = 0.0 if group.frozen else group.learning_rate
        return dataclasses.replace(parameter, decays=decays, rate=rate)

    def step(
        self,
        parameters: Mapping[str, Parameter],
        values: Mapping[str, np.ndarray],
        gradients: Mapping[str, np.ndarray],
        slots: Mapping[str, Mapping[str, np.ndarray]],
        step: int,
        learning_rate: float,
    ) -> None:
        """One step of all parameters that have a gradient and are not frozen."""
        moving = {
            name: gradient for name, gradient in gradients.items() if parameters[name].rate > 0
        }
        for name, gradient in self.clipped(moving).items():
            parameter = parameters[name]
            own = {slot: arrays[name] for slot, arrays in slots.items()}
            rate = learning_rate * parameter.rate
            self.update(values[name], gradient, own, step, rate, parameter.decays)

    def clipped(self, gradients: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The gradients that the rule is given: by value first, then all together by norm."""
        if self.clip_value is not None:
            limit = self.clip_value
            gradients = {name: g.clip(-limit, limit) for name, g in gradients.items()}
        if self.clip_norm is not None:
            squares = sum(float((g.astype(np.float64) ** 2).sum()) for g in gradients.values())
            norm = math.sqrt(squares)
            if norm > self.clip_norm:
                factor = self.clip_norm / norm
                gradients = {name: g * g.dtype.type(factor) for name, g in gradients.items()}
        return gradients

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
class SGD(Optimizer, also=("sgd",)):
    """p ← p − η·g; with momentum μ: v ← μ·v + g, p ← p − η·v; Nesterov's: p ← p − η·(g + μ·v)."""

    slots: ClassVar[tuple[str, ...]] = ("velocity",)

    learning_rate: float | Schedule = argument(0.01, doc="η, or a schedule", at_least=0.0)
    momentum: float = argument(0.0, doc="μ", at_least=0.0, below=1.0)
    nesterov: bool = argument(False, doc="whether momentum looks one step ahead")

    def check(self) -> None:
        if self.nesterov and not self.momentum:
            raise ArgumentError(
                "The 'nesterov' of SGD needs a momentum. Say momentum=0.9.", argument="nesterov"
            )

    def kept(self) -> tuple[str, ...]:
        return self.slots if self.momentum else ()

    def update(self, parameter, gradient, slots, step, learning_rate, decays):
        if self.momentum:
            velocity = slots["velocity"]
            velocity *= self.momentum
            velocity += gradient
            gradient = gradient + self.momentum * velocity if self.nesterov else velocity
        parameter -= learning_rate * gradient


@dataclass(frozen=True)
class Adam(Optimizer, also=("adam",)):
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
        correction_1, correction_2 = self.corrections(step)
        parameter -= learning_rate * (mean * correction_1) / self._root(square * correction_2)

    def corrections(self, step: int) -> tuple[float, float]:
        """What m and v are multiplied by, since both begin at 0: m̂ and v̂ come of it."""
        return 1 / (1 - self.beta_1**step), 1 / (1 - self.beta_2**step)

    def _root(self, square_hat: np.ndarray) -> np.ndarray:
        return np.sqrt(square_hat) + self.epsilon


@dataclass(frozen=True)
class AdamW(Adam, also=("adamw",)):
    """Adam with decoupled decay: p ← p·(1 − η·λ) first, where the parameter decays.

    Weights of linear layers decay; biases, normalisations and positions do not.
    `epsilon_inside_root` divides by √(v̂ + ε) in place of √v̂ + ε. `epsilon_uncorrected` adds ε to
    √v before the correction: p ← p − η·√(1−β₂ᵗ)/(1−β₁ᵗ)·m/(√v + ε).
    """

    weight_decay: float = argument(0.01, doc="λ", at_least=0.0)
    epsilon_inside_root: bool = argument(False, doc="whether ε is added below the root")
    epsilon_uncorrected: bool = argument(False, doc="whether ε is added to √v, not √v̂")

    def check(self) -> None:
        if self.epsilon_inside_root and self.epsilon_uncorrected:
            raise ArgumentError(
                "AdamW adds ε in one place: epsilon_inside_root and epsilon_uncorrected cannot "
                "both be true. Leave one out.",
                argument="epsilon_uncorrected",
            )

    def update(self, parameter, gradient, slots, step, learning_rate, decays):
        if decays:
            parameter *= 1 - learning_rate * self.weight_decay
        super().update(parameter, gradient, slots, step, learning_rate, decays)

    def corrections(self, step: int) -> tuple[float, float]:
        if self.epsilon_uncorrected:
            return math.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step), 1.0
        return super().corrections(step)

    def _root(self, square_hat: np.ndarray) -> np.ndarray:
        if self.epsilon_inside_root:
            return np.sqrt(square_hat + self.epsilon)
        return super()._root(square_hat)
