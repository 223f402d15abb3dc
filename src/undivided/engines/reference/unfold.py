"""unfold: cut a picture into patches that touch and do not overlap; each becomes a token.

Every pixel goes to one place and no two go to the same, so backward only carries each gradient
back to where its pixel came from.
"""

# B batch, R rows of patches, C columns of patches, h × w pixels in a patch, K channels
#
# x   [B, R·h, C·w] or [B, R·h, C·w, K]
# y   [B, R·C, h·w·K]      token t = r·C + c, inside it pixels in row order, channels last

from __future__ import annotations

import math

import numpy as np

__all__ = ["backward", "forward"]


def forward(x: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    B, height, width = x.shape[:3]
    h, w = size
    R, C = height // h, width // w
    K = math.prod(x.shape[3:])
    grid = x.reshape(B, R, h, C, w, K)
    patches = grid.transpose(0, 1, 3, 2, 4, 5)  # [B, R, C, h, w, K]
    return patches.reshape(B, R * C, h * w * K)


def backward(dy: np.ndarray, x: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    B, height, width = x.shape[:3]
    h, w = size
    R, C = height // h, width // w
    K = math.prod(x.shape[3:])
    dpatches = dy.reshape(B, R, C, h, w, K)
    dgrid = dpatches.transpose(0, 1, 3, 2, 4, 5)  # [B, R, h, C, w, K]: the swap undoes itself
    return dgrid.reshape(x.shape)
