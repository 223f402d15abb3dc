"""Dense and Output: linear layers over the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from undivided.description import argument
from undivided.errors import ArgumentError
from undivided.layers.activation import Ending, ended
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Dense", "Output"]


@dataclass(frozen=True)
class Dense(Layer):
    """y = f(x·W + b) over the last axis; on a sequence, for each token alike. W is [in, out]."""

    prefix: ClassVar[str] = "dense"
    example: ClassVar[tuple[str, ...]] = ("(16)", 'Dense(32, activation="relu")', "Output(10)")

    units: int = argument(doc="the width of what comes out", at_least=1)
    activation: Literal[Ending, "softmax"] | None = argument(
        None, doc="f; without it the layer is linear"
    )
    bias: bool = argument(True, doc="whether b is added")
    tied_to: str | None = argument(
        None, doc="the Embedding whose table, over √width, is W; its ids are the units"
    )

    def lower(self, builder: Builder, x: Value) -> Value:
        return ended(builder, scores(builder, x, self), self.activation)


@dataclass(frozen=True)
class Output(Layer):
    """The last linear layer. It gives scores (logits); the loss and `predict_proba` apply softmax.

    `activation="softmax"` says that the scores are those of classes; it costs nothing in
    training, where the loss is computed from the logits. "sigmoid" is for outputs that each are a
    yes or no, and left to the binary cross-entropy likewise.
    """

    prefix: ClassVar[str] = "output"
    example: ClassVar[tuple[str, ...]] = ("(16)", "Output(10)")

    units: int = argument(doc="how many scores: one for each class", at_least=1)
    activation: Literal["softmax", "sigmoid", "linear"] = argument(
        "softmax", doc="what the scores mean"
    )
    bias: bool = argument(True, doc="whether a bias is added")
    tied_to: str | None = argument(
        None, doc="the Embedding whose table, over √width, is W; its ids are the units"
    )

    def lower(self, builder: Builder, x: Value) -> Value:
        y = scores(builder, x, self)
        return ended(builder, y, "sigmoid") if self.activation == "sigmoid" else y


def scores(builder: Builder, x: Value, layer: Dense | Output) -> Value:
    """x·W + b, with weights of the layer's own or those of an embedding."""
    if layer.tied_to is None:
        return builder.linear(x, layer.units, bias=layer.bias)
    y = builder.tied(x, layer.tied_to, bias=layer.bias)
    if y.width != layer.units:
        raise ArgumentError(
            f"The 'units' of {layer.keyword} must be {y.width}, as many as {layer.tied_to!r} has "
            f"ids. Got {layer.units}.",
            argument="units",
        )
    return y
