"""concatenate: two sequences end to end; each gets back its own part of the gradient."""

# B batch, S and T tokens, E width
#
# x   [B, S, E]
# y   [B, T, E]
# z   [B, S + T, E]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.concatenate([x, y], axis=1)


def backward(dz: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    S = x.shape[1]
    return dz[:, :S], dz[:, S:]
