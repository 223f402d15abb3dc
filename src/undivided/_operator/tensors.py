"""Is it a PyTorch tensor? Answered without importing PyTorch."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["is_tensor"]


def is_tensor(x: Any) -> bool:
    """A tensor can only be there once somebody has imported torch, so this never has to."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)
