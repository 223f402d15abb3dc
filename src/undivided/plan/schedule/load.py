"""load: a sample is read, rescaled and cut into patches at once.

No layer asks for it: `fuse_input` puts it at the head of every graph. Its way back hands the
gradient of the samples to the caller, where one is asked for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from undivided.plan.plan import Operation
from undivided.plan.primitives.unfold import geometry

if TYPE_CHECKING:
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward"]


def forward(compiler: Compiler, op: Operation) -> None:
    shape = compiler.graph.values[op.attributes["input"]].shape
    cut = _cut(compiler, op)
    floats = math.prod(n for n in shape if isinstance(n, int))
    compiler.emit(
        op,
        "load",
        y=compiler.value(op.output),
        scratch=compiler.scratch(compiler.padded(floats)) if cut else -1,
        scale=op.attributes["scale"],
        offset=op.attributes["offset"],
        slot=compiler.input_number(op.attributes["input"]),
        **cut,
    )


def backward(compiler: Compiler, op: Operation) -> None:
    dx, scale = compiler.gradient(op.output), op.attributes["scale"]
    slot = compiler.numbers_before(op.attributes["input"])
    compiler.emit(op, "store", x=dx, scale=scale, slot=slot, **_cut(compiler, op))


def _cut(compiler: Compiler, op: Operation) -> dict[str, int]:
    """The geometry of the patches; nothing where rows come as they are."""
    size = op.attributes["size"]
    shape = compiler.graph.values[op.attributes["input"]].shape
    return {} if size is None else geometry(shape, size)
