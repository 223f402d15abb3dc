"""rotary: pairs of numbers are turned by an angle that grows with the token's position.

    (a, b) → (a·cos θ − b·sin θ, a·sin θ + b·cos θ)        θ = t / base^(2i/D)

for pair i of a head that is D wide; numbers 0 and 1 are a pair, 2 and 3, …. Turning loses nothing,
so backward turns back: by −θ. The number that an odd D leaves over stays as it is. The first token
stands at `offset`.
"""

# B batch, S tokens, H heads, D width of a head
#
# x, y       [B, S, H·D]
# cos, sin   [S, 1, D/2]

from __future__ import annotations

import numpy as np

__all__ = ["angles", "backward", "forward"]


def angles(tokens: int, width: int, base: float = 10000.0, offset: int = 0) -> np.ndarray:
    """[tokens, ⌊width/2⌋] in float64: θ of each pair."""
    frequency = base ** (-np.arange(0, width - 1, 2) / width)
    return np.arange(offset, offset + tokens)[:, None] * frequency


def forward(x: np.ndarray, heads: int, base: float = 10000.0, offset: int = 0) -> np.ndarray:
    return turned(x, heads, base, offset, 1)


def backward(
    dy: np.ndarray, x: np.ndarray, heads: int, base: float = 10000.0, offset: int = 0
) -> np.ndarray:
    return turned(dy, heads, base, offset, -1)


def turned(x: np.ndarray, heads: int, base: float, offset: int, way: int) -> np.ndarray:
    """x turned by its angles, or back where `way` is −1."""
    B, S, E = x.shape
    D = E // heads
    split = x.reshape(B, S, heads, D)
    angle = way * angles(S, D, base, offset)[:, None]
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    a, b = split[..., 0 : D - 1 : 2], split[..., 1::2]
    y = split.copy()
    y[..., 0 : D - 1 : 2] = a * cos - b * sin
    y[..., 1::2] = a * sin + b * cos
    return y.reshape(B, S, E)
