"""Activation: a function of each number alone, or softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from undivided.description import argument
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Activation", "Function"]

Function = Literal["relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "leaky_relu"]
"""Functions of each number alone, which any linear layer may end with."""


@dataclass(frozen=True)
class Activation(Layer):
    """y = f(x), for each number alone; softmax along the last axis.

    relu        max(x, 0)
    leaky_relu  x above 0, else x/100
    gelu        x·Φ(x), with the exact normal distribution Φ
    gelu_tanh   ½x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), which is nearly gelu
    silu        x·σ(x)
    sigmoid     σ(x) = 1/(1 + e^(−x))
    tanh
    softmax     e^x / Σ e^x
    """

    prefix: ClassVar[str] = "activation"
    example: ClassVar[tuple[str, ...]] = ("(16)", "Dense(32)", 'Activation("silu")', "Output(10)")

    function: Literal[Function, "softmax"] = argument(doc="f")

    def lower(self, builder: Builder, x: Value) -> Value:
        if self.function == "softmax":
            return builder.softmax(x)
        return builder.activation(x, self.function)
