"""The arena: one stretch of memory in which values live only as long as they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Lifetime", "Region", "place"]

ALIGNMENT = 16
"""Floats in a cache line; every value of the native engine begins on one."""


@dataclass(frozen=True)
class Region:
    """A buffer before it has a place: columns `column` … of the region `base`."""

    axis: int
    width: int
    stride: int
    floats: int
    base: int
    column: int = 0


@dataclass(frozen=True)
class Lifetime:
    """How many floats something takes, and the first and last instruction that touch it."""

    floats: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def place(lifetimes: Sequence[Lifetime], alignment: int = ALIGNMENT) -> tuple[list[int], int]:
    """An offset for each, so that no two that live at once overlap, and the size of the whole.

    Largest first, each at the lowest offset that is free for as long as it lives.
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    size = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].floats, i)):
        floats = -(-lifetimes[i].floats // alignment) * alignment
        offset = 0
        for j in sorted(
            (j for j in placed if lifetimes[i].meets(lifetimes[j])), key=lambda j: offsets[j]
        ):
            if offset + floats <= offsets[j]:
                break
            taken = -(-lifetimes[j].floats // alignment) * alignment
            offset = max(offset, offsets[j] + taken)
        offsets[i] = offset
        placed.append(i)
        size = max(size, offset + floats)
    return offsets, size
