"""cross_entropy: loss = −Σ_c t_c·log softmax(logits)_c, one number a row.

    loss = Σ_c t_c·(log Σ_k exp(logits_k) − logits_c)
    dlogits = dloss·(softmax(logits)·Σ_c t_c − t)

t is a distribution over classes, or for a class number its onehot row; label smoothing α makes it
(1−α)·t + α/C. The sum is taken of exp(logits − largest), so that nothing overflows and no
probability has to be kept away from 0.
"""

# R rows (samples, or positions of samples; any axes before the last), C classes
#
# logits   [R, C]
# target   [R] whole numbers below C, or [R, C] numbers
# loss     [R]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(logits: np.ndarray, target: np.ndarray, label_smoothing: float = 0.0) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=-1, keepdims=True)) - shifted  # of each class
    if target.dtype.kind == "f":
        loss = (target.astype(logits.dtype) * losses).sum(axis=-1)
    else:
        loss = np.take_along_axis(losses, target[..., None], axis=-1)[..., 0]
    if not label_smoothing:
        return loss
    return (1 - label_smoothing) * loss + label_smoothing * losses.mean(axis=-1)


def backward(
    dloss: np.ndarray, logits: np.ndarray, target: np.ndarray, label_smoothing: float = 0.0
) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    softmax = exponentials / exponentials.sum(axis=-1, keepdims=True)
    t = _distribution(logits, target, label_smoothing)
    return dloss[..., None] * (softmax * t.sum(axis=-1, keepdims=True) - t)


def _distribution(logits: np.ndarray, target: np.ndarray, label_smoothing: float) -> np.ndarray:
    """The target as a row of numbers, smoothed: [R, C]."""
    C = logits.shape[-1]
    if target.dtype.kind != "f":
        target = np.arange(C) == target[..., None]
    return (1 - label_smoothing) * target.astype(logits.dtype) + label_smoothing / C
