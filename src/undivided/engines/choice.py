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
    _check_memory(plan)
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


def _check_memory(plan: Plan) -> None:
    """Refuse what cannot fit: a system may promise the memory and end the process later."""
    from undivided.data.reading import memory_limit

    arrays = 2 + len(plan.optimizer.kept())  # the parameters, their gradients, the optimizer's
    needed, there = 4 * arrays * plan.parameter_count, 2 * memory_limit()
    if needed > there:
        raise ArgumentError(
            f"{plan.name} has {plan.parameter_count:,} parameters; with their gradients and what "
            f"{plan.optimizer.keyword} keeps they take {needed / 2**30:,.1f} GiB. This machine "
            f"has {there / 2**30:,.1f}. Make the network smaller."
        )
