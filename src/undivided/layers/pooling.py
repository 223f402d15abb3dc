"""GlobalAveragePooling1D: a sequence becomes one vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["GlobalAveragePooling1D"]


@dataclass(frozen=True)
class GlobalAveragePooling1D(Layer):
    """y = the mean of a sample's tokens: (S, D) → (D,)."""

    prefix: ClassVar[str] = "pooling"

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.pool(x)
