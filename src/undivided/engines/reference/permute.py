"""permute: the same numbers, the axes in another order. Backward puts them back."""

# x, y   [B, …]; axis n of a sample of y is axis axes[n] of x

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return x.transpose(0, *(n + 1 for n in axes))


def backward(dy: np.ndarray, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return dy.transpose(0, *(n + 1 for n in np.argsort(axes)))
