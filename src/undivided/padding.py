"""Padding: tokens that only fill samples up are taken out before anything sees them.

Samples of different lengths often come in one array, filled up to the longest. Which of its tokens
count is said by an id that is none, by lengths, or by a mask. All three become one thing: a truth
value for each token. What is false is taken out, and what is left moves together, so that engines
see sequences of different lengths and nothing that is not there: no attention reaches it, no mean
counts it, no loss does, and no time is spent on it. What a sample predicts cannot depend on its
padding, wherever that stood, because the padding is gone.
"""

# N samples, S tokens of the longest

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from undivided.engines.engine import Packed
from undivided.errors import DataError
from undivided.plan.plan import Input, show_shape

__all__ = ["filled_up", "real_tokens", "without_padding"]


def real_tokens(
    x: np.ndarray, entry: Input, mask: Any = None, lengths: Any = None, where: str = "x"
) -> np.ndarray | None:
    """[N, S] bool, true for tokens that count; None where nothing says that some do not."""
    if mask is None and lengths is None and entry.padding_id is None:
        return None
    N, S = x.shape[:2]
    real = np.ones((N, S), bool)
    if entry.padding_id is not None:
        real &= x != entry.padding_id
    if lengths is not None:
        real &= np.arange(S) < _checked_lengths(lengths, N, S)[:, None]
    if mask is not None:
        real &= _checked_mask(mask, N, S)
    if not real.any(axis=1).all():
        index = int(real.any(axis=1).argmin())
        raise DataError(f"{where}[{index}] is all padding: no token of it counts. Leave it out.")
    return real


def without_padding(x: np.ndarray, real: np.ndarray) -> Packed:
    """The real tokens of each sample."""
    return Packed.of_rows(x[real], real.sum(axis=1))


def filled_up(results: Sequence[np.ndarray], real: np.ndarray) -> np.ndarray:
    """What came out for each real token at its place; 0 where there was padding."""
    whole = np.zeros((*real.shape, *results[0].shape[1:]), results[0].dtype)
    whole[real] = np.concatenate(results)
    return whole


def _checked_lengths(lengths: Any, N: int, S: int) -> np.ndarray:
    array = np.asarray(lengths)
    if array.dtype.kind not in "iu" or array.shape != (N,):
        raise DataError(
            f"lengths must hold a whole number for each sample, shape ({N},); "
            f"it is {array.dtype} {show_shape(array.shape)}."
        )
    outside = (array < 1) | (array > S)
    if outside.any():
        index = int(outside.argmax())
        raise DataError(
            f"lengths[{index}] is {int(array[index])}; samples have from 1 to {S} tokens."
        )
    return array


def _checked_mask(mask: Any, N: int, S: int) -> np.ndarray:
    array = np.asarray(mask)
    if array.dtype.kind not in "biuf" or array.shape != (N, S):
        raise DataError(
            f"mask must hold 1 for each token that counts and 0 for padding, shape ({N}, {S}); "
            f"it is {array.dtype} {show_shape(array.shape)}."
        )
    other = (array != 0) & (array != 1)
    if other.any():
        i, j = np.unravel_index(int(other.argmax()), array.shape)
        raise DataError(
            f"mask[{i}, {j}] is {array[i, j]}; a mask holds 1 for tokens that count and 0 for "
            "padding. `mask != 0` makes one of any numbers."
        )
    return array != 0
