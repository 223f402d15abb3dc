"""softmax: y = e^x / Σ e^x, along the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Operation, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]

STRIDED = True
BY_ROW = True


def lower(builder: Builder, x: Value) -> Value:
    """y = e^x / Σ e^x, along the last axis."""
    builder.expect_width(x)
    return builder.add_operation("softmax", (x,), x.shape, part="softmax")


def forward(compiler: Compiler, op: Operation) -> None:
    compiler.emit(op, "softmax", x=compiler.value(op.inputs[0]), y=compiler.value(op.output))


def backward(compiler: Compiler, op: Operation) -> None:
    compiler.unary_backward(op, "softmax", y=compiler.value(op.output))
