"""dropout: y = x/(1 − rate) where a coin says so, else 0.

    y = kept ∘ x/(1 − rate)        dx = kept ∘ dy/(1 − rate)

The coins are thrown by a cipher of where a number is, so whatever the order, the tiling or the
threads in which numbers are visited, they fall alike, and backward throws them again:

    kept = word ≥ ⌊rate·2³²⌋

    word     number (j mod 64) div 16 of the four that Philox gives for
    key      seed mod 2³², seed div 2³²
    counter  (row·⌈E/64⌉ + j div 64)·16 + j mod 16, place, step, "drop" + number of the operation

for number j of a row of E, in the sample at that place of its batch. Attention drops weights with

    counter  (j div 64)·16 + j mod 16,  i,  b·H + h,  "atte"

Of 64 numbers side by side, one block of Philox serves the four that are 16 apart: sixteen blocks
next to each other in a vector then give sixteen numbers next to each other.
"""

# B batch, H heads, S queries, T keys, R rows of a sample, E width
#
# x, y   [B, …, E]
# kept   [B, …, E] bool

from __future__ import annotations

import math

import numpy as np

from undivided.errors import ArgumentError
from undivided.training.generators import philox4x32

__all__ = ["backward", "forward", "kept_cells", "kept_numbers"]

ATTENTION, DROPOUT = 0x61747465, 0x64726F70
"""The fourth word of the counter says what is drawn for: "atte" and "drop" in ASCII."""


def forward(x: np.ndarray, rate: float, kept: np.ndarray | None = None) -> np.ndarray:
    """Without `kept`, as outside training, y = x."""
    return x if kept is None else np.where(kept, x * (1 / (1 - rate)), 0)


def backward(
    dy: np.ndarray, x: np.ndarray, rate: float, kept: np.ndarray | None = None
) -> np.ndarray:
    return dy if kept is None else np.where(kept, dy * (1 / (1 - rate)), 0)


def kept_numbers(
    shape: tuple[int, ...], rate: float, seed: int, step: int, places: np.ndarray, number: int
) -> np.ndarray:
    """[B, …, E] bool for samples at `places` [B] of their batch, True where a number is kept."""
    B, E = shape[0], shape[-1]
    R, tiles = math.prod(shape[1:-1]), -(-E // 64)
    sample, block = np.indices((B, R * tiles * 16), np.uint32).reshape(2, -1)
    counter = np.empty((len(sample), 4), np.uint32)
    counter[:, 0] = block
    counter[:, 1] = np.asarray(places, np.uint32)[sample]
    counter[:, 2] = step & 0xFFFFFFFF
    counter[:, 3] = DROPOUT + number
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    # [.., 64 numbers as 16 blocks of 4 words] → word number w of block c is number 16·w + c.
    words = words.reshape(B, R, tiles, 16, 4).swapaxes(-1, -2).reshape(B, R, tiles * 64)
    return (words[..., :E] >= math.floor(rate * 2**32)).reshape(shape)


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
