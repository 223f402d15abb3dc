"""normalize: y = (x − mean)/√(variance + ε)·gain + shift, over the last axis of each token.

With r = 1/√(variance + ε), n = (x − mean)·r and dn = dy·gain,

    dx = r·(dn − mean(dn) − n·mean(dn∘n))

The two means are what the mean and the variance, which all of a token's numbers share, pass on.
"""

# B batch, E width
#
# x, y          [B, …, E]
# gain, shift   [E]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def standardize(x: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """(x − mean)·r [B, …, E], and r [B, …, 1]."""
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = (centered * centered).mean(axis=-1, keepdims=True)
    r = 1 / np.sqrt(variance + epsilon)
    return centered * r, r


def forward(x: np.ndarray, gain: np.ndarray, shift: np.ndarray, epsilon: float) -> np.ndarray:
    n, _ = standardize(x, epsilon)
    return n * gain + shift


def backward(
    dy: np.ndarray, x: np.ndarray, gain: np.ndarray, shift: np.ndarray, epsilon: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n, r = standardize(x, epsilon)
    tokens = tuple(range(x.ndim - 1))  # all axes but the last

    dshift = dy.sum(axis=tokens)
    dgain = (dy * n).sum(axis=tokens)

    dn = dy * gain
    mean_dn = dn.mean(axis=-1, keepdims=True)
    mean_dn_n = (dn * n).mean(axis=-1, keepdims=True)
    dx = r * (dn - mean_dn - n * mean_dn_n)
    return dx, dgain, dshift
