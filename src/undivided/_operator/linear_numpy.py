"""linear_attention in NumPy, float32 or float64, in O(S): forward and backward.

    [y, n] = φ(Q)·state        state = φ(K)ᵀ·[V, 1]        out = y / n

A column of ones stands beside the values, and −δ beside the gradient of y, so that numerator and
divisor go through the same products. Why they are these is `docs/derivations/linear_attention.md`.

Causal, the state grows along the sequence. Rows are taken in chunks: what came before a chunk is
in the state, and the chunk's rows see each other through a triangle of weights. The backward pass
goes through the chunks a second time, from the last to the first, with what later queries gave
back. What is not allowed is left out by selection, so NaN reaches only what may attend to it.
"""

# B batch, K key/value heads, G query heads that share one, S queries, T keys, D width of features,
# F width of values, C rows of a chunk
#
# q       φ(query)        [B, K, G, S, D]
# k       φ(key)          [B, K, 1, T, D]
# v       [value, 1]      [B, K, 1, T, F+1]
# y       [A·value, n]    [B, K, G, S, F+1]
# g       [d_out/n, −δ]   [B, K, G, S, F+1]      δ = rowsum(d_out/n ∘ out)
# state   Σ kᵀ·v          [B, K, 1, D, F+1]      of the keys so far
# given   Σ qᵀ·g          [B, K, 1, D, F+1]      of the queries from the end so far
# out     [B, K·G, S, F]          n   [B, K·G, S, 1]

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from undivided.engines.reference.linear_attention import FeatureMap, feature_functions
from undivided.errors import ArgumentError

__all__ = ["CHUNK", "How", "backward", "check_features", "forward"]

CHUNK = 64
"""Rows that see each other through their weights. More cost work, fewer cost calls."""


class How(NamedTuple):
    """What forward and backward take besides arrays."""

    feature_map: FeatureMap
    causal: bool
    lengths: np.ndarray | None  # [B], keys that are not padding


@np.errstate(invalid="ignore")
def forward(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, how: How
) -> tuple[np.ndarray, np.ndarray]:
    """out and n."""
    q, k, v = _features(query, key, value, how)
    if how.causal:
        y = np.empty((*q.shape[:-1], v.shape[-1]), v.dtype)
        state = np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]), v.dtype)
        for rows in _chunks(q):
            qs, ks, vs = q[..., rows, :], k[..., rows, :], v[..., rows, :]
            y[..., rows, :] = qs @ state + _product(np.tril(qs @ _t(ks)), _earlier(ks), vs)
            state += _t(ks) @ vs
    else:
        y = q @ (_t(k) @ v)
    n = y[..., -1:].copy()  # a view would keep all of y
    out = np.where(n == 0, 0, y[..., :-1] / np.where(n == 0, 1, n))
    return _merged(out), _merged(n)


@np.errstate(invalid="ignore")
def backward(
    d_out: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    out: np.ndarray,
    n: np.ndarray,
    how: How,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """d_query, d_key and d_value, from what `forward` took and gave."""
    q, k, v = _features(query, key, value, how)
    live = n != 0
    d_mean = np.where(live, d_out / np.where(live, n, 1), 0)
    d_sum = -(d_mean * out).sum(axis=-1, keepdims=True)
    g = _split(np.concatenate((d_mean, d_sum), axis=-1), key.shape[1])
    dq, dk, dv = _backward_causal(q, k, v, g) if how.causal else _backward_full(q, k, v, g)

    # Through φ, and 0 for what took no part, also where it holds NaN.
    phi_backward = feature_functions(how.feature_map)[1]
    assert phi_backward is not None
    d_query = np.where(live, phi_backward(_merged(dq), query), 0)
    used = _used(_split(live, key.shape[1]), key.shape[2], how)
    d_key = np.where(used, phi_backward(_merged(dk), key), 0)
    return d_query, d_key, np.where(used, _merged(dv), 0)


def _backward_full(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In the forward pass this was y = q·(kᵀ·v)."""
    state = _t(k) @ v
    given = (_t(q) @ g).sum(axis=2, keepdims=True)
    return g @ _t(state), v @ _t(given), k @ given[..., :-1]


def _backward_causal(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In the forward pass a chunk had y = q·state + tril(q·kᵀ)·v."""
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v[..., :-1])
    state = np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]), v.dtype)
    for rows in _chunks(q):
        ks, vs, gs = k[..., rows, :], v[..., rows, :], g[..., rows, :]
        d_weights = np.tril(gs @ _t(vs))
        dq[..., rows, :] = gs @ _t(state) + _product(d_weights, _earlier(ks), ks)
        state += _t(ks) @ vs

    given = np.zeros_like(state)
    for rows in reversed(_chunks(q)):
        qs, ks, vs, gs = (x[..., rows, :] for x in (q, k, v, g))
        later = _earlier(ks).T
        weights, d_weights = np.tril(qs @ _t(ks)), np.tril(gs @ _t(vs))
        among = _product(_t(d_weights), later, qs).sum(axis=2, keepdims=True)
        dk[..., rows, :] = vs @ _t(given) + among
        among = _product(_t(weights), later, gs[..., :-1]).sum(axis=2, keepdims=True)
        dv[..., rows, :] = ks @ given[..., :-1] + among
        given += (_t(qs) @ gs).sum(axis=2, keepdims=True)
    return dq, dk, dv


def _features(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, how: How
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k and v as the products take them, 0 where a sample has padding or no keys at all."""
    phi, _ = feature_functions(how.feature_map)
    query_features, key_features = phi(query), phi(key)
    for name, x, features in (("query", query, query_features), ("key", key, key_features)):
        check_features(name, x.shape, features, key_features.shape[-1])
    ones = np.ones((*value.shape[:-1], 1), value.dtype)
    values = np.concatenate((value, ones), axis=-1)
    if how.lengths is not None:
        valid = _valid(key.shape[2], how.lengths)
        key_features, values = np.where(valid, key_features, 0), np.where(valid, values, 0)
        query_features = np.where(how.lengths[:, None, None, None] > 0, query_features, 0)
    return _split(query_features, key.shape[1]), key_features[:, :, None], values[:, :, None]


def check_features(name: str, shape: tuple[int, ...], features: np.ndarray, width: int) -> None:
    found = tuple(getattr(features, "shape", ()))
    if found[:-1] != shape[:-1] or found[-1] != width:
        raise ArgumentError(
            "The 'feature_map' of linear_attention must keep all axes but the last, and give "
            f"queries and keys the same width. Got {list(found)} for the {name} {list(shape)}.",
            argument="feature_map",
        )


def _used(live: np.ndarray, keys: int, how: How) -> np.ndarray:
    """[B, K, T or 1, 1]: keys that some query with weights may attend to."""
    some: np.ndarray = np.logical_or.reduce(live, axis=2)
    if how.causal:  # by a query from its own place on
        some = np.logical_or.accumulate(some[:, :, ::-1], axis=2)[:, :, ::-1]
    else:
        some = np.logical_or.reduce(some, axis=2, keepdims=True)
    return some if how.lengths is None else some & _valid(keys, how.lengths)


def _valid(keys: int, lengths: np.ndarray) -> np.ndarray:
    """[B, 1, T, 1]: keys that are not padding."""
    return (np.arange(keys) < lengths[:, None])[:, None, :, None]


def _chunks(q: np.ndarray) -> Sequence[slice]:
    return [slice(start, start + CHUNK) for start in range(0, q.shape[-2], CHUNK)]


def _earlier(rows: np.ndarray) -> np.ndarray:
    """[C, C]: which row of a chunk may attend to which."""
    return np.tri(rows.shape[-2], dtype=np.bool_)


def _product(cells: np.ndarray, allowed: np.ndarray, x: np.ndarray) -> np.ndarray:
    """cells·x over what is allowed: `cells` is 0 elsewhere, and 0·NaN would not be."""
    finite = np.isfinite(x)
    if finite.all():
        return cells @ x
    y = cells @ np.where(finite, x, 0)
    for t in np.flatnonzero(~finite.all(axis=(0, 1, 2, 4))):
        reached = allowed[:, t, None] & ~finite[..., t, None, :]
        y = y + np.where(reached, cells[..., t, None] * x[..., t, None, :], 0)
    return y


def _t(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(-1, -2)


def _split(x: np.ndarray, heads: int) -> np.ndarray:
    """[B, K·G, S, D] → [B, K, G, S, D]."""
    B, H, S, D = x.shape
    return x.reshape(B, heads, H // max(heads, 1), S, D)


def _merged(x: np.ndarray) -> np.ndarray:
    """[B, K, G, S, D] → [B, K·G, S, D], the way back."""
    B, K, G, S, D = x.shape
    return x.reshape(B, K * G, S, D)
