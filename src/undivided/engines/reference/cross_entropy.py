"""cross_entropy: loss = −log softmax(logits)[label], one number a sample.

    loss = log Σ exp(logits) − logits[label]
    dlogits = dloss·(softmax(logits) − onehot(label))

The sum is taken of exp(logits − largest), so that nothing overflows and no probability has to
be kept away from 0.
"""

# B batch, C classes
#
# logits   [B, C]
# labels   [B], whole numbers below C
# loss     [B]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(shifted).sum(axis=1))
    return log_sum - shifted[np.arange(len(labels)), labels]


def backward(dloss: np.ndarray, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    softmax = exponentials / exponentials.sum(axis=1, keepdims=True)
    onehot = np.arange(logits.shape[1]) == labels[:, None]
    return dloss[:, None] * (softmax - onehot)
