"""Flatten: all axes become one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Flatten"]


@dataclass(frozen=True)
class Flatten(Layer):
    """(a, b, …) → (a·b·…,), in row order."""

    prefix: ClassVar[str] = "flatten"
    example: ClassVar[tuple[str, ...]] = ("(8, 8)", "Flatten()", "Output(10)")

    def lower(self, builder: Builder, x: Value) -> Value:
        size = math.prod(n for n in x.shape if isinstance(n, int))
        return builder.reshape(x, (size,))
