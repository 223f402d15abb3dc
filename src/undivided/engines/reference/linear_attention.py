"""linear attention: each query's mean of the values, weighted by φ(query)·φ(key).

    A = φ(Q)·φ(K)ᵀ where allowed, else 0     no exp: a product of features
    n = rowsum(A)                            Y = A·V / n

Written with all S×T weights this is attention with another weight. Because A is a product, the
same numbers come in O(S) as φ(Q)·(φ(K)ᵀ·V) / φ(Q)·Σφ(K), which is what the operator does:
`undivided._operator.linear`. Backward, from the last line to the first:

    G = dY / n                               δ = rowsum(G∘Y)
    dV = Aᵀ·G                                dA = G·Vᵀ − δ where allowed, else 0
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
# a, allowed    [B, H, S, T]        n, δ   [B, H, S, 1]

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undivided.engines.reference.allowed import allowed_cells
from undivided.engines.reference.attention import gathered, product, spread, transpose
from undivided.errors import ArgumentError, suggest

__all__ = ["FEATURE_MAPS", "feature_functions", "linear_attention", "linear_attention_backward"]

Function = Callable[..., Any]
FeatureMap = str | Function | tuple[Function, Function]


def elu(x: np.ndarray) -> np.ndarray:
    """elu(x) + 1, which is positive everywhere: x + 1 above 0, exp(x) below."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


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
    phi, _ = feature_functions(feature_map)
    H = query.shape[1]
    a, allowed = _weights(phi(query), phi(spread(key, H)), causal, key_lengths)
    n = a.sum(axis=-1, keepdims=True)
    return np.where(n == 0, 0, product(a, allowed, spread(value, H)) / np.where(n == 0, 1, n))


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
    phi, phi_backward = feature_functions(feature_map)
    if phi_backward is None:
        raise ArgumentError(
            "linear_attention_backward needs the backward of the 'feature_map' too. Got a function "
            "alone: give the pair (function, backward), where backward(d_features, x) is dx.",
            argument="feature_map",
        )
    H = query.shape[1]
    keys, values = spread(key, H), spread(value, H)
    query_features, key_features = phi(query), phi(keys)
    a, allowed = _weights(query_features, key_features, causal, key_lengths)
    n = a.sum(axis=-1, keepdims=True)
    allowed = allowed & (n != 0)  # a row that sums to 0 gives 0, whatever stands in it
    n = np.where(n == 0, 1, n)

    # out = a·v / n
    g = d_out / n
    delta = (g * product(a, allowed, values) / n).sum(axis=-1, keepdims=True)
    dv = product(transpose(a), transpose(allowed), g)
    da = np.where(allowed, g @ transpose(values) - delta, 0)

    # a = φ(q)·φ(k)ᵀ; a query or key that took no part gets 0, also where it is NaN
    dq = phi_backward(product(da, allowed, key_features), query)
    dk = phi_backward(product(transpose(da), transpose(allowed), query_features), keys)
    dq = np.where(allowed.any(axis=-1)[..., None], dq, 0)
    dk = np.where(allowed.any(axis=-2)[..., None], dk, 0)
    return dq, gathered(dk, key.shape[1]), gathered(dv, key.shape[1])


def _weights(
    query_features: np.ndarray, key_features: np.ndarray, causal: bool, key_lengths: Any
) -> tuple[np.ndarray, np.ndarray]:
    """A and what is allowed."""
    shape = (*query_features.shape[:3], key_features.shape[2])
    allowed = allowed_cells(shape, causal=causal, key_lengths=key_lengths)
    return np.where(allowed, query_features @ transpose(key_features), 0), allowed
