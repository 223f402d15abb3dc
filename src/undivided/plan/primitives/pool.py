"""pool: the mean of a sample's own tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Operation, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]


def lower(builder: Builder, x: Value) -> Value:
    """The mean over a sequence's own tokens: (S, D) → (D,)."""
    builder.expect_sequence(x)
    return builder.add_operation("pool", (x,), x.shape[1:])


def forward(compiler: Compiler, op: Operation) -> None:
    compiler.emit(op, "pool", x=compiler.value(op.inputs[0]), y=compiler.value(op.output))


def backward(compiler: Compiler, op: Operation) -> None:
    mask = compiler.mask(op, op.inputs[0])
    compiler.unary_backward(op, "pool", mask=mask)
