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

Attention wants to know it by blocks of 64 queries and 64 keys: skip this one, take all of that
one, look at the bits of a third. `mask.blocks(S, T)` says so and never builds the S×T array: a
rule first *decides* about a rectangle as a whole, and only where it cannot are cells looked at. A
rule of q − k alone is the same along a diagonal of blocks, so one block of each stands for all.
"""

# S queries, T keys; q, k positions among them; I, J blocks of 64 of them; N blocks at a time
#
# decisions  int8      −1 nothing in a rectangle is allowed, 1 everything is, 0 not known
# states     [I, J]    −1 nothing in a block is allowed, 0 everything is, n ≥ 1: see patterns[n−1]
# words      [N, 64]   uint64, row i of a block: bit j says whether its column j is allowed

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from undivided.errors import ArgumentError
from undivided.training.generators import philox4x32

__all__ = [
    "BLOCK",
    "Blocks",
    "Mask",
    "block_local",
    "causal",
    "documents",
    "full",
    "global_tokens",
    "random",
    "strided",
    "window",
]

BLOCK = 64
"""Queries and keys in a block: as many keys as a word has bits."""

DRAWN = 16  # rows and columns that print(mask) shows
SHOWN = 16  # numbers of a list that repr(mask) shows
NOTHING, EVERYTHING = -1, 0  # states


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
    """A rule for which query may attend to which key. The functions of this module make them."""

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
        return _blocks(self, *_lengths("blocks", queries, keys))

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


# Rules of the distance alone.


@dataclass(frozen=True)
class Full(Mask):
    relative = True

    def _allows(self, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return np.ones(np.broadcast_shapes(q.shape, k.shape), np.bool_)

    def _decide(self, area: Area) -> np.ndarray:
        return np.ones(area.shape, np.int8)

    def __repr__(self) -> str:
        return "full()"


def full() -> Mask:
    """Every query may attend to every key."""
    return Full()


@dataclass(frozen=True)
class Window(Mask):
    """offset − left ≤ k − q ≤ offset + right."""

    left: int | None
    right: int | None
    offset: int
    relative = True

    def _allows(self, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        distance = k - q - self.offset
        allowed = np.ones(distance.shape, np.bool_)
        if self.left is not None:
            allowed &= distance >= -self.left
        if self.right is not None:
            allowed &= distance <= self.right
        return allowed

    def _decide(self, area: Area) -> np.ndarray:
        least, most = (distance - self.offset for distance in area.distances)
        low = least.min(initial=0) if self.left is None else -self.left
        high = most.max(initial=0) if self.right is None else self.right
        return _decision((most < low) | (least > high), (least >= low) & (most <= high))

    def __repr__(self) -> str:
        offset = f"offset={self.offset}" if self.offset else ""
        if (self.left, self.right) == (None, 0):
            return f"causal({offset})"
        right = "" if self.right == 0 else str(self.right)
        return f"window({', '.join(filter(None, (str(self.left), right, offset)))})"


def causal(offset: int = 0) -> Mask:
    """k ≤ q + offset: a query may attend to the keys up to its own place."""
    return Window(None, 0, _whole("causal", "offset", offset))


def window(left: int | None, right: int | None = 0, offset: int = 0) -> Mask:
    """q + offset − left ≤ k ≤ q + offset + right; None or −1 is no bound."""
    return Window(
        _bound("left", left),
        _bound("right", right),
        _whole("window", "offset", offset),
    )


@dataclass(frozen=True)
class Strided(Mask):
    """(q − k) mod stride = 0."""

    stride: int
    relative = True

    def _allows(self, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return (q - k) % self.stride == 0

    def _decide(self, area: Area) -> np.ndarray:
        least, most = area.distances
        hit = most // self.stride * self.stride  # the last multiple up to `most`
        everything = (hit == most) if self.stride == 1 else (least == most) & (hit == most)
        return _decision(hit < least, everything)

    def __repr__(self) -> str:
        return f"strided({self.stride})"


def strided(stride: int) -> Mask:
    """Every stride-th key, counted from the query in both directions."""
    return Strided(_whole("strided", "stride", stride, at_least=1))


# Rules of the place.


@dataclass(frozen=True)
class BlockLocal(Mask):
    """⌊q/size⌋ = ⌊k/size⌋."""

    size: int

    def _allows(self, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return q // self.size == k // self.size

    def _decide(self, area: Area) -> np.ndarray:
        return _same(*(corner // self.size for corner in area))

    def __repr__(self) -> str:
        return f"block_local({self.size})"


def block_local(size: int) -> Mask:
    """The sequence is cut into blocks of `size`; a query sees the keys of its own block."""
    return BlockLocal(_whole("block_local", "size", size, at_least=1))


@dataclass(frozen=True)
class Global(Mask):
    """q or k is one of the tokens, which are in order; a number n is the first n."""

    tokens: int | tuple[int, ...]

    def _allows(self, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return (self._count(q, q) > 0) | (self._count(k, k) > 0)

    def _decide(self, area: Area) -> np.ndarray:
        rows = self._count(area.q_first, area.q_last)
        columns = self._count(area.k_first, area.k_last)
        all_rows = rows == area.q_last - area.q_first + 1
        all_columns = columns == area.k_last - area.k_first + 1
        return _decision((rows == 0) & (columns == 0), all_rows | all_columns)

    def _count(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """How many of the tokens lie from first to last."""
        if isinstance(self.tokens, int):
            return np.clip(np.minimum(last + 1, self.tokens) - first, 0, None)
        after = np.searchsorted(self._sorted, last, "right")
        return after - np.searchsorted(self._sorted, first, "left")

    @functools.cached_property
    def _sorted(self) -> np.ndarray:
        return np.array(self.tokens, np.int64)

    def __repr__(self) -> str:
        tokens = self.tokens if isinstance(self.tokens, int) else _shown(self.tokens)
        return f"global_tokens({tokens})"


def global_tokens(tokens: int | Sequence[int] | np.ndarray) -> Mask:
    """These tokens see all and are seen by all: positions, or a number n for the first n."""
    if np.ndim(tokens) == 0:
        return Global(_whole("global_tokens", "tokens", tokens, at_least=0))
    places = sorted({int(place) for place in _integers("global_tokens", "tokens", tokens)})
    if places and places[0] < 0:
        raise ArgumentError(
            f"The 'tokens' of global_tokens must be positions from 0. Got {places[0]}.",
            argument="tokens",
        )
    first_ones = places == list(range(len(places)))
    return Global(len(places) if first_ones else tuple(places))


@dataclass(frozen=True)
class Random(Mask):
    """The block of k is among those that were drawn for the block of q."""

    per_row: int
    block: int
    seed: int
    size: tuple[int, int] | None = None  # queries and keys, once they are known

    @property
    def extent(self) -> tuple[int, int] | None:
        return self.size

    def sized(self, queries: int, keys: int) -> Mask:
        return replace(self, size=(queries, keys))

    @property
    def _choice(self) -> np.ndarray:
        if self.size is None:
            raise ArgumentError(
                f"{self!r} draws among the keys that there are. Say how many queries and keys: "
                "mask.sized(queries, keys)."
            )
        queries, keys = (-(-n // self.block) for n in self.size)
        return _drawn(self.per_row, self.seed, queries, keys)

    def _allows(self, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        return self._count(q // self.block, k // self.block, k // self.block) > 0

    def _decide(self, area: Area) -> np.ndarray:
        row, last, low, high = (corner // self.block for corner in area)
        rows, count = last - row + 1, 0 * (last + low)
        most = min(int(rows.max(initial=0)), BLOCK)  # of more rows nothing is decided
        for i in range(most):
            count = count + np.where(i < rows, self._count(row + i, low, high), 0)
        known = rows <= most
        return _decision((count == 0) & known, (count == rows * (high - low + 1)) & known)

    def _count(self, row: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """How many blocks were drawn for a row of blocks, from low to high."""
        drawn, row = self._choice, row * _ROW
        return np.searchsorted(drawn, row + high, "right") - np.searchsorted(drawn, row + low)

    def __repr__(self) -> str:
        return f"random({self.per_row}, block={self.block}, seed={self.seed})"


def random(per_row: int, block: int = BLOCK, seed: int = 0) -> Mask:
    """Each block of queries sees `per_row` blocks of keys, drawn at random.

    Every pair of blocks has a number, a Philox word of the seed and the two; of the blocks of
    keys that there are, those with the lowest numbers are taken. So more queries change nothing,
    and with more keys a choice changes only where one of the new blocks takes its place.
    """
    return Random(
        _whole("random", "per_row", per_row, at_least=0),
        _whole("random", "block", block, at_least=1),
        _whole("random", "seed", seed, at_least=0, at_most=2**64 - 1),
    )


_ROW = 2**32  # what lies between two rows of blocks in the list of those that were drawn
_PURPOSE = 0x6D61736B  # the last word of the counter: "mask"


@functools.lru_cache(maxsize=8)
def _drawn(per_row: int, seed: int, queries: int, keys: int) -> np.ndarray:
    """I·2³² + J, in order, of all blocks (I, J) that were drawn."""
    taken = min(per_row, keys)
    if taken == 0:
        return np.empty(0, np.int64)
    key = (seed & 0xFFFFFFFF, seed >> 32)
    fours = -(-keys // 4)  # a counter gives four words
    rows = max(1, 2**16 // fours)
    drawn = []
    for start in range(0, queries, rows):
        row = np.arange(start, min(start + rows, queries), dtype=np.uint32)
        counter = np.zeros((len(row), fours, 4), np.uint32)
        counter[:, :, 0] = np.arange(fours)
        counter[:, :, 1] = row[:, None]
        counter[:, :, 3] = _PURPOSE
        words = philox4x32(counter.reshape(-1, 4), key).reshape(len(row), -1)[:, :keys]
        # The column in the low half: it tells apart what drew the same word, and comes out.
        order = words.astype(np.uint64) << np.uint64(32) | np.arange(keys, dtype=np.uint64)
        lowest = np.partition(order, taken - 1, axis=1)[:, :taken] & np.uint64(0xFFFFFFFF)
        drawn.append(
            np.sort(lowest, axis=1).astype(np.int64) + row[:, None].astype(np.int64) * _ROW
        )
    return np.concatenate([part.reshape(-1) for part in drawn] or [np.empty(0, np.int64)])


@dataclass(frozen=True)
class Documents(Mask):
    """query_ids[q] = key_ids[k]; int64 as bytes, which hash and compare quickly."""

    query_ids: bytes
    key_ids: bytes

    @property
    def extent(self) -> tuple[int, int] | None:
        return len(self._queries), len(self._keys)

    def _allows(self, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        try:
            return self._queries[q] == self._keys[k]
        except IndexError:
            raise ArgumentError(
                f"{self!r} is for {len(self._queries)} queries and {len(self._keys)} keys. "
                "Got a position beyond them."
            ) from None

    def _decide(self, area: Area) -> np.ndarray:
        query_low, query_high = _bounds(
            self._queries, self._query_bounds, area.q_first, area.q_last
        )
        key_low, key_high = _bounds(self._keys, self._key_bounds, area.k_first, area.k_last)
        return _same(query_low, query_high, key_low, key_high)

    @functools.cached_property
    def _queries(self) -> np.ndarray:
        return np.frombuffer(self.query_ids, np.int64)

    @functools.cached_property
    def _keys(self) -> np.ndarray:
        return np.frombuffer(self.key_ids, np.int64)

    @functools.cached_property
    def _query_bounds(self) -> np.ndarray:
        return _bounds_by_block(self._queries)

    @functools.cached_property
    def _key_bounds(self) -> np.ndarray:
        return _bounds_by_block(self._keys)

    def __repr__(self) -> str:
        both = (
            [self.query_ids] if self.query_ids == self.key_ids else [self.query_ids, self.key_ids]
        )
        return f"documents({', '.join(_shown(np.frombuffer(ids, np.int64)) for ids in both)})"


def documents(
    query_ids: Sequence[int] | np.ndarray, key_ids: Sequence[int] | np.ndarray | None = None
) -> Mask:
    """Several documents laid end to end: a query sees the keys with the id of its own document.

    One id for each token: `documents([0, 0, 0, 1, 1])`. Where keys are not the queries' own
    tokens, they have their own ids.
    """
    queries = _integers("documents", "query_ids", query_ids)
    keys = queries if key_ids is None else _integers("documents", "key_ids", key_ids)
    return Documents(queries.tobytes(), keys.tobytes())


def _bounds_by_block(ids: np.ndarray) -> np.ndarray:
    """[2, I]: the lowest and the highest id of each block."""
    starts = np.arange(0, len(ids), BLOCK)
    if len(starts) == 0:
        return np.empty((2, 0), np.int64)
    return np.stack([np.minimum.reduceat(ids, starts), np.maximum.reduceat(ids, starts)])


def _bounds(
    ids: np.ndarray, by_block: np.ndarray, first: np.ndarray, last: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Between what the ids from first to last lie: that of their one or two blocks, or of all."""
    a, b = first // BLOCK, last // BLOCK
    near = b - a <= 1
    low = np.where(near, np.minimum(by_block[0, a], by_block[0, b]), ids.min(initial=0))
    high = np.where(near, np.maximum(by_block[1, a], by_block[1, b]), ids.max(initial=0))
    return low, high


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


# Blocks.


@dataclass(frozen=True, eq=False, repr=False)
class Blocks:
    """What a mask allows in each block of 64 queries and 64 keys. Read-only: others share it.

    What lies beyond the last query or key counts neither way, and its bits mean nothing.
    """

    states: np.ndarray
    """[⌈S/64⌉, ⌈T/64⌉] int32: −1 nothing is allowed, 0 everything is, n ≥ 1: see patterns[n−1]."""

    patterns: np.ndarray
    """[n, 64] uint64, no two alike: bit j of patterns[p, i] is row i, column j of the block."""

    queries: int
    keys: int

    def to_array(self) -> np.ndarray:
        """[S, T] bool, the same as the mask's own."""
        bits = np.arange(BLOCK, dtype=np.uint64)
        cells = np.empty((len(self.patterns) + 2, BLOCK, BLOCK), np.bool_)
        cells[0], cells[1] = False, True  # −1 nothing, 0 everything
        cells[2:] = self.patterns[:, :, None] >> bits & np.uint64(1)
        rows, columns = (n * BLOCK for n in self.states.shape)
        whole = cells[self.states + 1].transpose(0, 2, 1, 3).reshape(rows, columns)
        return whole[: self.queries, : self.keys]

    def __repr__(self) -> str:
        nothing, everything = (int((self.states == s).sum()) for s in (NOTHING, EVERYTHING))
        mixed = self.states.size - nothing - everything
        return (
            f"Blocks({self.queries} × {self.keys} in {self.states.size} blocks: {nothing} skipped, "
            f"{everything} whole, {mixed} by {len(self.patterns)} patterns)"
        )


@functools.lru_cache(maxsize=8)
def _blocks(mask: Mask, queries: int, keys: int) -> Blocks:
    return _Compiler(mask, queries, keys).compile()


class _Compiler:
    """Finds the state of every block of a mask, and numbers the patterns as they come."""

    def __init__(self, mask: Mask, queries: int, keys: int) -> None:
        self.mask = mask.sized(queries, keys)
        self.queries, self.keys = queries, keys
        self.rows, self.columns = -(-queries // BLOCK), -(-keys // BLOCK)
        self.numbers: dict[bytes, int] = {}
        self.tables: dict[Mask, np.ndarray] = {}

    def compile(self) -> Blocks:
        states = np.empty((self.rows, self.columns), np.int32)
        if self.mask.relative:
            self.fill_diagonals(states)
        else:
            self.fill(states, 0, self.rows, 0, self.columns)
        patterns = np.frombuffer(b"".join(self.numbers), np.uint64).reshape(-1, BLOCK)
        states.flags.writeable = False
        return Blocks(states, patterns, self.queries, self.keys)

    def fill(self, states: np.ndarray, row: int, rows: int, column: int, columns: int) -> None:
        """The states from one row to another and from one column to another."""
        k = np.arange(column, columns)[None, :] * BLOCK
        at_once = max(1, 2**16 // max(columns - column, 1))
        for start in range(row, rows, at_once):
            stop = min(start + at_once, rows)
            q = np.arange(start, stop)[:, None] * BLOCK
            states[start:stop, column:columns] = self.classify(q, k)

    def fill_diagonals(self, states: np.ndarray) -> None:
        """One block of each diagonal for all that are complete, then those at the two edges."""
        rows, columns = self.queries // BLOCK, self.keys // BLOCK
        if rows and columns:
            along = self.classify(*_first_of_diagonals(rows, columns))
            # Row I of the blocks is states I, I − 1, …: the diagonals in the other direction.
            views = np.lib.stride_tricks.sliding_window_view(along[::-1], columns)
            states[:rows, :columns] = views[::-1]
        self.fill(states, rows, self.rows, 0, self.columns)
        self.fill(states, 0, rows, columns, self.columns)

    def classify(self, q: np.ndarray, k: np.ndarray) -> np.ndarray:
        """The states of the blocks that begin at (q, k), which broadcast."""
        q_last = np.minimum(q + BLOCK, self.queries) - 1
        k_last = np.minimum(k + BLOCK, self.keys) - 1
        area = Area(q, q_last, k, k_last)
        decisions = self.mask._decide(area)
        states = np.where(decisions < 0, NOTHING, EVERYTHING).astype(np.int32)
        unknown = np.nonzero(decisions == 0)
        corners = [np.broadcast_to(corner, area.shape)[unknown] for corner in area]
        found = np.empty(len(unknown[0]), np.int32)
        for start in range(0, len(found), _WORDS_AT_ONCE):
            part = slice(start, start + _WORDS_AT_ONCE)
            found[part] = self.look(Area(*(corner[part] for corner in corners)))
        states[unknown] = found
        return states

    def look(self, area: Area) -> np.ndarray:
        """[N] states of blocks that nothing could be decided of, from their bits."""
        words = self.words(self.mask, area)
        # What there is of a block: the low bits, as many as keys, in as many rows as queries.
        columns = _ALL >> (BLOCK - 1 - (area.k_last - area.k_first)).astype(np.uint64)
        rows = np.arange(BLOCK) <= (area.q_last - area.q_first)[:, None]
        there = np.where(rows, columns[:, None], _NONE)
        allowed = words & there
        some, less = allowed.any(axis=1), (allowed != there).any(axis=1)
        states = np.where(some, EVERYTHING, NOTHING).astype(np.int32)
        for n in np.flatnonzero(some & less):
            states[n] = 1 + self.numbers.setdefault(words[n].tobytes(), len(self.numbers))
        return states

    def words(self, mask: Mask, area: Area) -> np.ndarray:
        """[N, 64] bits of the blocks; of what is the same along a diagonal, from a table."""
        if mask.relative:
            if mask not in self.tables:
                q, k = _first_of_diagonals(self.rows, self.columns)
                self.tables[mask] = _words(mask, Area(q, q + BLOCK - 1, k, k + BLOCK - 1))
            return self.tables[mask][(area.q_first - area.k_first) // BLOCK + self.columns - 1]
        combined = mask._words(lambda part: self.words(part, area))
        return _words(mask, area) if combined is None else combined


_ALL, _NONE = np.uint64(2**64 - 1), np.uint64(0)
_WORDS_AT_ONCE = 1024  # blocks; half a megabyte of words
_CELLS_AT_ONCE = 128  # blocks; positions of half a million cells


def _first_of_diagonals(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Where the first block of each diagonal begins, for I − J from 1 − columns to rows − 1."""
    diagonal = np.arange(1 - columns, rows) * BLOCK
    return np.maximum(diagonal, 0), np.maximum(-diagonal, 0)


def _words(mask: Mask, area: Area) -> np.ndarray:
    """[N, 64] bits of the blocks, cell by cell where the mask cannot decide."""
    decisions = mask._decide(area)
    words = np.where(decisions > 0, _ALL, _NONE)[:, None].repeat(BLOCK, axis=1)
    unknown = np.flatnonzero(decisions == 0)
    inside = np.arange(BLOCK)
    for start in range(0, len(unknown), _CELLS_AT_ONCE):
        n = unknown[start : start + _CELLS_AT_ONCE]
        q_first, q_last, k_first, k_last = (corner[n, None] for corner in area)
        row, column = np.minimum(q_first + inside, q_last), np.minimum(k_first + inside, k_last)
        cells = mask._allows(row[:, :, None], column[:, None, :])
        words[n] = np.packbits(cells, axis=-1, bitorder="little").view("<u8")[:, :, 0]
    return words


def _decision(nothing: np.ndarray, everything: np.ndarray) -> np.ndarray:
    return everything.astype(np.int8) - nothing.astype(np.int8)


def _same(
    query_low: np.ndarray, query_high: np.ndarray, key_low: np.ndarray, key_high: np.ndarray
) -> np.ndarray:
    """The decision of a rule `number of the query = number of the key` from their bounds."""
    apart = (query_high < key_low) | (query_low > key_high)
    one = (query_low == query_high) & (key_low == key_high)
    return _decision(apart, one & ~apart)


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


def _shown(numbers: Sequence[int] | np.ndarray) -> str:
    inner = ", ".join(str(int(n)) for n in numbers[:SHOWN])
    more = f", … {len(numbers)} in all" if len(numbers) > SHOWN else ""
    return f"[{inner}{more}]"


def _positions(*positions: Any) -> list[np.ndarray]:
    arrays = [np.asarray(position) for position in positions]
    for array in arrays:
        if array.dtype.kind not in "iu" and array.size:
            raise ArgumentError(f"Positions must be whole numbers. Got {array.dtype.name}.")
    return [array.astype(np.int64, copy=False) for array in arrays]


def _lengths(of: str, queries: Any, keys: Any) -> tuple[int, int]:
    return _whole(of, "queries", queries, at_least=0), _whole(of, "keys", keys, at_least=0)


def _bound(name: str, value: Any) -> int | None:
    if value is None:
        return None
    bound = _whole("window", name, value, at_least=-1, hint=" None or −1 is no bound.")
    return None if bound == -1 else bound


_MOST = 2**62  # so that the distance of two positions is still one of 64 bits


def _whole(
    of: str, name: str, value: Any, at_least: int = -_MOST, at_most: int = _MOST, hint: str = ""
) -> int:
    whole = type(value) is int or isinstance(value, np.integer)
    if not whole or not at_least <= value <= at_most:
        low = f" ≥ {at_least}" if at_least > -_MOST else ""
        high = f" and ≤ {at_most}" if whole and value > at_most else ""
        raise ArgumentError(
            f"The {name!r} of {of} must be a whole number{low}{high}. Got {value!r}.{hint}",
            argument=name,
        )
    return int(value)


def _integers(of: str, name: str, values: Any) -> np.ndarray:
    """[n] int64."""
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty((0, 0))  # rows of different lengths
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ArgumentError(
            f"The {name!r} of {of} must be one row of whole numbers. Got {array.dtype.name} of "
            f"shape {list(array.shape)}.",
            argument=name,
        )
    return np.ascontiguousarray(array, np.int64)
