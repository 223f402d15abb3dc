"""Pooling: a sequence or picture becomes one vector, or a smaller one of the largest numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from undivided.description import argument
from undivided.layers.base import Layer
from undivided.layers.convolution import Pair, as_row, pair

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = [
    "AttentionPooling",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "MaxPooling1D",
    "MaxPooling2D",
]


@dataclass(frozen=True)
class GlobalAveragePooling1D(Layer):
    """y = the mean of a sample's tokens: (S, D) → (D,)."""

    prefix: ClassVar[str] = "pooling"
    example: ClassVar[tuple[str, ...]] = ("(None, 16)", "GlobalAveragePooling1D()", "Output(10)")

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.pool(x)


@dataclass(frozen=True)
class GlobalMaxPooling1D(Layer):
    """y = the largest of a sample's tokens, feature by feature: (S, D) → (D,)."""

    prefix: ClassVar[str] = "pooling"
    example: ClassVar[tuple[str, ...]] = ("(None, 16)", "GlobalMaxPooling1D()", "Output(10)")

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.max_pool(x)


@dataclass(frozen=True)
class GlobalAveragePooling2D(Layer):
    """y = the mean over a picture, channel by channel: (H, W, C) → (C,)."""

    prefix: ClassVar[str] = "pooling"
    example: ClassVar[tuple[str, ...]] = (
        "(28, 28)",
        "Conv2D(8, kernel_size=3)",
        "GlobalAveragePooling2D()",
        "Output(10)",
    )

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.pool(pixels(builder, x))


@dataclass(frozen=True)
class GlobalMaxPooling2D(Layer):
    """y = the largest over a picture, channel by channel: (H, W, C) → (C,)."""

    prefix: ClassVar[str] = "pooling"
    example: ClassVar[tuple[str, ...]] = (
        "(28, 28)",
        "Conv2D(8, kernel_size=3)",
        "GlobalMaxPooling2D()",
        "Output(10)",
    )

    def lower(self, builder: Builder, x: Value) -> Value:
        return builder.max_pool(pixels(builder, x))


@dataclass(frozen=True)
class MaxPooling2D(Layer):
    """The largest of each window, channel by channel: (H, W, C) → (R, C', C)."""

    prefix: ClassVar[str] = "pooling"
    example: ClassVar[tuple[str, ...]] = (
        "(28, 28)",
        "Conv2D(8, kernel_size=3)",
        "MaxPooling2D(2)",
        "Flatten()",
        "Output(10)",
    )

    pool_size: int | Pair = argument(
        2, doc="height and width of a window; one number for a square", at_least=1
    )
    strides: int | Pair | None = argument(
        None, doc="how far apart windows begin; else they touch", at_least=1
    )
    padding: Literal["valid", "same"] = argument("valid", doc="whether windows reach over the edge")

    def lower(self, builder: Builder, x: Value) -> Value:
        strides = self.pool_size if self.strides is None else self.strides
        return builder.max_pool(x, pair(self.pool_size), pair(strides), self.padding)


@dataclass(frozen=True)
class MaxPooling1D(Layer):
    """The largest of each window of tokens, feature by feature: (S, D) → (S', D)."""

    prefix: ClassVar[str] = "pooling"
    example: ClassVar[tuple[str, ...]] = (
        "(100, 3)",
        "Conv1D(16, kernel_size=5)",
        "MaxPooling1D(4)",
        "Flatten()",
        "Output(4)",
    )

    pool_size: int = argument(2, doc="how many tokens a window has", at_least=1)
    strides: int | None = argument(
        None, doc="how far apart windows begin; else they touch", at_least=1
    )
    padding: Literal["valid", "same"] = argument("valid", doc="whether windows reach over the ends")

    def lower(self, builder: Builder, x: Value) -> Value:
        strides = self.pool_size if self.strides is None else self.strides
        row = as_row(builder, x)
        y = builder.max_pool(row, (1, self.pool_size), (1, strides), self.padding)
        return builder.reshape(y, y.shape[1:])


@dataclass(frozen=True)
class AttentionPooling(Layer):
    """y = softmax(q·Kᵀ/√d)·V with one learned query q for each head: (S, D) → (D,).

    K = x·Wk + bk and V = x·Wv + bv; what the tokens are asked is learned, and the same for all
    samples.
    """

    prefix: ClassVar[str] = "pooling"
    example: ClassVar[tuple[str, ...]] = (
        "(None, 16)",
        "AttentionPooling(num_heads=2)",
        "Output(10)",
    )

    num_heads: int = argument(1, doc="how many questions are asked side by side", at_least=1)
    bias: bool = argument(True, doc="whether the projections add biases")

    def lower(self, builder: Builder, x: Value) -> Value:
        builder.expect_sequence(x)
        query = builder.learned(x, 1, x.width**-0.5, role="query")
        key = builder.linear(x, x.width, bias=self.bias, role="key")
        value = builder.linear(x, x.width, bias=self.bias, role="value")
        heads = builder.attention(query, key, value, self.num_heads)
        return builder.reshape(heads, (heads.width,))


def pixels(builder: Builder, x: Value) -> Value:
    """A picture as the sequence of its pixels: (H, W, C) → (H·W, C)."""
    if len(x.shape) != 3:
        raise builder.refuse(x, "a picture, shape (height, width, channels)")
    extents = [n for n in x.shape[:2] if isinstance(n, int)]
    if len(extents) < 2:
        raise builder.refuse(x, "a picture of fixed height and width")
    return builder.reshape(x, (extents[0] * extents[1], x.width))
