"""linear: y = x·W + b over the last axis; x·Wᵀ + b where W is `turned` (a table used twice)."""

# B batch, I width in, O width out; the axes between them (tokens) are treated alike
#
# x        [B, …, I]
# weight   [I, O], or [O, I] where it is turned
# bias     [O]
# y        [B, …, O]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, turned: bool = False
) -> np.ndarray:
    y = x @ (weight.T if turned else weight)
    return y if bias is None else y + bias


def backward(
    dy: np.ndarray,
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    turned: bool = False,
) -> tuple[np.ndarray, ...]:
    matrix = weight.T if turned else weight  # [I, O]
    dx = dy @ matrix.T

    # W and b take part once for each row of x: their gradients are sums over all rows.
    x_rows = x.reshape(-1, matrix.shape[0])  # [N, I]
    dy_rows = dy.reshape(-1, matrix.shape[1])  # [N, O]
    dmatrix = x_rows.T @ dy_rows
    dweight = dmatrix.T if turned else dmatrix
    if bias is None:
        return dx, dweight
    dbias = dy_rows.sum(axis=0)
    return dx, dweight, dbias
