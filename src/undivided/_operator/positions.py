"""Where tokens stand: biases that depend on distance alone, and sinusoidal tables.

ALiBi        bias[h, i, j] = −slope[h]·|i − j|              nothing to learn
T5           bias[h, i, j] = table[bucket(j − i), h]        one learned number a bucket and head
sinusoidal   table[t, d]   = sin or cos of t / base^(2⌊d/2⌋/D), to be added to tokens

A bias goes into `attention(…, bias=…)`. Query i stands at `offset + i` on the key axis, as it
does there.

    ALiBi: Press, Smith, Lewis, "Train Short, Test Long", arXiv 2108.12409
    T5: Raffel et al., "Exploring the Limits of Transfer Learning", arXiv 1910.10683, section 2.1
"""

# H heads, S queries, T keys, D width
#
# slopes          [H]
# bias, d_bias    [1, H, S, T]
# table, d_table  [buckets, H]

from __future__ import annotations

import math
from typing import Any

import numpy as np

from undivided._operator.tensors import is_tensor
from undivided.engines.reference.position import sinusoidal_table
from undivided.errors import ArgumentError

__all__ = ["alibi", "alibi_slopes", "sinusoidal", "t5_bias", "t5_bias_backward", "t5_buckets"]


def alibi_slopes(num_heads: int) -> np.ndarray:
    """[H] in float64: 2^(−8/H), 2^(−16/H), …, 2^(−8), half as steep for each 1/8 of the heads.

    Where H is no power of two, the paper's rule: the slopes for the power of two below it, then
    every other one of those for the power of two above, until there are H.
    """
    _whole("alibi_slopes", "num_heads", num_heads, at_least=1)
    below = 1 << (int(num_heads).bit_length() - 1)
    slopes = _geometric(below)
    if below < num_heads:
        slopes += _geometric(2 * below)[0::2][: num_heads - below]
    return np.array(slopes)


def _geometric(n: int) -> list[float]:
    return [2.0 ** (-8.0 * (i + 1) / n) for i in range(n)]


def alibi(
    num_heads: int,
    queries: int,
    keys: int,
    *,
    offset: int = 0,
    bidirectional: bool = False,
    dtype: Any = np.float32,
) -> np.ndarray:
    """[1, H, S, T]: −slope·(distance from query to key), which head by head forgets faster.

    As in the paper a query looks back only: keys after it have a bias of −∞, which forbids them.
    With `bidirectional=True` they count like those before it, −slope·|i − j|.

    >>> alibi(1, 3, 3)[0, 0] * 256
    array([[  0., -inf, -inf],
           [ -1.,   0., -inf],
           [ -2.,  -1.,   0.]], dtype=float32)
    """
    slopes = alibi_slopes(num_heads)
    relative = _relative("alibi", queries, keys, offset)
    bias = slopes[:, None, None] * -np.abs(relative)
    if not bidirectional:
        bias = np.where(relative > 0, -np.inf, bias)
    return bias[None].astype(_floating("alibi", dtype))


def t5_buckets(
    queries: int,
    keys: int,
    *,
    buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
    offset: int = 0,
) -> np.ndarray:
    """[S, T] whole numbers from 0 to buckets − 1: which number of T5's table a pair uses.

    Half of the buckets stand for one distance each; the others are wider and wider, on a
    logarithmic scale up to `max_distance`, and the last also holds all that lies beyond.
    `bidirectional` gives keys after the query the upper half of the buckets; without it they
    share bucket 0 with the query's own position.
    """
    where = "t5_buckets"
    _whole(where, "buckets", buckets, at_least=4 if bidirectional else 2)
    relative = _relative(where, queries, keys, offset)
    if bidirectional:
        buckets //= 2
        first = np.where(relative > 0, buckets, 0)
        distance = np.abs(relative)
    else:
        first = np.zeros_like(relative)
        distance = np.maximum(-relative, 0)
    exact = buckets // 2
    _whole(where, "max_distance", max_distance, at_least=exact + 1)
    # In float32, as it was published: rounding decides where a distance lies on an edge.
    ratio = np.maximum(distance, exact).astype(np.float32) / np.float32(exact)
    steps = np.log(ratio) / np.float32(math.log(max_distance / exact)) * np.float32(buckets - exact)
    wide = np.minimum(exact + steps.astype(np.int64), buckets - 1)
    return first + np.where(distance < exact, distance, wide)


def t5_bias(
    table: Any,
    queries: int,
    keys: int,
    *,
    max_distance: int = 128,
    bidirectional: bool = True,
    offset: int = 0,
) -> Any:
    """[1, H, S, T]: the number of `table` [buckets, H] for each head and pair.

    A PyTorch tensor gives a tensor, through which autograd finds the table's gradient.
    """
    if not (is_tensor(table) or isinstance(table, np.ndarray)) or table.ndim != 2:
        found = f"shape {list(table.shape)}" if hasattr(table, "shape") else type(table).__name__
        raise ArgumentError(
            "The 'table' of t5_bias must be a NumPy array or PyTorch tensor [buckets, heads]. "
            f"Got {found}.",
            argument="table",
        )
    index = t5_buckets(
        queries,
        keys,
        buckets=table.shape[0],
        max_distance=max_distance,
        bidirectional=bidirectional,
        offset=offset,
    )
    bias = table.T[:, index][None]
    return bias.contiguous() if is_tensor(bias) else np.ascontiguousarray(bias)


def t5_bias_backward(
    d_bias: np.ndarray,
    *,
    buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
    offset: int = 0,
) -> np.ndarray:
    """d_table [buckets, H]: each bucket's number was used by many pairs, so theirs are summed.

    The sums run in float64 and always in the same order.
    """
    if not isinstance(d_bias, np.ndarray) or d_bias.ndim != 4 or d_bias.shape[0] != 1:
        found = f"shape {list(d_bias.shape)}" if hasattr(d_bias, "shape") else type(d_bias).__name__
        raise ArgumentError(
            "The 'd_bias' of t5_bias_backward must be a NumPy array [1, heads, queries, keys], as "
            f"attention gives it for a bias of that shape. Got {found}.",
            argument="d_bias",
        )
    _, H, S, T = d_bias.shape
    index = t5_buckets(
        S,
        T,
        buckets=buckets,
        max_distance=max_distance,
        bidirectional=bidirectional,
        offset=offset,
    ).ravel()
    d_table = np.empty((buckets, H), d_bias.dtype)
    for h in range(H):
        d_table[:, h] = np.bincount(index, weights=d_bias[0, h].ravel(), minlength=buckets)
    return d_table


def sinusoidal(
    length: int,
    width: int,
    *,
    base: float = 10000.0,
    offset: int = 0,
    dtype: Any = np.float32,
) -> np.ndarray:
    """[S, D]: sine in even and cosine in odd columns, from position `offset` on.

    The table that the layer `SinusoidalPositions` adds, for positions and bases of your own.
    """
    where = "sinusoidal"
    _whole(where, "length", length, at_least=0)
    _whole(where, "width", width, at_least=0)
    _whole(where, "offset", offset)
    if not base > 0:
        raise ArgumentError(
            f"The 'base' of {where} must be a number > 0. Got {base!r}.", argument="base"
        )
    return sinusoidal_table(length, width, base, offset).astype(_floating(where, dtype))


def _relative(where: str, queries: int, keys: int, offset: int) -> np.ndarray:
    """[S, T]: position of the key − position of the query."""
    _whole(where, "queries", queries, at_least=0)
    _whole(where, "keys", keys, at_least=0)
    _whole(where, "offset", offset)
    return np.arange(keys)[None, :] - (offset + np.arange(queries)[:, None])


def _whole(where: str, name: str, value: Any, at_least: int | None = None) -> None:
    whole = hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_))
    if not whole or (at_least is not None and value < at_least):
        limit = "" if at_least is None else f" ≥ {at_least}"
        raise ArgumentError(
            f"The {name!r} of {where} must be a whole number{limit}. Got {value!r}.", argument=name
        )


def _floating(where: str, dtype: Any) -> np.dtype[Any]:
    found = np.dtype(dtype)
    if found not in (np.float16, np.float32, np.float64):
        raise ArgumentError(
            f"The 'dtype' of {where} must be float16, float32 or float64. Got {found.name}.",
            argument="dtype",
        )
    return found
