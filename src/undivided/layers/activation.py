"""Activation: a function of each number alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from undivided.description import argument
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Activation", "Function"]

Function = Literal["relu", "gelu"]


@dataclass(frozen=True)
class Activation(Layer):
    """y = f(x). relu(x) = max(x, 0); gelu(x) = x·Φ(x), with the exact normal distribution Φ."""

    prefix: ClassVar[str] = "activation"

    function: Function = argument(doc="f")

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.activation(x, self.function)
