"""Conv1D and Conv2D: the same linear layer over every window of a sequence or picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from undivided.description import argument
from undivided.layers.activation import Ending, ended
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Conv1D", "Conv2D", "pair"]

Pair = tuple[int, int]


@dataclass(frozen=True)
class Conv2D(Layer):
    """y[r, c] = f(W·(the window of x at r·stride, c·stride) + b): (H, W, C) → (R, C', filters).

    `valid` windows stay inside the picture: R = ⌊(H − kernel)/stride⌋ + 1. With `same` zeros
    around it make R = ⌈H/stride⌉. A picture (H, W) has one channel.
    """

    prefix: ClassVar[str] = "convolution"
    example: ClassVar[tuple[str, ...]] = (
        "(28, 28)",
        'Conv2D(8, kernel_size=3, strides=2, padding="same", activation="relu")',
        "GlobalAveragePooling2D()",
        "Output(10)",
    )

    filters: int = argument(doc="how many numbers each window becomes", at_least=1)
    kernel_size: int | Pair = argument(
        doc="height and width of a window; one number for a square", at_least=1
    )
    strides: int | Pair = argument(
        1, doc="how far apart windows begin, down and across", at_least=1
    )
    padding: Literal["valid", "same"] = argument("valid", doc="whether windows reach over the edge")
    activation: Ending | None = argument(None, doc="f; without it the layer is linear")
    bias: bool = argument(True, doc="whether b is added")

    def lower(self, builder: Builder, x: Value) -> Value:
        y = builder.windows(x, pair(self.kernel_size), pair(self.strides), self.padding)
        return ended(builder, builder.linear(y, self.filters, bias=self.bias), self.activation)


@dataclass(frozen=True)
class Conv1D(Layer):
    """y[t] = f(W·(x[t·stride], …, x[t·stride + kernel − 1]) + b): (S, D) → (S', filters).

    `valid` windows stay inside the sequence: S' = ⌊(S − kernel)/stride⌋ + 1. With `same` zeros
    around it make S' = ⌈S/stride⌉.
    """

    prefix: ClassVar[str] = "convolution"
    example: ClassVar[tuple[str, ...]] = (
        "(100, 3)",
        'Conv1D(16, kernel_size=5, activation="relu")',
        "GlobalMaxPooling1D()",
        "Output(4)",
    )

    filters: int = argument(doc="how many numbers each window becomes", at_least=1)
    kernel_size: int = argument(doc="how many tokens a window has", at_least=1)
    strides: int = argument(1, doc="how far apart windows begin", at_least=1)
    padding: Literal["valid", "same"] = argument("valid", doc="whether windows reach over the ends")
    activation: Ending | None = argument(None, doc="f; without it the layer is linear")
    bias: bool = argument(True, doc="whether b is added")

    def lower(self, builder: Builder, x: Value) -> Value:
        row = as_row(builder, x)
        y = builder.windows(row, (1, self.kernel_size), (1, self.strides), self.padding)
        tokens, width = y.shape[1:]
        y = builder.reshape(y, (tokens, width))
        return ended(builder, builder.linear(y, self.filters, bias=self.bias), self.activation)


def pair(size: int | Pair) -> Pair:
    """One number stands for both."""
    return (size, size) if isinstance(size, int) else size


def as_row(builder: Builder, x: Value) -> Value:
    """A sequence as a picture one token high."""
    builder.expect_sequence(x)
    return builder.reshape(x, (1, *x.shape))
