"""Rescaling: numbers brought into the range that a network likes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.description import argument
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Rescaling"]


@dataclass(frozen=True)
class Rescaling(Layer):
    """y = x · scale + offset. Bytes become numbers between 0 and 1 with `Rescaling(1/255)`."""

    prefix: ClassVar[str] = "rescaling"
    example: ClassVar[tuple[str, ...]] = ("(28, 28)", "Rescaling(1/255)", "Flatten()", "Output(10)")

    scale: float = argument(doc="what every number is multiplied by")
    offset: float = argument(0.0, doc="what is added afterwards")

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.rescale(x, self.scale, self.offset)
