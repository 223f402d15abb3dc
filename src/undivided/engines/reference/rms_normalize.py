"""rms_normalize: y = x/√(mean(x²) + ε)·gain, over the last axis of each token, or over the columns
of each of its `heads`, which share one gain.

With r = 1/√(mean(x²) + ε), n = x·r and dn = dy·gain,

    dx = r·(dn − n·mean(dn∘n))

The mean is what mean(x²), which all of a token's numbers share, passes on.
"""

# B batch, E width
#
# x, y   [B, …, E]
# gain   [E/heads]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def inverse(x: np.ndarray, epsilon: float) -> np.ndarray:
    """r [B, …, 1]."""
    return 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon)


def forward(x: np.ndarray, gain: np.ndarray, epsilon: float, heads: int = 1) -> np.ndarray:
    each = x.reshape(*x.shape[:-1], heads, -1)
    return (each * inverse(each, epsilon) * gain).reshape(x.shape)


def backward(
    dy: np.ndarray, x: np.ndarray, gain: np.ndarray, epsilon: float, heads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    each, d = (a.reshape(*x.shape[:-1], heads, len(gain)) for a in (x, dy))
    r = inverse(each, epsilon)
    n = each * r
    tokens = tuple(range(n.ndim - 1))  # all axes but the last
    dgain = (d * n).sum(axis=tokens)

    dn = d * gain
    dx = r * (dn - n * (dn * n).mean(axis=-1, keepdims=True))
    return dx.reshape(x.shape), dgain
