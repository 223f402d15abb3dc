"""Which query may attend to which key.

    allowed[b,h,i,j] = mask[b,h,i,j] ∧ i < query_length[b] ∧ j < key_length[b]
                       ∧ (causal ⇒ j ≤ p)                     p = i + offset[b]: where query i
                       ∧ p − left ≤ j ≤ p + right             stands among the keys

With 3 queries and 5 keys (`#` is allowed):

    causal="top_left"   causal="bottom_right"   causal, query_offset=1   window=(1, 1)
    # . . . .           # # # . .               # # . . .                # # . . .
    # # . . .           # # # # .               # # # . .                # # # . .
    # # # . .           # # # # #               # # # # .                . # # # .
"""

# B batch, H heads, S queries, T keys

from __future__ import annotations

from typing import Any

import numpy as np

from undivided.errors import ArgumentError, suggest

__all__ = ["allowed_cells", "per_sample"]

CORNERS = ("top_left", "bottom_right")


def allowed_cells(
    shape: tuple[int, int, int, int],
    *,
    mask: Any = None,
    causal: bool | str = False,
    window: tuple[int | None, int | None] | None = None,
    query_lengths: Any = None,
    key_lengths: Any = None,
    query_offset: Any = None,
) -> np.ndarray:
    """[B, H, S, T] bool, True where a query may attend to a key."""
    _, _, S, T = shape
    i, j = np.arange(S)[:, None], np.arange(T)
    queries, keys = per_sample(query_lengths, S), per_sample(key_lengths, T)
    allowed = (i < queries) & (j < keys)

    position = i + _offset(query_offset, causal, keys - queries)
    if causal:
        allowed = allowed & (j <= position)
    left, right = window or (None, None)
    if left not in (None, -1):
        allowed = allowed & (j >= position - left)
    if right not in (None, -1):
        allowed = allowed & (j <= position + right)
    if mask is not None:
        allowed = allowed & _as_array(mask, shape)
    return np.broadcast_to(allowed, shape)


def per_sample(numbers: Any, otherwise: int) -> np.ndarray:
    """One number for all samples or one for each, as [1, 1, 1, 1] or [B, 1, 1, 1]."""
    return np.asarray(otherwise if numbers is None else numbers, np.int64).reshape(-1, 1, 1, 1)


def _offset(query_offset: Any, causal: bool | str, corner: np.ndarray) -> np.ndarray:
    """Where query 0 stands among the keys."""
    if isinstance(causal, str) and causal not in CORNERS:
        raise ArgumentError(
            "The 'causal' of attention must be True, False, 'top_left' or 'bottom_right'. "
            f"Got {causal!r}.{suggest(causal, CORNERS)}",
            argument="causal",
        )
    if causal != "bottom_right":
        return per_sample(query_offset, 0)
    if query_offset is not None:
        raise ArgumentError(
            "causal='bottom_right' says where queries stand, and 'query_offset' says it again. "
            "Give one of the two.",
            argument="query_offset",
        )
    return corner


def _as_array(mask: Any, shape: tuple[int, int, int, int]) -> np.ndarray:
    """An array of bool that fits [B, H, S, T]."""
    cells = np.asarray(mask.to_array(*shape[2:]) if hasattr(mask, "to_array") else mask)
    if cells.dtype != np.bool_:
        raise ArgumentError(
            "The 'mask' of attention must be boolean, True where a query may attend. "
            f"Got {cells.dtype.name}. Write `mask != 0`; what is added to scores goes into 'bias'.",
            argument="mask",
        )
    fits = cells.ndim <= 4 and all(
        n in (1, N) for n, N in zip(cells.shape[::-1], shape[::-1], strict=False)
    )
    if not fits:
        raise ArgumentError(
            f"The 'mask' of attention must broadcast to [B, H, S, T] = {list(shape)}. "
            f"Got {list(cells.shape)}. Add axes of length 1 where it is the same for all.",
            argument="mask",
        )
    return cells
