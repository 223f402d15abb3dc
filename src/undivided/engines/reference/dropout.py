"""Which weights dropout keeps: a coin for each cell, thrown by a cipher of where the cell is.

    kept[b,h,i,j] = word ≥ ⌊rate·2³²⌋

    word     number (j mod 64) div 16 of the four that Philox gives for
    key      seed mod 2³², seed div 2³²
    counter  (j div 64)·16 + j mod 16,  i,  b·H + h,  "atte"

So a cell is kept or not whatever the order, the tiling or the threads in which cells are visited,
and backward throws the same coins again instead of keeping them. Of 64 keys side by side, one
block of Philox serves the four that are 16 apart: sixteen blocks next to each other in a vector
then give sixteen keys next to each other.
"""

# B batch, H heads, S queries, T keys

from __future__ import annotations

import math

import numpy as np

from undivided.errors import ArgumentError
from undivided.training.generators import philox4x32

__all__ = ["kept_cells"]

ATTENTION = 0x61747465
"""The fourth word of the counter says what is drawn for: "atte" in ASCII."""


def kept_cells(shape: tuple[int, int, int, int], rate: float, seed: int | None) -> np.ndarray:
    """[B, H, S, T] bool, True where a weight is kept."""
    if not 0.0 <= rate < 1.0:
        raise ArgumentError(
            f"The 'dropout' of attention must be at least 0 and below 1. Got {rate!r}.",
            argument="dropout",
        )
    if rate == 0.0:
        return np.broadcast_to(np.True_, shape)
    if seed is None or not 0 <= seed < 2**64:
        raise ArgumentError(
            "The 'seed' of attention with dropout must be a whole number from 0 to 2⁶⁴ − 1, "
            f"so that backward drops the same weights. Got {seed!r}.",
            argument="seed",
        )
    B, H, S, T = shape
    tiles = -(-T // 64)
    row, query, block = np.indices((B * H, S, tiles * 16), np.uint32).reshape(3, -1)
    counter = np.stack([block, query, row, np.full_like(block, ATTENTION)], axis=1)
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    # [.., 64 keys as 16 blocks of 4 words] → word number w of block c is key 16·w + c.
    words = words.reshape(B, H, S, tiles, 16, 4).swapaxes(-1, -2).reshape(B, H, S, tiles * 64)
    return words[..., :T] >= math.floor(rate * 2**32)
