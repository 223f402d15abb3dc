"""Activation: a function of each number alone, or softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from undivided.description import argument
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Activation", "Ending", "Function", "ended"]

Function = Literal["relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "leaky_relu"]
"""Functions of each number alone."""

Ending = Literal[Function, "linear"]
"""What a linear layer may end with; "linear" says that it ends with nothing."""


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
        return ended(builder, x, self.function)


def ended(builder: Builder, x: Value, function: str | None) -> Value:
    """f(x), which is x itself without a function."""
    if function in (None, "linear"):
        return x
    return builder.softmax(x) if function == "softmax" else builder.activation(x, function)
