"""rescale: y = x·scale + offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Operation, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]

BY_ROW = True


def lower(builder: Builder, x: Value, scale: float, offset: float) -> Value:
    """y = x·scale + offset."""
    return builder.add_operation("rescale", (x,), x.shape, scale=scale, offset=offset)


def forward(compiler: Compiler, op: Operation) -> None:
    x, y = compiler.value(op.inputs[0]), compiler.value(op.output)
    scale, offset = op.attributes["scale"], op.attributes["offset"]
    compiler.emit(op, "rescale", x=x, y=y, scale=scale, offset=offset)


def backward(compiler: Compiler, op: Operation) -> None:
    compiler.unary_backward(op, "rescale", scale=op.attributes["scale"])
