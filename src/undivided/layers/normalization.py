"""LayerNormalization and RMSNormalization: every token brought to one size, then scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.description import argument
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["LayerNormalization", "RMSNormalization"]


@dataclass(frozen=True)
class LayerNormalization(Layer):
    """y = (x − mean(x)) / √(var(x) + ε) · gain + shift, over the last axis of each token."""

    prefix: ClassVar[str] = "normalization"
    example: ClassVar[tuple[str, ...]] = (
        "(49, 16)",
        "LayerNormalization()",
        "GlobalAveragePooling1D()",
        "Output(10)",
    )

    epsilon: float = argument(1e-5, doc="ε, which keeps the root away from zero", above=0.0)

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.normalize(x, self.epsilon)


@dataclass(frozen=True)
class RMSNormalization(Layer):
    """y = x / √(mean(x²) + ε) · gain, over the last axis of each token: neither mean nor shift."""

    prefix: ClassVar[str] = "normalization"
    example: ClassVar[tuple[str, ...]] = (
        "(49, 16)",
        "RMSNormalization()",
        "GlobalAveragePooling1D()",
        "Output(10)",
    )

    epsilon: float = argument(1e-5, doc="ε, which keeps the root away from zero", above=0.0)

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.rms_normalize(x, self.epsilon)
