"""ClassToken and TokenAt: a learned token before the others, and one token taken out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.description import argument
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["ClassToken", "TokenAt"]


@dataclass(frozen=True)
class ClassToken(Layer):
    """y = (token, x[0], x[1], …): (S, D) → (S + 1, D), the token learned.

    Attention lets it gather what the others know; `TokenAt(0)` reads it at the end.
    """

    prefix: ClassVar[str] = "class_token"
    example: ClassVar[tuple[str, ...]] = (
        "(49, 16)",
        "ClassToken()",
        "MultiHeadAttention(num_heads=2)",
        "TokenAt(0)",
        "Output(10)",
    )

    range: float = argument(0.02, doc="the token starts uniform within ±range", at_least=0.0)

    def lower(self, builder: Builder, x: Value) -> Value:
        builder.expect_sequence(x)
        return builder.concatenate(builder.learned(x, 1, self.range), x)


@dataclass(frozen=True)
class TokenAt(Layer):
    """y = x[index]: (S, D) → (D,). `TokenAt(0)` reads a class token, `TokenAt(-1)` the last."""

    prefix: ClassVar[str] = "token"
    example: ClassVar[tuple[str, ...]] = (
        "(49, 16)",
        "MultiHeadAttention(num_heads=2, causal=true)",
        "TokenAt(-1)",
        "Output(10)",
    )

    index: int = argument(0, doc="which token; from the end where it is negative")

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.pick(x, self.index)
