"""A mask of undivided.masks as a list of whole numbers, and back: what a compiled graph can hold.

    causal() & ~strided(3)    →    AND 2  WINDOW NONE 0 0  NOT  STRIDED 3

First what it is, then what it is made of; a list of numbers is preceded by how many they are. The
way there is plain Python on the fields of the masks, which torch.compile follows and watches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from undivided._operator.mask_rules import (
    BlockLocal,
    Documents,
    Full,
    Global,
    Random,
    Strided,
    Window,
)
from undivided._operator.masks import And, Mask, Not, Or
from undivided.errors import ArgumentError

__all__ = ["mask_of", "numbers_of"]

FULL, WINDOW, STRIDED, BLOCK_LOCAL, FIRST, GLOBAL, RANDOM, DOCUMENTS, AND, OR, NOT = range(11)
NONE = -(1 << 62)  # no bound is as far away


def numbers_of(mask: Mask) -> list[int]:
    if isinstance(mask, Full):
        return [FULL]
    if isinstance(mask, Window):
        left = NONE if mask.left is None else mask.left
        right = NONE if mask.right is None else mask.right
        return [WINDOW, left, right, mask.offset]
    if isinstance(mask, Strided):
        return [STRIDED, mask.stride]
    if isinstance(mask, BlockLocal):
        return [BLOCK_LOCAL, mask.size]
    if isinstance(mask, Global):
        if isinstance(mask.tokens, int):
            return [FIRST, mask.tokens]
        return [GLOBAL, len(mask.tokens), *mask.tokens]
    if isinstance(mask, Random):
        size = (NONE, NONE) if mask.size is None else mask.size
        return [RANDOM, mask.per_row, mask.block, mask.seed >> 32, mask.seed % (1 << 32), *size]
    if isinstance(mask, Documents):
        queries, keys = _ids(mask.query_ids), _ids(mask.key_ids)
        return [DOCUMENTS, len(queries), *queries, len(keys), *keys]
    if isinstance(mask, And | Or):
        numbers = [AND if isinstance(mask, And) else OR, len(mask.masks)]
        for part in mask.masks:
            numbers += numbers_of(part)
        return numbers
    if isinstance(mask, Not):
        return [NOT, *numbers_of(mask.mask)]
    raise ArgumentError(
        f"torch.compile takes the masks of undivided.masks alone. Got {type(mask).__name__}. "
        "Give what it allows as a boolean tensor.",
        argument="mask",
    )


def mask_of(numbers: list[int]) -> Mask:
    return _read(iter(numbers))


def _read(numbers: Iterator[int]) -> Mask:
    what = next(numbers)
    if what == FULL:
        return Full()
    if what == WINDOW:
        return Window(_or_none(next(numbers)), _or_none(next(numbers)), next(numbers))
    if what == STRIDED:
        return Strided(next(numbers))
    if what == BLOCK_LOCAL:
        return BlockLocal(next(numbers))
    if what == FIRST:
        return Global(next(numbers))
    if what == GLOBAL:
        return Global(_list(numbers))
    if what == RANDOM:
        per_row, block, high, low, queries, keys = (next(numbers) for _ in range(6))
        size = None if queries == NONE else (queries, keys)
        return Random(per_row, block, high << 32 | low, size)
    if what == DOCUMENTS:
        queries_and_keys = (np.array(_list(numbers), np.int64).tobytes() for _ in range(2))
        return Documents(*queries_and_keys)
    if what == NOT:
        return Not(_read(numbers))
    parts = tuple(_read(numbers) for _ in range(next(numbers)))
    return And(parts) if what == AND else Or(parts)


def _list(numbers: Iterator[int]) -> tuple[int, ...]:
    return tuple(next(numbers) for _ in range(next(numbers)))


def _or_none(number: int) -> int | None:
    return None if number == NONE else number


def _ids(ids: bytes) -> list[int]:
    """As `struct` would read them, were it something that torch.compile follows."""
    return [
        int.from_bytes(ids[start : start + 8], "little", signed=True)
        for start in range(0, len(ids), 8)
    ]
