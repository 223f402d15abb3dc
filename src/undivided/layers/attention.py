"""MultiHeadAttention: every token looks at every other, or at those that it may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from undivided.description import argument
from undivided.errors import ArgumentError
from undivided.layers.base import Layer
from undivided.layers.patterns import Pattern

if TYPE_CHECKING:
    from undivided.layers.transformer import TransformerEncoder
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["MultiHeadAttention", "ScorePositions", "check_linear"]

ScorePositions = Literal["rotary", "alibi", "relative"]
"""Positions that scores know, and not tokens."""


@dataclass(frozen=True)
class MultiHeadAttention(Layer):
    """Self-attention over a sequence: (S, D) → (S, D).

        Q, K, V = x·Wq + bq, x·Wk + bk, x·Wv + bv          one slice of each for every head
        head    = softmax(Q·Kᵀ/√d)·V                       d = key_dim
        y       = [head_1 … head_H]·Wo + bo

    Without the output projection y is the heads side by side, num_heads · value_dim wide. With
    fewer `kv_heads` several heads share keys and values (one: multi-query attention).

    Who may attend to whom is all of `causal` (nobody to what comes later), `window` and `pattern`
    together. `softcap` bends scores to stay within ±softcap. `positions` tells scores where tokens
    stand: "rotary" turns queries and keys by their position, "alibi" takes slope·distance away,
    "relative" adds a learned number for each distance (T5's, 32 buckets up to 128).

    `linear` does without scores, so that its cost grows with S and not with its square:

        head    = φ(Q)·(φ(K)ᵀ·V) / φ(Q)·Σφ(K)              φ(x) = elu(x) + 1

    What acts on scores one by one does not go with it: window, pattern, softcap, dropout, and
    positions other than "rotary", which turns queries and keys before φ.
    """

    prefix: ClassVar[str] = "attention"
    example: ClassVar[tuple[str, ...]] = (
        "(49, 16)",
        "MultiHeadAttention(num_heads=2)",
        "GlobalAveragePooling1D()",
        "Output(10)",
    )

    num_heads: int = argument(doc="how many heads look side by side", at_least=1)
    key_dim: int | None = argument(
        None, doc="the width of a head; else the incoming width / num_heads", at_least=1
    )
    bias: bool = argument(True, doc="whether the projections add biases")
    output_projection: bool = argument(True, doc="whether Wo mixes the heads")
    value_dim: int | None = argument(
        None, doc="the width of a head's values; else that of its keys", at_least=1
    )
    kv_heads: int | None = argument(
        None, doc="how many heads of keys and values; else num_heads", at_least=1
    )
    causal: bool = argument(False, doc="whether tokens see only what stands before them")
    window: int | tuple[int | None, int | None] | None = argument(
        None,
        doc="how many tokens before and after are seen; one number counts for both, None for all",
        at_least=0,
    )
    pattern: Pattern | None = argument(None, doc="a block-sparse pattern of who sees whom")
    softcap: float | None = argument(None, doc="what scores stay within", above=0.0)
    positions: ScorePositions | None = argument(None, doc="how scores know where tokens stand")
    qk_norm: bool = argument(
        False, doc="whether each head's queries and keys are RMS-normalized (ε = 1e-6)"
    )
    dropout: float = argument(
        0.0, doc="the share of weights that is left out in training", at_least=0.0, below=1.0
    )
    linear: bool = argument(False, doc="whether weights are φ(q)·φ(k), and cost grows with S alone")

    def check(self) -> None:
        check_linear(self)
        if self.linear and self.dropout:
            raise _without_scores(self, "dropout")
        if self.kv_heads is not None and self.num_heads % self.kv_heads:
            raise ArgumentError(
                f"The 'kv_heads' of {self.keyword} must divide its num_heads, {self.num_heads}. "
                f"Got {self.kv_heads}.",
                argument="kv_heads",
            )

    def lower(self, builder: Builder, x: Value) -> Value:
        return self.attend(builder, x, x)

    def attend(self, builder: Builder, x: Value, memory: Value) -> Value:
        """Tokens of x look at those of `memory`, which is x itself in self-attention."""
        builder.expect_sequence(x)
        builder.expect_sequence(memory)
        width, key_heads = self._head_width(builder, x), self.kv_heads or self.num_heads
        query = builder.linear(x, width * self.num_heads, bias=self.bias, role="query")
        key = builder.linear(memory, width * key_heads, bias=self.bias, role="key")
        value = builder.linear(
            memory, (self.value_dim or width) * key_heads, bias=self.bias, role="value"
        )
        if self.qk_norm:
            query = builder.rms_normalize(query, 1e-6, heads=self.num_heads, role="query_norm")
            key = builder.rms_normalize(key, 1e-6, heads=key_heads, role="key_norm")
        if self.positions == "rotary":
            query = builder.rotary(query, self.num_heads, part="query.turned")
            key = builder.rotary(key, key_heads, part="key.turned")
        heads = self._heads(builder, query, key, value)
        if not self.output_projection:
            return heads
        return builder.linear(heads, x.width, bias=self.bias, role="output")

    def _heads(self, builder: Builder, query: Value, key: Value, value: Value) -> Value:
        key_heads = self.kv_heads or self.num_heads
        if self.linear:
            return builder.linear_attention(
                query, key, value, self.num_heads, key_heads=key_heads, causal=self.causal
            )
        return builder.attention(
            query,
            key,
            value,
            self.num_heads,
            key_heads=key_heads,
            causal=self.causal,
            window=(self.window, self.window) if isinstance(self.window, int) else self.window,
            pattern=None if self.pattern is None else self.pattern.mask(),
            softcap=self.softcap,
            dropout=self.dropout,
            alibi=self.positions == "alibi",
            relative=(32, 128) if self.positions == "relative" else None,
        )

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


def check_linear(layer: MultiHeadAttention | TransformerEncoder) -> None:
    """Refuse beside `linear` what has to have scores."""
    given = {name: getattr(layer, name) for name in ("window", "pattern", "softcap", "positions")}
    if given["positions"] == "rotary":
        del given["positions"]
    for name, option in given.items():
        if layer.linear and option is not None:
            raise _without_scores(layer, name)


def _without_scores(layer: MultiHeadAttention | TransformerEncoder, name: str) -> ArgumentError:
    advice = ' "rotary" goes with it.' if name == "positions" else ""
    return ArgumentError(
        f"The {name!r} of {layer.keyword} must not be given with linear=true: linear attention has "
        f"no scores that it could act on. Got {getattr(layer, name)!r}. Leave out one of the two."
        f"{advice}",
        argument=name,
    )
