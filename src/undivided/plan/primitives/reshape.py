"""reshape: the same numbers in the same order under another shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Operation, Ragged, Shape, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]


def lower(builder: Builder, x: Value, shape: Shape) -> Value:
    """The same numbers in the same order under another shape."""
    if any(isinstance(extent, Ragged) for extent in x.shape):
        raise builder.refuse(x, "a fixed shape", "Pool a sequence of any length instead.")
    return builder.add_operation("reshape", (x,), shape)


def forward(compiler: Compiler, op: Operation) -> None:
    if _stays(compiler, op):
        compiler.share(op)
        return
    compiler.emit(op, "reshape", x=compiler.value(op.inputs[0]), y=compiler.value(op.output))


def backward(compiler: Compiler, op: Operation) -> None:
    if _stays(compiler, op):
        compiler.pass_on(op, op.inputs[0])
        return
    compiler.unary_backward(op, "reshape")


def _stays(compiler: Compiler, op: Operation) -> bool:
    """Rows as wide as before lie where they lay."""
    values = compiler.graph.values
    return values[op.inputs[0]].width == values[op.output].width
