"""rms_normalize: y = x/√(mean(x²) + ε)·gain, over the last axis of each token.

With r = 1/√(mean(x²) + ε), n = x·r and dn = dy·gain,

    dx = r·(dn − n·mean(dn∘n))

The mean is what mean(x²), which all of a token's numbers share, passes on.
"""

# B batch, E width
#
# x, y   [B, …, E]
# gain   [E]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def inverse(x: np.ndarray, epsilon: float) -> np.ndarray:
    """r [B, …, 1]."""
    return 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon)


def forward(x: np.ndarray, gain: np.ndarray, epsilon: float) -> np.ndarray:
    return x * inverse(x, epsilon) * gain


def backward(
    dy: np.ndarray, x: np.ndarray, gain: np.ndarray, epsilon: float
) -> tuple[np.ndarray, np.ndarray]:
    r = inverse(x, epsilon)
    n = x * r
    tokens = tuple(range(x.ndim - 1))  # all axes but the last
    dgain = (dy * n).sum(axis=tokens)

    dn = dy * gain
    dx = r * (dn - n * (dn * n).mean(axis=-1, keepdims=True))
    return dx, dgain
