"""TransformerEncoder and TransformerDecoder: attention and a feed-forward part, both residual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from undivided.description import argument
from undivided.errors import ArgumentError
from undivided.layers.activation import Function
from undivided.layers.attention import MultiHeadAttention, ScorePositions, check_linear
from undivided.layers.base import Layer
from undivided.layers.dense import Dense
from undivided.layers.gated import GatedFeedForward
from undivided.layers.normalization import LayerNormalization, RMSNormalization
from undivided.layers.patterns import Pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["TransformerDecoder", "TransformerEncoder"]


@dataclass(frozen=True)
class TransformerEncoder(Layer):
    """Each token looks at all others, then goes through a small network of its own.

        x = x + Attention(Norm(x))            norm="pre"; with norm="post"
        x = x + W2·f(W1·Norm(x))              x = Norm(x + Attention(x)), x = Norm(x + W2·f(W1·x))

    Before the first one the network adds positions to its tokens, unless it states its own: a
    layer of positions, `positions` here, or `positions: none` beside its layers. A stack with
    norm="pre" ends without a norm; LayerNormalization() after it adds one.

    With `linear` attention is that of MultiHeadAttention(linear=true), whose weights are never
    there one by one: dropout then acts on what both parts give alone.
    """

    prefix: ClassVar[str] = "encoder"
    example: ClassVar[tuple[str, ...]] = (
        "(49, 16)",
        "TransformerEncoder(num_heads=2, dff=32) * 2",
        "GlobalAveragePooling1D()",
        "Output(10)",
    )

    num_heads: int = argument(doc="how many heads look side by side", at_least=1)
    d_model: int | None = argument(
        None, doc="the width of tokens, which is that of what comes in", at_least=1
    )
    dff: int | None = argument(
        None,
        doc="the width inside the feed-forward part; else four times that of tokens",
        at_least=1,
    )
    dropout_rate: float = argument(
        0.0,
        doc="the share of weights, and of what both parts give, that is left out in training",
        at_least=0.0,
        below=1.0,
    )
    activation: Function = argument("relu", doc="f")
    norm: Literal["pre", "post"] = argument("pre", doc="where the norms stand")
    norm_type: Literal["layer", "rms"] = argument("layer", doc="what the norms are")
    gated: bool = argument(False, doc="whether the feed-forward part is f(x·Wg)∘(x·Wu)·Wd")
    epsilon: float = argument(1e-5, doc="the ε of the norms", above=0.0)
    bias: bool = argument(True, doc="whether linear layers add biases")
    key_dim: int | None = argument(
        None, doc="the width of a head; else that of tokens / num_heads", at_least=1
    )
    kv_heads: int | None = argument(
        None, doc="how many heads of keys and values; else num_heads", at_least=1
    )
    window: int | tuple[int | None, int | None] | None = argument(
        None, doc="how many tokens before and after are seen", at_least=0
    )
    pattern: Pattern | None = argument(None, doc="a block-sparse pattern of who sees whom")
    softcap: float | None = argument(None, doc="what scores stay within", above=0.0)
    positions: ScorePositions | None = argument(None, doc="how scores know where tokens stand")
    linear: bool = argument(False, doc="whether weights are φ(q)·φ(k), and cost grows with S alone")
    ff_dim: int | None = argument(None, doc="another name of dff", at_least=1)
    dropout: float | None = argument(
        None, doc="another name of dropout_rate", at_least=0.0, below=1.0
    )

    def check(self) -> None:
        check_linear(self)
        if self.dropout_rate and self.dropout not in (None, self.dropout_rate):
            raise ArgumentError(
                f"The 'dropout_rate' of {self.keyword} is {self.dropout_rate}, and 'dropout', "
                f"another name of it, is {self.dropout}. Give one of the two.",
                argument="dropout",
            )
        if self.dff is not None and self.ff_dim not in (None, self.dff):
            raise ArgumentError(
                f"The 'dff' of {self.keyword} is {self.dff}, and 'ff_dim', another name of it, is "
                f"{self.ff_dim}. Give one of the two.",
                argument="ff_dim",
            )

    def lower(self, builder: Builder, x: Value) -> Value:
        x = self._placed(builder, x)
        x = self._residual(builder, x, "attention", self._attention(causal=False))
        x = self._feed_forward(builder, x)
        builder.has_encoder = True
        return x

    def _placed(self, builder: Builder, x: Value) -> Value:
        """The tokens, of the right width, which know where they stand."""
        builder.expect_sequence(x)
        if self.d_model not in (None, x.width):
            raise builder.refuse(
                x,
                f"tokens of width {self.d_model}, its d_model",
                f"Dense({self.d_model}) before it brings them to that width.",
            )
        if self.positions is not None:
            builder.placed = True
        if self.linear and self._rate:
            builder.notes.append(
                f"the dropout of {builder.layer!r} acts on what its parts give: linear attention "
                "has no weights to leave out one by one"
            )
        return builder.place(x)

    def _attention(self, *, causal: bool) -> MultiHeadAttention:
        return MultiHeadAttention(
            num_heads=self.num_heads,
            key_dim=self.key_dim,
            bias=self.bias,
            kv_heads=self.kv_heads,
            causal=causal,
            window=self.window,
            pattern=self.pattern,
            softcap=self.softcap,
            positions=self.positions,
            dropout=self._rate_of_weights,
            linear=self.linear,
        )

    def _residual(
        self,
        builder: Builder,
        x: Value,
        name: str,
        layer: MultiHeadAttention,
        attend: Callable[[Builder, Value], Value] | None = None,
    ) -> Value:
        """x + layer(Norm(x)), or Norm(x + layer(x))."""
        normalization = self._normalization()
        y = x
        if self.norm == "pre":
            y = builder.part(normalization, f"{name}_norm", y)
        y = self._dropped(builder, builder.part(layer, name, y, attend))
        x = builder.add(x, y)
        return x if self.norm == "pre" else builder.part(normalization, f"{name}_norm", x)

    def _feed_forward(self, builder: Builder, x: Value) -> Value:
        normalization = self._normalization()
        inner = self.dff or self.ff_dim or 4 * x.width
        y = x
        if self.norm == "pre":
            y = builder.part(normalization, "feed_norm", y)
        if self.gated:
            gated = GatedFeedForward(units=inner, activation=self.activation, bias=self.bias)
            y = builder.part(gated, "feed", y)
        else:
            into = Dense(units=inner, activation=self.activation, bias=self.bias)
            y = self._dropped(builder, builder.part(into, "feed_in", y))
            y = builder.part(Dense(units=x.width, bias=self.bias), "feed_out", y)
        x = builder.add(x, self._dropped(builder, y))
        return x if self.norm == "pre" else builder.part(normalization, "feed_norm", x)

    def _normalization(self) -> LayerNormalization | RMSNormalization:
        if self.norm_type == "rms":
            return RMSNormalization(epsilon=self.epsilon)
        return LayerNormalization(epsilon=self.epsilon)

    def _dropped(self, builder: Builder, x: Value) -> Value:
        return builder.dropout(x, self._rate)

    @property
    def _rate(self) -> float:
        return self.dropout_rate or self.dropout or 0.0

    @property
    def _rate_of_weights(self) -> float:
        return 0.0 if self.linear else self._rate


@dataclass(frozen=True)
class TransformerDecoder(TransformerEncoder):
    """Each token looks at those before it, then at what an encoder made, where there is one.

        x = x + Attention(Norm(x))            causal: nothing that comes later is seen
        x = x + Attention(Norm(x), memory)    where the network has an encoder before it
        x = x + W2·f(W1·Norm(x))

    After encoders the first decoder starts from the target: the network's second input, or where
    it declares one alone the targets shifted right by one, embedded as the source is. Without
    encoders it goes on with what comes in: a causal language model.
    """

    prefix: ClassVar[str] = "decoder"
    example: ClassVar[tuple[str, ...]] = (
        "(49, 16)",
        "TransformerDecoder(num_heads=2, dff=32)",
        "TokenAt(-1)",
        "Output(10)",
    )

    def lower(self, builder: Builder, x: Value) -> Value:
        if builder.has_encoder and builder.memory is None:
            x = builder.embed_target(builder.begin_decoding(x))
        elif not builder.has_encoder:
            builder.note(
                "decoders without encoders before them are a causal language model: each token "
                "sees itself and those before it"
            )
        x = self._placed(builder, x)
        x = self._residual(builder, x, "attention", self._attention(causal=True))
        memory = builder.memory
        if memory is not None:
            cross = MultiHeadAttention(
                num_heads=self.num_heads,
                key_dim=self.key_dim,
                bias=self.bias,
                kv_heads=self.kv_heads,
                dropout=self._rate_of_weights,
                linear=self.linear,
            )
            x = self._residual(
                builder, x, "cross", cross, lambda inside, y: cross.attend(inside, y, memory)
            )
        return self._feed_forward(builder, x)
