"""Block-sparse masks: a rule that says which query may attend to which key.

    window(left, right)   q − left ≤ k ≤ q + right        strided(s)        (q − k) mod s = 0
    causal()              k ≤ q                           block_local(s)    ⌊q/s⌋ = ⌊k/s⌋
    documents(ids)        ids[q] = ids[k]                 global_tokens(g)  q ∈ g or k ∈ g
    random(n)             ⌊k/b⌋ among n blocks drawn for ⌊q/b⌋              full()  always

Rules compose with `&`, `|` and `~`, and print as pictures (queries down, keys across):

    window(2)          strided(3)         block_local(3)     window(1) | global_tokens(1)
    # . . . . .        # . . # . .        # # # . . .        # # # # # #
    # # . . . .        . # . . # .        # # # . . .        # # . . . .
    # # # . . .        . . # . . #        # # # . . .        # # # . . .
    . # # # . .        # . . # . .        . . . # # #        # . # # . .
    . . # # # .        . # . . # .        . . . # # #        # . . # # .
    . . . # # #        . . # . . #        . . . # # #        # . . . # #

Three files: what a mask is and how masks compose, here; the rules, `mask_rules.py`; and what
attention's kernels take, blocks of 64 queries and 64 keys, `mask_blocks.py`.
"""

# S queries, T keys; q, k positions among them
#
# decisions  int8      −1 nothing in a rectangle is allowed, 1 everything is, 0 not known

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from undivided.errors import ArgumentError

if TYPE_CHECKING:
    from undivided._operator.mask_blocks import Blocks

__all__ = ["BLOCK", "And", "Area", "Mask", "Not", "Or", "decision", "whole"]

BLOCK = 64
"""Queries and keys in a block: as many keys as a word has bits."""

DRAWN = 16  # rows and columns that print(mask) shows


class Area(NamedTuple):
    """Rectangles of cells, by the first and last query and key of each; the arrays broadcast."""

    q_first: np.ndarray
    q_last: np.ndarray
    k_first: np.ndarray
    k_last: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*(corner.shape for corner in self))

    @property
    def distances(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest k − q."""
        return self.k_first - self.q_last, self.k_last - self.q_first


class Mask:
    """A rule for which query may attend to which key. The functions of mask_rules.py make them."""

    relative: bool = False
    """Whether it depends on the distance k − q alone."""

    __array_ufunc__ = None  # an array leaves `array & mask` to this class, which refuses it

    # What a rule must say of itself; positions are int64.

    def _allows(self, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _decide(self, area: Area) -> np.ndarray:
        raise NotImplementedError

    # What it may say of itself.

    @property
    def extent(self) -> tuple[int, int] | None:
        """The only numbers of queries and keys that it was made for; None: any will do."""
        return None

    def sized(self, queries: int, keys: int) -> Mask:
        """This mask for so many queries and keys, or an error if it was made for others.

        Only `random` becomes another: what it draws depends on how many keys there are.
        """
        extent = self.extent
        if extent is not None and extent != (queries, keys):
            raise ArgumentError(
                f"The mask {self!r} is for {extent[0]} queries and {extent[1]} keys. Got "
                f"{queries} queries and {keys} keys. Give it an id for each query and each key.",
                argument="mask",
            )
        return self

    def _words(self, words_of: Callable[[Mask], np.ndarray]) -> np.ndarray | None:
        """Bits out of the bits of its parts, if it has parts."""
        return None

    # What everybody asks of it.

    def allows(self, q: Any, k: Any) -> np.ndarray:
        """Whether the query at q may attend to the key at k; both from 0, and they broadcast."""
        return np.asarray(self._allows(*_positions(q, k)))

    def decide(self, q_first: Any, q_last: Any, k_first: Any, k_last: Any) -> np.ndarray:
        """−1 where surely nothing in a rectangle is allowed, 1 where surely all is, else 0."""
        return np.asarray(self._decide(Area(*_positions(q_first, q_last, k_first, k_last))))

    def to_array(self, queries: int, keys: int) -> np.ndarray:
        """[S, T] bool. Attention does not need it; it is for looking at."""
        sized = self.sized(*_lengths("to_array", queries, keys))
        cells = np.empty((queries, keys), np.bool_)
        rows = max(1, 2**20 // max(keys, 1))  # positions take eight times the room of a cell
        for start in range(0, queries, rows):
            q = np.arange(start, min(start + rows, queries))
            cells[start : start + rows] = sized._allows(q[:, None], np.arange(keys))
        return cells

    def blocks(self, queries: int, keys: int) -> Blocks:
        """What is allowed, block by block; the last few are remembered."""
        from undivided._operator.mask_blocks import blocks_of

        return blocks_of(self, *_lengths("blocks", queries, keys))

    def draw(self, queries: int = DRAWN, keys: int = DRAWN) -> str:
        """A picture of the corner of the first queries and keys."""
        queries, keys = _lengths("draw", queries, keys)
        if self.extent is not None:
            queries, keys = min(queries, self.extent[0]), min(keys, self.extent[1])
        sized = self.sized(*(self.extent or (queries, keys)))
        cells = sized._allows(np.arange(queries)[:, None], np.arange(keys))
        margin = len(str(max(queries - 1, 0)))
        ruler = "".join(f"{k:<8}" for k in range(0, keys, 4)).rstrip()
        rows = [
            f"{q:>{margin}}  {' '.join('#' if cell else '.' for cell in row)}"
            for q, row in enumerate(cells)
        ]
        legend = "queries down, keys across: # may attend, . may not"
        return "\n".join([repr(self), f"{'':{margin}}  {ruler}", *rows, legend])

    def __str__(self) -> str:
        return self.draw()

    def __and__(self, other: Any) -> Mask:
        return And(_joined(And, "&", self, other))

    def __or__(self, other: Any) -> Mask:
        return Or(_joined(Or, "|", self, other))

    def __invert__(self) -> Mask:
        return Not(self)

    def __rand__(self, other: Any) -> Mask:
        return And(_joined(And, "&", other, self))  # other is no mask: this is its error

    def __ror__(self, other: Any) -> Mask:
        return Or(_joined(Or, "|", other, self))

    def __bool__(self) -> bool:
        raise ArgumentError(
            "A mask is neither true nor false. Compose with &, | and ~ instead of `and`, `or` "
            "and `not`; ask `mask is None`."
        )


# What is made of others.


class Composite(Mask):
    """What it says of a cell, a word of cells or a rectangle comes from what its parts say."""

    masks: tuple[Mask, ...]

    def _fold(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        """The bits of the whole from those of the parts: of bool or of words."""
        raise NotImplementedError

    @property
    def relative(self) -> bool:  # type: ignore[override]
        return all(mask.relative for mask in self.masks)

    @property
    def extent(self) -> tuple[int, int] | None:
        return next((mask.extent for mask in self.masks if mask.extent is not None), None)

    def _allows(self, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return self._fold(mask._allows(q, k) for mask in self.masks)

    def _words(self, words_of: Callable[[Mask], np.ndarray]) -> np.ndarray | None:
        return self._fold(words_of(mask) for mask in self.masks)


@dataclass(frozen=True)
class And(Composite):
    masks: tuple[Mask, ...]

    def sized(self, queries: int, keys: int) -> Mask:
        return And(tuple(mask.sized(queries, keys) for mask in self.masks))

    def _fold(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        return functools.reduce(operator.and_, parts)

    def _decide(self, area: Area) -> np.ndarray:
        return functools.reduce(np.minimum, (mask._decide(area) for mask in self.masks))

    def __repr__(self) -> str:
        return " & ".join(_in_brackets(mask, Or) for mask in self.masks)


@dataclass(frozen=True)
class Or(Composite):
    masks: tuple[Mask, ...]

    def sized(self, queries: int, keys: int) -> Mask:
        return Or(tuple(mask.sized(queries, keys) for mask in self.masks))

    def _fold(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        return functools.reduce(operator.or_, parts)

    def _decide(self, area: Area) -> np.ndarray:
        return functools.reduce(np.maximum, (mask._decide(area) for mask in self.masks))

    def __repr__(self) -> str:
        return " | ".join(repr(mask) for mask in self.masks)


@dataclass(frozen=True)
class Not(Composite):
    mask: Mask

    @property
    def masks(self) -> tuple[Mask, ...]:  # type: ignore[override]
        return (self.mask,)

    def sized(self, queries: int, keys: int) -> Mask:
        return Not(self.mask.sized(queries, keys))

    def _fold(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        (part,) = parts
        return ~part

    def _decide(self, area: Area) -> np.ndarray:
        return -self.mask._decide(area)

    def __invert__(self) -> Mask:
        return self.mask

    def __repr__(self) -> str:
        return f"~{_in_brackets(self.mask, And, Or)}"


def decision(nothing: np.ndarray, everything: np.ndarray) -> np.ndarray:
    return everything.astype(np.int8) - nothing.astype(np.int8)


# Words and checks.


def _joined(kind: type[And] | type[Or], sign: str, *pair: Any) -> tuple[Mask, ...]:
    """The parts of both, so that a & b & c is one thing of three."""
    parts: list[Mask] = []
    for mask in pair:
        if not isinstance(mask, Mask):
            raise ArgumentError(
                f"A mask composes with a mask of undivided.masks. Got {type(mask).__name__} "
                f"beside `{sign}`. Compose arrays with arrays: mask.to_array(S, T)."
            )
        parts += mask.masks if isinstance(mask, kind) else (mask,)
    return tuple(parts)


def _in_brackets(mask: Mask, *kinds: type[Mask]) -> str:
    return f"({mask!r})" if isinstance(mask, kinds) else repr(mask)


def _positions(*positions: Any) -> list[np.ndarray]:
    arrays = [np.asarray(position) for position in positions]
    for array in arrays:
        if array.dtype.kind not in "iu" and array.size:
            raise ArgumentError(f"Positions must be whole numbers. Got {array.dtype.name}.")
    return [array.astype(np.int64, copy=False) for array in arrays]


def _lengths(of: str, queries: Any, keys: Any) -> tuple[int, int]:
    return whole(of, "queries", queries, at_least=0), whole(of, "keys", keys, at_least=0)


_MOST = 2**62  # so that the distance of two positions is still one of 64 bits


def whole(
    of: str, name: str, value: Any, at_least: int = -_MOST, at_most: int = _MOST, hint: str = ""
) -> int:
    integral = type(value) is int or isinstance(value, np.integer)
    if not integral or not at_least <= value <= at_most:
        low = f" ≥ {at_least}" if at_least > -_MOST else ""
        high = f" and ≤ {at_most}" if integral and value > at_most else ""
        raise ArgumentError(
            f"The {name!r} of {of} must be a whole number{low}{high}. Got {value!r}.{hint}",
            argument=name,
        )
    return int(value)
