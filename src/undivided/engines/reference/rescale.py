"""rescale: y = x·scale + offset, for every number alike."""

# x, y   [B, …]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(x: np.ndarray, scale: float, offset: float = 0.0) -> np.ndarray:
    return x * scale + offset


def backward(dy: np.ndarray, x: np.ndarray, scale: float, offset: float = 0.0) -> np.ndarray:
    return dy * scale
