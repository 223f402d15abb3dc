"""What a call of attention asks for, checked once and in one form for every engine behind it.

Every error names the argument, what was expected and what came.
"""

# B batch, H heads, Hkv key/value heads, S queries, T keys, D width of queries and keys, F of values

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from undivided import _native
from undivided._operator.masks import Mask
from undivided.errors import ArgumentError, suggest

__all__ = [
    "UNBOUNDED",
    "Causal",
    "Options",
    "Sizes",
    "Window",
    "array_of",
    "kind_of",
    "options_for",
    "refuse",
    "whole_number",
]

Causal = bool | Literal["top_left", "bottom_right"]
Window = tuple[int | None, int | None] | int | None

UNBOUNDED = _native.UNBOUNDED
"""A side of a window that has no bound."""
CORNERS = ("top_left", "bottom_right")


class Sizes(NamedTuple):
    """How large the axes are."""

    B: int
    H: int
    Hkv: int
    S: int
    T: int
    D: int
    F: int


@dataclass(frozen=True, slots=True)
class Options:
    """Everything but the arrays that have gradients. Arrays are what the native side takes."""

    scale: float
    softcap: float = 0.0  # 0: none
    mask: np.ndarray | None = None  # bool, four axes, each as long as its own or 1
    blocks: Mask | None = None
    query_lengths: np.ndarray | None = None  # [B] int64
    key_lengths: np.ndarray | None = None
    offsets: np.ndarray | None = None  # [B] int64, where they differ
    offset: int = 0
    left: int = UNBOUNDED
    right: int = UNBOUNDED
    dropout: float = 0.0
    seed: int = 0


def refuse(argument: str, expected: str, found: object, hint: str = "") -> ArgumentError:
    """The one form of every error here."""
    text = f"The '{argument}' of attention must be {expected}. Got {found}."
    return ArgumentError(f"{text} {hint}".rstrip(), argument=argument)


def array_of(argument: str, given: Any) -> np.ndarray:
    """As an array; NumPy refuses rows of different lengths without saying whose."""
    try:
        return np.asarray(given)
    except ValueError:
        raise refuse(argument, "an array", f"rows of different lengths: {given!r:.80}") from None


def kind_of(array: np.ndarray) -> str:
    """What an error says of something that has no numbers."""
    return f"{array.tolist()!r:.80}" if array.dtype.kind in "OUS" else str(array.dtype)


def whole_number(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool | np.ndarray)


def options_for(
    sizes: Sizes,
    *,
    mask: Any = None,
    causal: Causal = False,
    window: Window = None,
    query_lengths: Any = None,
    key_lengths: Any = None,
    query_offset: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
) -> Options:
    """The options of a call on arrays of these sizes."""
    plain = mask is None and causal is False and window is None and query_lengths is None
    plain = plain and key_lengths is None and query_offset is None and softcap is None
    if plain and dropout == 0 and seed is None and scale is None:
        return _plain(sizes.D)
    rate = _share(dropout)
    if rate and seed is None:
        raise refuse(
            "seed", "a whole number when there is dropout", None, "The same seed drops the same."
        )
    queries = _per_sample("query_lengths", query_lengths, sizes.B, 0, sizes.S)
    keys = _per_sample("key_lengths", key_lengths, sizes.B, 0, sizes.T)
    offset, offsets = _offsets(sizes, causal, query_offset, queries, keys)
    left, right = _window(window)
    if causal:
        right = min(right, 0)
    bounded = left < UNBOUNDED or right < UNBOUNDED
    if bounded and sizes.S != sizes.T and query_offset is None and causal in (True, False):
        raise ArgumentError(
            f"With {sizes.S} queries and {sizes.T} keys "
            f"{'causal=True' if causal else 'a window'} has two meanings. Say which: "
            "causal='top_left' (query 0 stands at key 0), causal='bottom_right' (the last query "
            "stands at the last key), or query_offset=N (query 0 stands at key N).",
            argument="causal" if causal else "window",
        )
    blocks = mask if isinstance(mask, Mask) else None
    return Options(
        scale=_scale(scale, sizes.D),
        softcap=_softcap(softcap),
        mask=_mask(mask, sizes) if mask is not None and blocks is None else None,
        blocks=blocks.sized(sizes.S, sizes.T) if blocks is not None else None,
        query_lengths=queries,
        key_lengths=keys,
        offsets=offsets,
        offset=offset,
        left=left,
        right=right,
        dropout=rate,
        seed=_seed(seed),
    )


@functools.cache
def _plain(width: int) -> Options:
    """Those of most calls, which should cost little."""
    return Options(scale=_scale(None, width))


def _number(argument: str, value: Any, expected: str) -> float:
    number = hasattr(value, "__float__") and np.ndim(value) == 0
    if isinstance(value, bool | str) or not number:
        raise refuse(argument, expected, repr(value))
    return float(value)


def _scale(scale: Any, width: int) -> float:
    if scale is None:
        return 1.0 / math.sqrt(max(width, 1))
    number = _number("scale", scale, "a finite number or None")
    if not math.isfinite(number):
        raise refuse("scale", "a finite number or None", number)
    return number


def _softcap(softcap: Any) -> float:
    if softcap is None:
        return 0.0
    number = _number("softcap", softcap, "a number above 0 or None")
    if not 0 < number < math.inf:
        raise refuse("softcap", "a number above 0 or None", number)
    return number


def _share(dropout: Any) -> float:
    number = _number("dropout", dropout, "a number from 0 to below 1")
    if not 0 <= number < 1:
        raise refuse("dropout", "a number from 0 to below 1", number)
    return number


def _seed(seed: Any) -> int:
    if seed is None:
        return 0
    if not whole_number(seed):
        raise refuse("seed", "a whole number of 64 bits", repr(seed))
    if not 0 <= int(seed) < 1 << 64:
        raise refuse("seed", "from 0 to 2⁶⁴ − 1", int(seed))
    return int(seed)


def _window(window: Any) -> tuple[int, int]:
    expected = "(left, right), each a whole number, or −1 or None for no bound"
    if window is None:
        return UNBOUNDED, UNBOUNDED
    if not isinstance(window, tuple | list) or len(window) != 2:
        hint = f"Write ({window}, {window}) for both sides." if isinstance(window, int) else ""
        raise refuse("window", expected, repr(window), hint)
    sides = []
    for side in window:
        if side is None:
            sides.append(UNBOUNDED)
            continue
        if not whole_number(side) or int(side) < -1:
            raise refuse("window", expected, repr(window))
        sides.append(UNBOUNDED if int(side) == -1 else min(int(side), UNBOUNDED))
    return sides[0], sides[1]


def _per_sample(argument: str, given: Any, count: int, low: int, high: int) -> np.ndarray | None:
    if given is None:
        return None
    numbers = array_of(argument, given)
    if numbers.dtype.kind not in "iu" or numbers.shape not in ((), (count,)):
        raise refuse(
            argument,
            f"whole numbers, one for each of {count} samples",
            f"{numbers.dtype} of shape {list(numbers.shape)}",
        )
    if numbers.size and not (low <= int(numbers.min()) and int(numbers.max()) <= high):
        wrong = int(numbers.min()) if int(numbers.min()) < low else int(numbers.max())
        raise refuse(argument, f"between {low} and {high}", wrong)
    return np.ascontiguousarray(np.broadcast_to(numbers, (count,)), np.int64)


def _offsets(
    sizes: Sizes,
    causal: Any,
    query_offset: Any,
    queries: np.ndarray | None,
    keys: np.ndarray | None,
) -> tuple[int, np.ndarray | None]:
    word = isinstance(causal, str)
    if not (isinstance(causal, bool | np.bool_) or (word and causal in CORNERS)):
        near = suggest(causal, CORNERS).strip() if word else ""
        raise refuse("causal", "True, False, 'top_left' or 'bottom_right'", repr(causal), near)
    if causal == "bottom_right":
        if query_offset is not None:
            raise ArgumentError(
                "causal='bottom_right' says where queries stand, and 'query_offset' says it "
                "again. Give one of the two.",
                argument="query_offset",
            )
        if queries is None and keys is None:
            return sizes.T - sizes.S, None
        zeros = np.zeros(sizes.B, np.int64)
        last_key = zeros + sizes.T if keys is None else keys
        return 0, last_key - (zeros + sizes.S if queries is None else queries)
    if query_offset is None:
        return 0, None
    offsets = _per_sample("query_offset", query_offset, sizes.B, -(1 << 31), 1 << 31)
    assert offsets is not None
    if np.ndim(query_offset) == 0:
        return int(query_offset), None
    return 0, offsets


def _mask(mask: Any, sizes: Sizes) -> np.ndarray:
    cells = array_of("mask", mask)
    if cells.dtype != np.bool_:
        if cells.dtype.kind in "fiu":
            hint = "Write `mask != 0`; what is added to scores goes into 'bias'."
        else:
            hint = ""
        raise refuse(
            "mask",
            "boolean, True where a query may attend, or made by undivided.masks",
            kind_of(cells),
            hint,
        )
    return broadcastable("mask", cells, sizes)


def broadcastable(argument: str, cells: np.ndarray, sizes: Sizes) -> np.ndarray:
    """As it is, with four axes, if it broadcasts to [B, H, S, T]."""
    shape = (sizes.B, sizes.H, sizes.S, sizes.T)
    whole = (1,) * (4 - cells.ndim) + cells.shape
    if cells.ndim > 4 or any(n not in (1, N) for n, N in zip(whole, shape, strict=True)):
        raise refuse(
            argument,
            f"of a shape that broadcasts to [B, H, S, T] = {list(shape)}",
            list(cells.shape),
            "Add axes of length 1 where it is the same for all.",
        )
    return cells.reshape(whole)
