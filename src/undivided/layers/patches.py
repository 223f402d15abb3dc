"""Patches: a picture becomes a sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.description import argument
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Patches"]


@dataclass(frozen=True)
class Patches(Layer):
    """Cut a picture into patches that touch and do not overlap, each a token.

    (H, W) or (H, W, C) → (H/h · W/w, h·w·C). Token t = py·(W/w) + px; inside a patch pixels
    stay in row order, channels last.
    """

    prefix: ClassVar[str] = "patches"
    example: ClassVar[tuple[str, ...]] = (
        "(28, 28)",
        "Patches(4)",
        "Dense(16)",
        "GlobalAveragePooling1D()",
        "Output(10)",
    )

    size: int | tuple[int, int] = argument(
        doc="height and width of a patch; one number for a square", at_least=1
    )

    def lower(self, builder: Builder, x: Value) -> Value:
        size = (self.size, self.size) if isinstance(self.size, int) else self.size
        return builder.unfold(x, size)
