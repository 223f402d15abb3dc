"""What the gradients of weights and log-sum-exp give to query, key, bias and sinks.

    P = exp(Z − lse)        dZ = P∘(dP − Δ + dlse)        Δ = rowsum(P∘dP)

Losses on weights are rare and hold all S×T of them anyway, so this is the definition's own way, in
NumPy: that of `undivided.reference.attention_backward` from P on.
"""

# B batch, H heads, Hkv key/value heads, S queries, T keys, D width of queries and keys
#
# d_weights  [B, some heads, some rows, T]        d_lse  [B, H, S], [rows, H] of packed sequences

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from undivided._operator.attention import Wanted
from undivided._operator.core import Packing
from undivided._operator.options import UNBOUNDED, Options
from undivided.engines.reference.attention import (
    gathered,
    look,
    product,
    spread,
    summed_to,
    transpose,
)

__all__ = ["lse_backward_packed", "weights_backward"]


@np.errstate(invalid="ignore")
def weights_backward(
    d_weights: np.ndarray | None,
    d_lse: np.ndarray | None,
    asked: Wanted | None,
    query: np.ndarray,
    key: np.ndarray,
    bias: np.ndarray | None,
    sinks: np.ndarray | None,
    options: Options,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """The gradients of query, key, bias and sinks."""
    H, T = query.shape[1], key.shape[2]
    at = look(query, key, bias, sinks=sinks, **_as_said(options))
    dp = np.zeros((*query.shape[:3], T), query.dtype)
    if d_weights is not None:
        assert asked is not None  # maybe one head or row more than once
        cells: Any = (slice(None), asked.heads[:, None], asked.rows[None, :])
        np.add.at(dp, cells, d_weights)
    delta = np.where(at.allowed, at.p * dp, 0).sum(axis=-1, keepdims=True)
    if d_lse is not None:
        delta = delta - d_lse[..., None]  # raising a score raises the sum by its weight
    dz = np.where(at.allowed, at.p * (dp - delta), 0)
    d_bias = None if bias is None else summed_to(dz, bias.shape)
    d_sinks = None if sinks is None else -(at.sunk * delta).sum(axis=(0, 2, 3))
    dz = np.where(at.allowed, dz * at.slope, 0)
    dq = product(dz, at.allowed, spread(key, H))
    dk = product(transpose(dz), transpose(at.allowed), query)
    return dq, gathered(dk, key.shape[1]), d_bias, d_sinks


def lse_backward_packed(
    d_lse: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    sinks: np.ndarray | None,
    options: Options,
    packing: Packing,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The gradients of query, key and sinks, sequence by sequence."""
    dq, dk = np.zeros_like(query), np.zeros_like(key)
    d_sinks = None if sinks is None else np.zeros_like(sinks)
    assert options.query_lengths is not None and options.key_lengths is not None
    for b in range(len(packing.query_start)):
        first_query, first_key = packing.query_start[b], packing.key_start[b]
        queries = slice(first_query, first_query + options.query_lengths[b])
        keys = slice(first_key, first_key + options.key_lengths[b])
        alone = dataclasses.replace(
            options,
            query_lengths=None,
            key_lengths=None,
            offsets=None,
            offset=options.offset if options.offsets is None else int(options.offsets[b]),
        )
        dq[:, :, queries], dk[:, :, keys], _, found = weights_backward(
            None,
            d_lse[queries].T[None],
            None,
            query[:, :, queries],
            key[:, :, keys],
            None,
            sinks,
            alone,
        )
        if d_sinks is not None:
            d_sinks += found
    return dq, dk, d_sinks


def _as_said(options: Options) -> dict[str, Any]:
    """Options in the words of the definition; dropout comes after the weights."""
    sides = (None if side >= UNBOUNDED else side for side in (options.left, options.right))
    return {
        "mask": options.mask if options.blocks is None else options.blocks,
        "window": tuple(sides),
        "query_lengths": options.query_lengths,
        "key_lengths": options.key_lengths,
        "query_offset": options.offset if options.offsets is None else options.offsets,
        "scale": options.scale,
        "softcap": options.softcap or None,
    }
