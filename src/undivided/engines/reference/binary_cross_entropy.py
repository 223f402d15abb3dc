"""binary_cross_entropy: the mean over a row of −t·log σ(z) − (1−t)·log(1 − σ(z)).

    loss = mean_c (max(z, 0) − z·t + log(1 + exp(−|z|)))
    dz = dloss/C·(σ(z) − t)

z are the logits, σ(z) = 1/(1 + exp(−z)), and t is from 0 to 1; label smoothing α makes it
(1−α)·t + α/2. No exponent is above 0, so nothing overflows.
"""

# R rows (any axes before the last), C yes-or-no questions
#
# logits, target   [R, C]
# loss             [R]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(logits: np.ndarray, target: np.ndarray, label_smoothing: float = 0.0) -> np.ndarray:
    t = _smoothed(logits, target, label_smoothing)
    losses = np.maximum(logits, 0) - logits * t + np.log1p(np.exp(-np.abs(logits)))
    return losses.sum(axis=-1) / logits.shape[-1]


def backward(
    dloss: np.ndarray, logits: np.ndarray, target: np.ndarray, label_smoothing: float = 0.0
) -> np.ndarray:
    e = np.exp(-np.abs(logits))
    sigmoid = np.where(logits < 0, e, 1) / (1 + e)
    share = dloss[..., None] / logits.shape[-1]  # each number had a share of 1/C in the mean
    return share * (sigmoid - _smoothed(logits, target, label_smoothing))


def _smoothed(logits: np.ndarray, target: np.ndarray, label_smoothing: float) -> np.ndarray:
    return (1 - label_smoothing) * target.astype(logits.dtype) + label_smoothing / 2
