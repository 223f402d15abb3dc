"""Dropout: in training, numbers are left out by chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.description import argument
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Dropout"]


@dataclass(frozen=True)
class Dropout(Layer):
    """y = x/(1 − rate) or 0, by the fall of a coin; outside training y = x.

    Each number is left out with the chance `rate`. The coins depend on the seed, the step, the
    place of the sample in its batch and the place of the number in it, and on nothing else.
    """

    prefix: ClassVar[str] = "dropout"
    example: ClassVar[tuple[str, ...]] = (
        "(16)",
        'Dense(32, activation="relu")',
        "Dropout(0.1)",
        "Output(10)",
    )

    rate: float = argument(doc="the share that is left out", at_least=0.0, below=1.0)

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.dropout(x, self.rate)
