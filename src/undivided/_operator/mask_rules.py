"""The rules of `undivided.masks`: which query may attend to which key, one way of saying it each.

A rule says of a cell whether it is allowed, and decides about a rectangle as a whole where it can.
"""

# S queries, T keys; q, k positions among them; I, J blocks of 64 of them

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undivided._operator.masks import BLOCK, Area, Mask, decision, whole
from undivided.errors import ArgumentError
from undivided.training.generators import philox4x32

__all__ = [
    "block_local",
    "causal",
    "documents",
    "full",
    "global_tokens",
    "random",
    "strided",
    "window",
]

SHOWN = 16  # numbers of a list that repr(mask) shows


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
        return decision((most < low) | (least > high), (least >= low) & (most <= high))

    def __repr__(self) -> str:
        offset = f"offset={self.offset}" if self.offset else ""
        if (self.left, self.right) == (None, 0):
            return f"causal({offset})"
        right = "" if self.right == 0 else str(self.right)
        return f"window({', '.join(filter(None, (str(self.left), right, offset)))})"


def causal(offset: int = 0) -> Mask:
    """k ≤ q + offset: a query may attend to the keys up to its own place."""
    return Window(None, 0, whole("causal", "offset", offset))


def window(left: int | None, right: int | None = 0, offset: int = 0) -> Mask:
    """q + offset − left ≤ k ≤ q + offset + right; None or −1 is no bound."""
    return Window(
        _bound("left", left),
        _bound("right", right),
        whole("window", "offset", offset),
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
        return decision(hit < least, everything)

    def __repr__(self) -> str:
        return f"strided({self.stride})"


def strided(stride: int) -> Mask:
    """Every stride-th key, counted from the query in both directions."""
    return Strided(whole("strided", "stride", stride, at_least=1))


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
    return BlockLocal(whole("block_local", "size", size, at_least=1))


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
        return decision((rows == 0) & (columns == 0), all_rows | all_columns)

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
        return Global(whole("global_tokens", "tokens", tokens, at_least=0))
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
        return decision((count == 0) & known, (count == rows * (high - low + 1)) & known)

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
        whole("random", "per_row", per_row, at_least=0),
        whole("random", "block", block, at_least=1),
        whole("random", "seed", seed, at_least=0, at_most=2**64 - 1),
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


# What several rules need.


def _same(
    query_low: np.ndarray, query_high: np.ndarray, key_low: np.ndarray, key_high: np.ndarray
) -> np.ndarray:
    """The decision of a rule `number of the query = number of the key` from their bounds."""
    apart = (query_high < key_low) | (query_low > key_high)
    one = (query_low == query_high) & (key_low == key_high)
    return decision(apart, one & ~apart)


def _bound(name: str, value: Any) -> int | None:
    if value is None:
        return None
    bound = whole("window", name, value, at_least=-1, hint=" None or −1 is no bound.")
    return None if bound == -1 else bound


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


def _shown(numbers: Sequence[int] | np.ndarray) -> str:
    inner = ", ".join(str(int(n)) for n in numbers[:SHOWN])
    more = f", … {len(numbers)} in all" if len(numbers) > SHOWN else ""
    return f"[{inner}{more}]"
