"""Dense and Output: linear layers over the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from undivided.description import argument
from undivided.layers.activation import Function
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Dense", "Output"]


@dataclass(frozen=True)
class Dense(Layer):
    """y = f(x·W + b) over the last axis; on a sequence, for each token alike. W is [in, out]."""

    prefix: ClassVar[str] = "dense"

    units: int = argument(doc="the width of what comes out", at_least=1)
    activation: Function | None = argument(None, doc="f; without it the layer is linear")
    bias: bool = argument(True, doc="whether b is added")

    def lower(self, builder: Builder, x: Value) -> Value:
        y = builder.linear(x, self.units, bias=self.bias)
        return y if self.activation is None else builder.activation(y, self.activation)


@dataclass(frozen=True)
class Output(Layer):
    """The last linear layer. It gives scores (logits); the loss and `predict_proba` apply softmax.

    `activation="softmax"` says that the scores are those of classes; it costs nothing in
    training, where the loss is computed from the logits.
    """

    prefix: ClassVar[str] = "output"

    units: int = argument(doc="how many scores: one for each class", at_least=1)
    activation: Literal["softmax", "linear"] = argument("softmax", doc="what the scores mean")
    bias: bool = argument(True, doc="whether a bias is added")

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.linear(x, self.units, bias=self.bias)
