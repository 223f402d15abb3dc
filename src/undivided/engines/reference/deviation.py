"""deviation: how far a row is from its target, the mean over its numbers of f(e), e = y − target.

squared    f(e) = e²                                           f'(e) = 2·e
absolute   f(e) = |e|                                          f'(e) = sign(e), 0 at 0
huber      f(e) = e²/2 where |e| ≤ δ, else δ·(|e| − δ/2)       f'(e) = e, kept within ±δ

dy = dloss/C·f'(e)
"""

# R rows (any axes before the last), C numbers in a row
#
# y, target   [R, C]
# loss        [R]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(
    y: np.ndarray, target: np.ndarray, measure: str = "squared", delta: float = 1.0
) -> np.ndarray:
    e = y - target.astype(y.dtype)
    if measure == "squared":
        f = e * e
    elif measure == "absolute":
        f = np.abs(e)
    elif measure == "huber":
        f = np.where(np.abs(e) <= delta, e * e / 2, delta * (np.abs(e) - delta / 2))
    else:
        raise NotImplementedError(f"deviation {measure!r}: there are squared, absolute and huber")
    return f.sum(axis=-1) / y.shape[-1]


def backward(
    dloss: np.ndarray,
    y: np.ndarray,
    target: np.ndarray,
    measure: str = "squared",
    delta: float = 1.0,
) -> np.ndarray:
    e = y - target.astype(y.dtype)
    if measure == "squared":
        slope = 2 * e
    elif measure == "absolute":
        slope = np.sign(e)
    elif measure == "huber":
        slope = e.clip(-delta, delta)
    else:
        raise NotImplementedError(f"deviation {measure!r}: there are squared, absolute and huber")
    return dloss[..., None] / y.shape[-1] * slope  # each number had a share of 1/C in the mean
