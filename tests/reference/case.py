"""One row of the conformance table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

from undivided.engines.reference import LOSSES, PRIMITIVES
from undivided.gradient_check import GradientReport, check_gradients

__all__ = ["MODULES", "Case", "arrays"]

MODULES: dict[str, ModuleType] = {**PRIMITIVES, **LOSSES}


@dataclass(frozen=True)
class Case:
    """A primitive with an option, given arrays of certain shapes."""

    primitive: str
    option: str
    inputs: tuple[np.ndarray, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    step: float = 1e-5
    """Of the central differences; smaller where the function bends sharply."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes a check distinct: the numbers in the arrays do not."""
        return (self.primitive, self.option, tuple(x.shape for x in self.inputs))

    def __str__(self) -> str:
        shapes = " ".join("×".join(map(str, x.shape)) for x in self.inputs)
        return f"{self.primitive}: {self.option}: {shapes}"

    def forward(self, *inputs: np.ndarray, module: ModuleType | None = None) -> np.ndarray:
        return (module or MODULES[self.primitive]).forward(*inputs, **self.attributes)

    def backward(
        self, dy: np.ndarray, *inputs: np.ndarray, module: ModuleType | None = None
    ) -> Any:
        return (module or MODULES[self.primitive]).backward(dy, *inputs, **self.attributes)

    def check(self, module: ModuleType | None = None) -> GradientReport:
        """The full Jacobian of `module`'s backward against the primitive's own forward."""

        def backward(dy: np.ndarray, *inputs: np.ndarray) -> Any:
            return self.backward(dy, *inputs, module=module)

        with np.errstate(divide="raise", over="raise", invalid="raise"):
            return check_gradients(self.forward, backward, *self.inputs, step=self.step)


def arrays(*shapes: tuple[int, ...], seed: int = 0, scale: float = 1.0) -> tuple[np.ndarray, ...]:
    """Normal numbers in float64, none closer to 0 (the kink of relu) than 0.05·scale."""
    random = np.random.default_rng([seed, *(n for shape in shapes for n in shape)])
    drawn = []
    for shape in shapes:
        x = random.normal(size=shape)
        drawn.append(np.asarray(scale * (x + np.where(x < 0, -0.05, 0.05))))
    return tuple(drawn)
