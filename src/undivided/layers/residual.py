"""Residual: what goes in is added to what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.description import argument
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Residual"]


@dataclass(frozen=True)
class Residual(Layer):
    """y = x + f(x), where f is the layers of the block: `Residual { LayerNormalization() … }`."""

    prefix: ClassVar[str] = "residual"
    example: ClassVar[tuple[str, ...]] = (
        "(49, 16)",
        "Residual { LayerNormalization() MultiHeadAttention(num_heads=2) }",
        "GlobalAveragePooling1D()",
        "Output(10)",
    )

    layers: tuple[Layer, ...] = argument(doc="the layers of f, in order")

    def lower(self, builder: Builder, x: Value) -> Value:
        y = x
        for layer in self.layers:
            y = builder.lower(layer, y)
        return builder.add(x, y)
