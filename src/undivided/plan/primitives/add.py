"""add: z = x + y, of the same shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Operation, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]

STRIDED = True
BY_ROW = True


def lower(builder: Builder, x: Value, y: Value) -> Value:
    """x + y, of the same shape."""
    if x.shape != y.shape:
        raise builder.differ(x, y)
    return builder.add_operation("add", (x, y), x.shape)


def forward(compiler: Compiler, op: Operation) -> None:
    x, z = (compiler.value(name) for name in op.inputs)
    compiler.emit(op, "add", x=x, z=z, y=compiler.value(op.output))


def backward(compiler: Compiler, op: Operation) -> None:
    left, right = op.inputs
    dx, accumulate = compiler.into(left)
    if dx >= 0:
        dy = compiler.gradient(op.output)
        compiler.emit(op, "copy", backward=1, dx=dx, dy=dy, accumulate_x=accumulate)
    compiler.pass_on(op, right)
