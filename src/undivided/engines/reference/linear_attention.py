"""linear attention: each query's mean of the values, weighted by φ(query)·φ(key).

    A = φ(Q)·φ(K)ᵀ where allowed, else 0     no exp: a product of features
    n = rowsum(A)                            Y = A·V / n

Written with all S×T weights this is attention with another weight. Because A is a product, the
same numbers come in O(S) as φ(Q)·(φ(K)ᵀ·V) / φ(Q)·Σφ(K), which is what the operator
(`undivided._operator.linear`) and a layer's native kernel do. Backward, from the last line to the
first:

    dV = Aᵀ·(dY/n)                           dP = dY·Vᵀ, of weights P = A/n that sum to 1
    dA = (dP − Δ)/n where allowed, else 0    Δ = rowsum(P∘dP) = rowsum(dY∘Y)
    dφ(Q) = dA·φ(K)                          dφ(K) = dAᵀ·φ(Q)

A query whose weights sum to 0 (no key allowed, or features that do not meet) gives 0 and gets no
gradient. What is not allowed is left out by selection, never by a product with 0.

    Katharopoulos et al., "Transformers are RNNs", arXiv 2006.16236
"""

# B batch, H heads, G heads that share a key/value head, S queries, T keys, D width of queries and
# keys, F width of values
#
# query         [B, H, S, D]        key    [B, H/G, T, D]
# out           [B, H, S, F]        value  [B, H/G, T, F]
# a, p, allowed [B, H, S, T]        n, Δ   [B, H, S, 1]

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from undivided.engines.reference.allowed import allowed_cells
from undivided.engines.reference.attention import (
    gathered,
    heads_of,
    merge,
    product,
    split,
    spread,
    transpose,
)
from undivided.errors import ArgumentError, suggest

__all__ = [
    "FEATURE_MAPS",
    "backward",
    "feature_functions",
    "forward",
    "linear_attention",
    "linear_attention_backward",
    "weights",
]

Function = Callable[..., Any]
FeatureMap = str | Function | tuple[Function, Function]


def elu(x: np.ndarray) -> np.ndarray:
    """elu(x) + 1, which is positive everywhere: x + 1 above 0, exp(x) below."""
    return np.maximum(x, 0) + np.exp(np.minimum(x, 0))


def elu_backward(d_features: np.ndarray, x: np.ndarray) -> np.ndarray:
    return d_features * np.exp(np.minimum(x, 0))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def relu_backward(d_features: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, d_features, 0)


def identity(x: np.ndarray) -> np.ndarray:
    return x


def identity_backward(d_features: np.ndarray, x: np.ndarray) -> np.ndarray:
    return d_features


FEATURE_MAPS: dict[str, tuple[Function, Function]] = {
    "elu": (elu, elu_backward),
    "relu": (relu, relu_backward),
    "identity": (identity, identity_backward),
}


def feature_functions(feature_map: FeatureMap) -> tuple[Function, Function | None]:
    """φ and its backward (d_features, x) → dx, which a function given alone does not have."""
    if isinstance(feature_map, str) and feature_map in FEATURE_MAPS:
        return FEATURE_MAPS[feature_map]
    if callable(feature_map):
        return feature_map, None
    if isinstance(feature_map, tuple) and len(feature_map) == 2 and all(map(callable, feature_map)):
        return feature_map
    raise ArgumentError(
        f"The 'feature_map' of linear_attention must be one of {', '.join(map(repr, FEATURE_MAPS))}"
        f", a function, or a pair (function, its backward). Got {feature_map!r}."
        + suggest(str(feature_map), FEATURE_MAPS),
        argument="feature_map",
    )


class Look(NamedTuple):
    """How much each query takes from each key."""

    query_features: np.ndarray  # φ(query)
    key_features: np.ndarray  # φ(key), for every head
    dots: np.ndarray  # [B, H, S, T], φ(query)·φ(key)ᵀ also where it is not allowed
    a: np.ndarray  # [B, H, S, T]
    allowed: np.ndarray  # [B, H, S, T] bool
    n: np.ndarray  # [B, H, S, 1], infinite where weights sum to 0
    live: np.ndarray  # [B, H, S, 1], where they do not

    @property
    def p(self) -> np.ndarray:
        """Weights that sum to 1."""
        return self.a / self.n


class Descent(NamedTuple):
    """What backward finds on its way."""

    dv: np.ndarray  # [B, H/G, T, F]
    dp: np.ndarray  # [B, H, S, T]
    da: np.ndarray  # [B, H, S, T]
    dq: np.ndarray  # [B, H, S, D]
    dk: np.ndarray  # [B, H/G, T, D]


def look(
    query: np.ndarray,
    key: np.ndarray,
    *,
    feature_map: FeatureMap = "elu",
    causal: bool = False,
    key_lengths: Any = None,
) -> Look:
    phi, _ = feature_functions(feature_map)
    q, k = phi(query), phi(spread(key, query.shape[1]))
    shape = (*q.shape[:3], k.shape[2])
    allowed = allowed_cells(shape, causal=causal, key_lengths=key_lengths)
    dots = q @ transpose(k)
    a = np.where(allowed, dots, 0)
    n = a.sum(axis=-1, keepdims=True)
    live = n != 0
    n = np.where(live, n, np.inf)
    return Look(q, k, dots=dots, a=a, allowed=allowed, n=n, live=live)


@np.errstate(invalid="ignore")  # inf/inf and inf·0 are NaN, and that is what they should be
def linear_attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    feature_map: FeatureMap = "elu",
    causal: bool = False,
    key_lengths: Any = None,
) -> np.ndarray:
    """out; `feature_map` is a name, a function, or a pair of a function and its backward."""
    at = look(query, key, feature_map=feature_map, causal=causal, key_lengths=key_lengths)
    return mean_of(at, value)


def mean_of(at: Look, value: np.ndarray) -> np.ndarray:
    """Each query's mean of the values; 0 where it has no weights."""
    sums = product(at.a, at.allowed, spread(value, at.a.shape[1]))
    return np.where(at.live, sums / at.n, 0)


@np.errstate(invalid="ignore")
def linear_attention_backward(
    d_out: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    feature_map: FeatureMap = "elu",
    causal: bool = False,
    key_lengths: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gradients of query, key and value."""
    if feature_functions(feature_map)[1] is None:
        raise ArgumentError(
            "linear_attention_backward needs the backward of the 'feature_map' too. Got a function "
            "alone: give the pair (function, backward), where backward(d_features, x) is dx.",
            argument="feature_map",
        )
    at = look(query, key, feature_map=feature_map, causal=causal, key_lengths=key_lengths)
    d = descend(at, d_out, query, key, value, feature_map=feature_map)
    return d.dq, d.dk, d.dv


def descend(
    at: Look,
    d_out: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    feature_map: FeatureMap = "elu",
) -> Descent:
    """The way back, from the last line to the first, with what lies between."""
    _, phi_backward = feature_functions(feature_map)
    assert phi_backward is not None
    H = query.shape[1]
    keys, values = spread(key, H), spread(value, H)
    allowed = at.allowed & at.live  # a row that sums to 0 gives 0, whatever stands in it

    # out = a·v / n
    dv = product(transpose(at.a), transpose(allowed), d_out / at.n)
    dp = d_out @ transpose(values)
    delta = (d_out * mean_of(at, value)).sum(axis=-1, keepdims=True)
    da = np.where(allowed, (dp - delta) / at.n, 0)

    # a = φ(q)·φ(k)ᵀ; a query or key that took no part gets 0, also where it is NaN
    dq = phi_backward(product(da, allowed, at.key_features), query)
    dk = phi_backward(product(transpose(da), transpose(allowed), at.query_features), keys)
    dq = np.where(allowed.any(axis=-1)[..., None], dq, 0)
    dk = np.where(allowed.any(axis=-2)[..., None], dk, 0)
    dk, dv = gathered(dk, key.shape[1]), gathered(dv, key.shape[1])
    return Descent(dv=dv, dp=dp, da=da, dq=dq, dk=dk)


# As the plan has it: heads side by side in the last axis, and features that are elu(x) + 1.


class Described(TypedDict, total=False):
    """What a linear attention of a plan says."""

    heads: int
    key_heads: int | None  # fewer than heads: each serves several
    causal: bool


def weights(query: np.ndarray, key: np.ndarray, **layer: Unpack[Described]) -> np.ndarray:
    """A/n: how much each query takes from each key."""
    return look(*heads_of(query, key, **layer), causal=layer.get("causal", False)).p


def forward(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, **layer: Unpack[Described]
) -> np.ndarray:
    heads = heads_of(query, key, value, **layer)
    return merge(linear_attention(*heads, causal=layer.get("causal", False)))


def backward(
    dy: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    **layer: Unpack[Described],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    d_out, heads = split(dy, layer["heads"]), heads_of(query, key, value, **layer)
    causal = layer.get("causal", False)
    dq, dk, dv = linear_attention_backward(d_out, *heads, causal=causal)
    return merge(dq), merge(dk), merge(dv)
