"""softmax: y = e^x / Σ e^x, along the last axis.

With y the result, dx = y∘(dy − Σ dy∘y): every number of a row takes part in the row's sum.
"""

# B batch, E width
#
# x, y   [B, …, E]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def backward(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    y = forward(x)
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))
