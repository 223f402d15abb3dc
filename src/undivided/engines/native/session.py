"""Programs as sessions of the native side, and memory as its kernels want it."""

from __future__ import annotations

import numpy as np

from undivided import _native
from undivided.plan.schedule.program import Program

__all__ = ["aligned", "session_of"]


def aligned(floats: int) -> np.ndarray:
    """Zeros that begin on a cache line, as the kernels' whole vectors want them."""
    raw = np.zeros(floats + 16, np.float32)
    skip = (-raw.ctypes.data % 64) // 4
    return raw[skip : skip + floats]


def session_of(program: Program, instruction_set: str) -> _native.Session:
    """A session that runs the program."""
    derived = aligned(program.derived_floats)
    for offset, rows in program.constants.items():
        derived[offset : offset + rows.size] = rows.ravel()
    return _native.Session(
        list(program.instructions),
        list(program.buffers),
        list(program.blocks),
        list(program.folds),
        list(program.axes),
        program.arena_floats,
        program.group,
        program.parameter_floats,
        program.gradient_floats,
        derived,
        list(program.patterns),
        instruction_set,
    )
