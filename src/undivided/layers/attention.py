"""MultiHeadAttention: every token looks at every other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.description import argument
from undivided.layers.base import Layer

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["MultiHeadAttention"]


@dataclass(frozen=True)
class MultiHeadAttention(Layer):
    """Self-attention over a sequence: (S, D) → (S, D).

        Q, K, V = x·Wq + bq, x·Wk + bk, x·Wv + bv          one slice of each for every head
        head    = softmax(Q·Kᵀ/√d)·V                       d = key_dim
        y       = [head_1 … head_H]·Wo + bo

    Without the output projection y is the heads side by side, num_heads · key_dim wide.
    """

    prefix: ClassVar[str] = "attention"

    num_heads: int = argument(doc="how many heads look side by side", at_least=1)
    key_dim: int | None = argument(
        None, doc="the width of a head; else the incoming width / num_heads", at_least=1
    )
    bias: bool = argument(True, doc="whether the projections add biases")
    output_projection: bool = argument(True, doc="whether Wo mixes the heads")

    def lower(self, builder: Builder, x: Value) -> Value:
        builder.expect_sequence(x)
        width = self._head_width(builder, x) * self.num_heads
        query, key, value = (
            builder.linear(x, width, bias=self.bias, role=role)
            for role in ("query", "key", "value")
        )
        heads = builder.attention(query, key, value, self.num_heads)
        if not self.output_projection:
            return heads
        return builder.linear(heads, x.width, bias=self.bias, role="output")

    def _head_width(self, builder: Builder, x: Value) -> int:
        if self.key_dim is not None:
            return self.key_dim
        if x.width % self.num_heads:
            raise builder.refuse(
                x,
                f"a width that {self.num_heads} heads divide evenly",
                "Change num_heads, or say key_dim.",
            )
        return x.width // self.num_heads
