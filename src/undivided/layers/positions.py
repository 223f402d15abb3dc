"""Positions: attention alone does not know the order of its tokens; these layers tell it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from undivided.description import argument
from undivided.layers.base import Layer
from undivided.plan.plan import Initial

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["LearnedPositions", "SinusoidalPositions"]


@dataclass(frozen=True)
class LearnedPositions(Layer):
    """y[t] = x[t] + table[t], the table trained like any parameter.

    It starts uniform within ±range, zero, Xavier (±√(6/(tokens+features))), or as the
    sinusoidal table sin(t/10000^(2⌊d/2⌋/D)) for even d and cos for odd.
    """

    prefix: ClassVar[str] = "positions"
    example: ClassVar[tuple[str, ...]] = (
        "(49, 16)",
        "LearnedPositions()",
        "MultiHeadAttention(num_heads=2)",
        "GlobalAveragePooling1D()",
        "Output(10)",
    )

    start: Literal["uniform", "zero", "xavier", "sinusoidal"] = argument(
        "uniform", doc="the values before training"
    )
    range: float = argument(0.1, doc="the r of a uniform start within ±r", at_least=0.0)

    def lower(self, builder: Builder, x: Value) -> Value:
        initial = {
            "uniform": Initial("uniform", self.range),
            "zero": Initial("constant", 0.0),
            "xavier": Initial("xavier"),
            "sinusoidal": Initial("sinusoidal"),
        }[self.start]
        return builder.position(x, initial)


@dataclass(frozen=True)
class SinusoidalPositions(Layer):
    """y[t, d] = x[t, d] + sin or cos(t/10000^(2⌊d/2⌋/D)): fixed, for sequences of any length."""

    prefix: ClassVar[str] = "positions"
    example: ClassVar[tuple[str, ...]] = (
        "(None, 16)",
        "SinusoidalPositions()",
        "MultiHeadAttention(num_heads=2)",
        "GlobalAveragePooling1D()",
        "Output(10)",
    )

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.position(x, None)
