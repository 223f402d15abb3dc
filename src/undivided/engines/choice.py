"""Which engine runs a plan. None of them is imported before it is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from undivided.errors import ArgumentError, UndividedError
from undivided.plan.plan import Plan

if TYPE_CHECKING:
    from undivided.engines.engine import Engine

__all__ = ["make_engine"]


def make_engine(plan: Plan, name: str, dtype: str, threads: int | None) -> Engine:
    """The engine of that name; its parameters are still zero."""
    if dtype not in ("float32", "float64"):
        raise ArgumentError(
            f"The 'dtype' of Model must be 'float32' or 'float64'. Got {dtype!r}.",
            argument="dtype",
        )
    if name == "reference":
        from undivided.engines.reference import ReferenceEngine

        return ReferenceEngine(plan, np.dtype(dtype))
    if dtype != "float32":
        raise ArgumentError(
            f"The native engine computes in float32. Got {dtype!r}. "
            "engine='reference' computes in float64 too.",
            argument="dtype",
        )
    try:
        from undivided.engines.native import NativeEngine
    except ImportError as error:
        raise UndividedError(
            f"The native engine is not in this installation ({error}). "
            "Install undivided again, or choose engine='reference'."
        ) from error
    return NativeEngine(plan, threads)
