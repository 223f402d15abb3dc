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
    dx = dy @ (weight if turned else weight.T)

    # W and b take part once for each row of x: their gradients are sums over all rows.
    x_rows = x.reshape(-1, x.shape[-1])  # [N, I]
    dy_rows = dy.reshape(-1, dy.shape[-1])  # [N, O]
    dweight = dy_rows.T @ x_rows if turned else x_rows.T @ dy_rows
    if bias is None:
        return dx, dweight
    dbias = dy_rows.sum(axis=0)
    return dx, dweight, dbias
