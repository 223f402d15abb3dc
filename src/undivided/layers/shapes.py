"""Reshape and Permute: the same numbers under another shape, or with the axes in another order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.description import argument
from undivided.errors import ArgumentError
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Permute", "Reshape"]


@dataclass(frozen=True)
class Reshape(Layer):
    """The same numbers in the same order under another shape; one extent may be −1, and follows."""

    prefix: ClassVar[str] = "reshape"
    example: ClassVar[tuple[str, ...]] = (
        "(784)",
        "Reshape(target_shape=(28, 28))",
        "Patches(4)",
        "GlobalAveragePooling1D()",
        "Output(10)",
    )

    target_shape: tuple[int, ...] = argument(doc="the shape of what comes out", at_least=-1)

    def check(self) -> None:
        wrong = not self.target_shape or 0 in self.target_shape
        if wrong or self.target_shape.count(-1) > 1:
            raise ArgumentError(
                "The 'target_shape' of Reshape must be whole numbers ≥ 1, of which one may be -1. "
                f"Got {self.target_shape}.",
                argument="target_shape",
            )

    def lower(self, builder: Builder, x: Value) -> Value:
        size = math.prod(n for n in x.shape if isinstance(n, int))
        known = math.prod(n for n in self.target_shape if n > 0)
        shape = tuple(size // known if n < 0 else n for n in self.target_shape)
        if math.prod(shape) != size:
            divided = " or a multiple" if -1 in self.target_shape else ""
            raise builder.refuse(x, f"{known:,} numbers{divided}, for {self.target_shape}")
        return builder.reshape(x, shape)


@dataclass(frozen=True)
class Permute(Layer):
    """The axes in another order: `Permute((2, 1))` turns (S, D) into (D, S)."""

    prefix: ClassVar[str] = "permute"
    example: ClassVar[tuple[str, ...]] = (
        "(49, 16)",
        "Permute((2, 1))",
        "Dense(32)",
        "GlobalAveragePooling1D()",
        "Output(10)",
    )

    dims: tuple[int, ...] = argument(
        doc="which axis each axis of the result was, counted from 1", at_least=1
    )

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.permute(x, tuple(n - 1 for n in self.dims))
