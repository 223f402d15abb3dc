"""Tables of places for the native engine's gathering instructions."""

from __future__ import annotations

import numpy as np

__all__ = ["padded", "table"]


def table(places: np.ndarray) -> dict[str, np.ndarray]:
    """Whole numbers of 32 bits, in the bits of floats: constants are floats to those who store
    them."""
    return {"places": np.ascontiguousarray(places, np.int32).reshape(1, -1).view(np.float32)}


def padded(width: int) -> int:
    """Rows lie so far apart in the native engine."""
    return -(-width // 16) * 16
