"""Arrays as the page holds them: base64 of little-endian numbers, in a stated precision.

weights   24-bit fixed point: w = code/16777214, within 3·10⁻⁸; 16777215 is a forbidden cell
numbers   float32, within 6·10⁻⁸ of a number's own size
pixels    bytes, for looking only
"""

from __future__ import annotations

import base64

import numpy as np

__all__ = ["FORBIDDEN", "numbers", "pixels", "weights"]

FORBIDDEN = 2**24 - 1


def weights(p: np.ndarray, allowed: np.ndarray) -> str:
    """Weights from 0 to 1; cells that are not allowed are marked, which 0 would not say."""
    codes = np.rint(np.clip(p, 0, 1) * (FORBIDDEN - 1)).astype("<u4")
    codes[~allowed] = FORBIDDEN
    return _base64(codes.reshape(-1, 1).view(np.uint8)[:, :3])


def numbers(values: np.ndarray) -> str:
    """Any real numbers."""
    with np.errstate(over="ignore"):
        return _base64(values.astype("<f4"))


def pixels(picture: np.ndarray, low: float, high: float) -> str:
    """Brightness between `low`, which is 0, and `high`, which is 255."""
    span = high - low if high > low else 1.0
    scaled = (picture.astype(np.float64) - low) / span
    return _base64(np.rint(255 * np.clip(scaled, 0, 1)).astype(np.uint8))


def _base64(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
