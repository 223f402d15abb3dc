"""learned: rows that are the same for every sample. Each sample's gradient adds to theirs."""

# B batch, R rows, E width
#
# x       [B, …], which says only how many samples there are
# table   [R, E]
# y       [B, R, E]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(x: np.ndarray, table: np.ndarray) -> np.ndarray:
    return np.broadcast_to(table, (len(x), *table.shape))


def backward(dy: np.ndarray, x: np.ndarray, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros_like(x), dy.sum(axis=0)
