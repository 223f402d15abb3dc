"""GatedFeedForward: a feed-forward block whose inside is gated (SwiGLU, GEGLU)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.description import argument
from undivided.layers.activation import Function
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["GatedFeedForward"]


@dataclass(frozen=True)
class GatedFeedForward(Layer):
    """y = (f(x·Wg) ∘ (x·Wu))·Wd: one linear layer opens and closes the other.

    With f = silu this is SwiGLU, with gelu GEGLU. What comes out is as wide as what goes in.
    """

    prefix: ClassVar[str] = "feed_forward"
    example: ClassVar[tuple[str, ...]] = (
        "(49, 16)",
        "Residual { RMSNormalization() GatedFeedForward(40) }",
        "GlobalAveragePooling1D()",
        "Output(10)",
    )

    units: int = argument(doc="the width inside", at_least=1)
    activation: Function = argument("silu", doc="f: silu for SwiGLU, gelu for GEGLU")
    bias: bool = argument(False, doc="whether the linear layers add biases")

    def lower(self, builder: Builder, x: Value) -> Value:
        gate = builder.linear(x, self.units, bias=self.bias, role="gate")
        up = builder.linear(x, self.units, bias=self.bias, role="up")
        inside = builder.multiply(builder.activation(gate, self.activation), up)
        return builder.linear(inside, x.width, bias=self.bias, role="down")
