"""Short calls at the least cost: float32 rows that kernels read where they lie, nothing else asked.

Where sequences are short a call's arithmetic takes a few microseconds, and what surrounds it can
take several times that. A call that passes here asks for nothing that would have to be checked or
brought into order; the kernels and their bits are those of every other call.
"""

# B batch, H heads, Hkv key/value heads, S queries, T keys, D width of queries and keys, F of values

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from undivided import _native
from undivided._operator import core
from undivided.engines.native.machine import instruction_set, thread_count

__all__ = ["attention", "kept_width", "run", "sizes_of", "workers_for"]

FLOAT32 = np.dtype(np.float32)

Seven = tuple[int, int, int, int, int, int, int]


def attention(
    query: Any, key: Any, value: Any, causal: bool, threads: int | None, weights: bool = False
) -> Any:
    """out [B, H, S, F], and with `weights` those too, or None where a call is not short."""
    if not (_plain(query) and _plain(key) and _plain(value)):
        return None
    sizes = sizes_of(query.shape, key.shape, value.shape, causal)
    if sizes is None:
        return None
    rows, T = query.shape[:3], sizes[4]
    address, recycled = _native.address, _native.recycled
    out = recycled((*rows, sizes[6]))
    places = (address(query), address(key), address(value), address(out))
    workers = workers_for(sizes, threads)
    if not weights:
        run(core.FORWARD, workers, sizes, causal, *places)
        return out
    found = recycled((*rows, _row_width(T)))
    run(core.FORWARD, workers, sizes, causal, *places, address(found))
    return out, found[..., :T]


def _plain(x: Any) -> bool:
    return type(x) is np.ndarray and x.dtype is FLOAT32 and x.flags.c_contiguous


@functools.lru_cache(maxsize=256)
def sizes_of(
    query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...], causal: bool
) -> Seven | None:
    """(B, H, Hkv, S, T, D, F) of three shapes, or None where they are for the general way."""
    if not (len(query) == len(key) == len(value) == 4) or 0 in query or 0 in key or 0 in value:
        return None
    B, H, S, D = query
    _, Hkv, T, F = value
    fits = key == (B, Hkv, T, D) and value[0] == B and H % Hkv == 0
    whole = D % core.PAD == 0 and F % core.PAD == 0 and T <= core.WHOLE_KEYS
    if not (fits and whole) or (causal and S != T):
        return None
    return B, H, Hkv, S, T, D, F


def kept_width(sizes: Seven) -> int | None:
    """How wide the rows of probabilities are that are kept, None where that would be too many."""
    B, H, _, S, T, _, _ = sizes
    width = _row_width(T)
    return width if B * H * S * width * FLOAT32.itemsize <= core.KEPT_BYTES else None


def _row_width(T: int) -> int:
    return -(-T // core.PAD) * core.PAD


def workers_for(sizes: Seven, threads: int | None) -> int:
    if threads is None:
        B, H, _, S, T, D, F = sizes
        if B * H * S * T * (D + F) < core.SMALL:
            return 1
    return thread_count(threads)


def run(phase: int, workers: int, sizes: Seven, causal: bool, *places: int) -> None:
    """places: addresses of query, key, value, out, probabilities, d_out, d_query, d_key, d_value;
    0 where there is none, also for those left out at the end."""
    _native.attend_short(
        instruction_set(),
        phase,
        workers,
        sizes,
        1.0 / math.sqrt(sizes[5]),
        causal,
        *places,
        *(0,) * (9 - len(places)),
    )
