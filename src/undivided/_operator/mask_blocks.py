"""A mask as attention's kernels take it: by blocks of 64 queries and 64 keys.

Skip this block, take all of that one, look at the bits of a third. A mask first decides about a
block as a whole, and only where it cannot are its cells looked at; what depends on distance alone
is the same along a diagonal of blocks, so one block of each stands for all. The S×T array is never
built.
"""

# S queries, T keys; q, k positions among them; I, J blocks of 64 of them; N blocks at a time
#
# decisions  int8      −1 nothing in a rectangle is allowed, 1 everything is, 0 not known
# states     [I, J]    −1 nothing in a block is allowed, 0 everything is, n ≥ 1: see patterns[n−1]
# words      [N, 64]   uint64, row i of a block: bit j says whether its column j is allowed

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from undivided._operator.masks import BLOCK, Area, Mask

__all__ = ["Blocks", "blocks_of"]

NOTHING, EVERYTHING = -1, 0  # states


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
def blocks_of(mask: Mask, queries: int, keys: int) -> Blocks:
    """The last few are remembered."""
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
