"""position: y[t] = x[t] + table[offset + t], with a table that is learned, or sinusoidal."""

# B batch, S tokens, E width
#
# x, y    [B, S, E]
# table   [S, E], or more rows, of which shorter samples use the first

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward", "sinusoidal_table"]


def sinusoidal_table(tokens: int, width: int, base: float = 10000.0, offset: int = 0) -> np.ndarray:
    """[tokens, width] in float64: sin (even d) or cos (odd d) of t / base^(2⌊d/2⌋ / width).

    t counts from `offset`.
    """
    t = np.arange(offset, offset + tokens)[:, None]
    d = np.arange(width)[None, :]
    angle = t / base ** (2 * (d // 2) / width)
    return np.where(d % 2 == 0, np.sin(angle), np.cos(angle))


def forward(x: np.ndarray, table: np.ndarray | None = None, offset: int = 0) -> np.ndarray:
    if table is None:
        _, S, E = x.shape
        return x + sinusoidal_table(S, E, offset=offset).astype(x.dtype)
    return x + table[offset : offset + x.shape[1]]


def backward(
    dy: np.ndarray, x: np.ndarray, table: np.ndarray | None = None, offset: int = 0
) -> tuple[np.ndarray, ...]:
    dx = dy
    if table is None:
        return (dx,)
    dtable = np.zeros_like(table)
    dtable[offset : offset + x.shape[1]] = dy.sum(axis=0)  # every sample used the same table
    return dx, dtable
