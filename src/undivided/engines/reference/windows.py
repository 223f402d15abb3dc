"""windows: every window of a picture becomes a row, overlapping ones and padding included.

A pixel goes to every window that it is in, so its gradient is the sum of what comes back from
each. Zeros around the picture come from nowhere, and what comes back to them is dropped.
"""

# B batch, K channels, h × w pixels in a window, R × C windows
#
# x   [B, H, W] or [B, H, W, K]
# y   [B, R, C, h·w·K]      in a window pixels in row order, channels last

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]

Pair = tuple[int, int]


def forward(x: np.ndarray, size: Pair, strides: Pair, pads: tuple[Pair, Pair]) -> np.ndarray:
    picture = padded(x, pads)
    h, w = size
    R, C = counts(picture, size, strides)
    y = np.empty((len(x), R, C, h, w, picture.shape[3]), x.dtype)
    for i in range(h):
        for j in range(w):
            y[:, :, :, i, j] = picture[:, across(i, R, strides[0]), across(j, C, strides[1])]
    return y.reshape(len(x), R, C, -1)


def backward(
    dy: np.ndarray, x: np.ndarray, size: Pair, strides: Pair, pads: tuple[Pair, Pair]
) -> np.ndarray:
    dpicture = np.zeros_like(padded(x, pads))
    h, w = size
    R, C = counts(dpicture, size, strides)
    dwindows = dy.reshape(len(x), R, C, h, w, -1)
    for i in range(h):
        for j in range(w):
            rows, columns = across(i, R, strides[0]), across(j, C, strides[1])
            dpicture[:, rows, columns] += dwindows[:, :, :, i, j]
    (above, _), (left, _) = pads
    dx = dpicture[:, above : above + x.shape[1], left : left + x.shape[2]]
    return dx.reshape(x.shape)


def padded(x: np.ndarray, pads: tuple[Pair, Pair], value: float = 0.0) -> np.ndarray:
    """[B, H, W, K] with `value` around the pictures."""
    picture = x if x.ndim == 4 else x[..., None]
    return np.pad(picture, ((0, 0), *pads, (0, 0)), constant_values=value)


def counts(picture: np.ndarray, size: Pair, strides: Pair) -> list[int]:
    """R and C."""
    extents = picture.shape[1:3]
    return [(n - k) // s + 1 for n, k, s in zip(extents, size, strides, strict=True)]


def across(first: int, count: int, stride: int) -> slice:
    """Where the pixels at one place of all windows stand."""
    return slice(first, first + (count - 1) * stride + 1, stride)
