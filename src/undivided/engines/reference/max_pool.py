"""max_pool: the largest number, of each window of a picture or of all tokens.

Only the largest has a part in the result, so it gets all of the gradient; of equals the first.
Of no tokens the result is 0. A NaN is the largest.
"""

# B batch, S tokens, E width, K channels, R × C windows of h × w pixels
#
# x   [B, S, E]       y   [B, E]            without a size
# x   [B, H, W, K]    y   [B, R, C, K]      with one

from __future__ import annotations

import numpy as np

from undivided.engines.reference import windows

__all__ = ["backward", "forward"]

Pair = tuple[int, int]
NONE: tuple[Pair, Pair] = ((0, 0), (0, 0))


def forward(
    x: np.ndarray,
    size: Pair | None = None,
    strides: Pair = (1, 1),
    pads: tuple[Pair, Pair] = NONE,
) -> np.ndarray:
    if size is None:
        return x.max(axis=1) if x.shape[1] else np.zeros((len(x), x.shape[2]), x.dtype)
    candidates = pooled(x, size, strides, pads)
    return candidates.max(axis=3)


def backward(
    dy: np.ndarray,
    x: np.ndarray,
    size: Pair | None = None,
    strides: Pair = (1, 1),
    pads: tuple[Pair, Pair] = NONE,
) -> np.ndarray:
    if size is None:
        if not x.shape[1]:
            return np.zeros_like(x)
        first = x.argmax(axis=1)  # [B, E]
        return np.where(np.arange(x.shape[1])[:, None] == first[:, None], dy[:, None], 0)
    candidates = pooled(x, size, strides, pads)  # [B, R, C, h·w, K]
    first = candidates.argmax(axis=3)
    places = np.arange(candidates.shape[3])[:, None]
    dcandidates = np.where(places == first[..., None, :], dy[..., None, :], 0)
    return windows.backward(dcandidates, x, size, strides, pads)


def pooled(x: np.ndarray, size: Pair, strides: Pair, pads: tuple[Pair, Pair]) -> np.ndarray:
    """[B, R, C, h·w, K]: what each result is the largest of, −∞ outside the picture."""
    picture = windows.padded(x, pads, -np.inf)
    cut = windows.forward(picture, size, strides, NONE)
    return cut.reshape(*cut.shape[:3], -1, x.shape[3])
