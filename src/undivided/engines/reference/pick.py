"""pick: one token of a sequence; the others get no gradient."""

# B batch, S tokens, E width
#
# x   [B, S, E]
# y   [B, E]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(x: np.ndarray, index: int) -> np.ndarray:
    return x[:, index]


def backward(dy: np.ndarray, x: np.ndarray, index: int) -> np.ndarray:
    dx = np.zeros_like(x)
    dx[:, index] = dy
    return dx
