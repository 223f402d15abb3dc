"""attention: softmax(Q·Kᵀ·scale)·V for each head; heads lie side by side in the last axis.

    S = Q·Kᵀ·scale        scores
    P = softmax(S)        weights: each row positive, with sum 1
    Y = P·V

Backward, from the last line to the first:

    dV = Pᵀ·dY
    dP = dY·Vᵀ
    dS = P∘(dP − rowsum(dP∘P))
    dQ = dS·K·scale
    dK = dSᵀ·Q·scale
"""

# B batch, H heads, S queries, T keys, D head width of queries and keys, F head width of values
#
# query    [B, S, H·D]
# key      [B, T, H·D]
# value    [B, T, H·F]
# y        [B, S, H·F]
# weights  [B, H, S, T]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward", "weights"]


def split(x: np.ndarray, heads: int) -> np.ndarray:
    """[B, S, H·D] → [B, H, S, D]."""
    B, S, E = x.shape
    return x.reshape(B, S, heads, E // heads).transpose(0, 2, 1, 3)


def merge(x: np.ndarray) -> np.ndarray:
    """[B, H, S, D] → [B, S, H·D], the way back."""
    B, H, S, D = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, S, H * D)


def transpose(x: np.ndarray) -> np.ndarray:
    """The last two axes swapped."""
    return x.swapaxes(-1, -2)


def softmax(scores: np.ndarray) -> np.ndarray:
    """exp(s)/Σexp(s) over the last axis.

    Taking the largest score away first changes nothing and keeps exp from overflowing.
    """
    largest = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(scores - largest)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def weights(query: np.ndarray, key: np.ndarray, heads: int, scale: float) -> np.ndarray:
    """P: how much each query takes from each key."""
    q, k = split(query, heads), split(key, heads)
    return softmax(q @ transpose(k) * scale)


def forward(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, heads: int, scale: float
) -> np.ndarray:
    p = weights(query, key, heads, scale)
    return merge(p @ split(value, heads))


def backward(
    dy: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    heads: int,
    scale: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q, k, v = split(query, heads), split(key, heads), split(value, heads)
    p = weights(query, key, heads, scale)
    dy = split(dy, heads)

    # In the forward pass this was y = p·v.
    dv = transpose(p) @ dy
    dp = dy @ transpose(v)

    # p = softmax(s): raising one score lowers all the weights of its row, which is the sum.
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True))

    # s = q·kᵀ·scale.
    dq = ds @ k * scale
    dk = transpose(ds) @ q * scale
    return merge(dq), merge(dk), merge(dv)
