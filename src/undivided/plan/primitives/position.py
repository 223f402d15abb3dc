"""position: y[t] = x[t] + table[t], with a table that is learned or fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Initial, Operation, Ragged, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]

BY_ROW = True
PLACED = True


def lower(builder: Builder, x: Value, initial: Initial | None) -> Value:
    """y[t] = x[t] + table[t]; the table is a parameter, or fixed sinusoidal without one."""
    builder.expect_sequence(x)
    builder.placed = True
    length, width = x.shape
    if isinstance(length, int) and isinstance(width, int) and length * width >= 1 << 31:
        raise builder.refuse(x, f"a sequence of fewer than {1 << 31:,} numbers, to add positions")
    if initial is None:
        return builder.add_operation("position", (x,), x.shape)
    if isinstance(length, Ragged) and length.most is not None:
        length = length.most  # shorter samples use the first rows
    if isinstance(length, Ragged):
        raise builder.refuse(
            x,
            "a sequence of fixed length (it learns one row for each position)",
            "Use SinusoidalPositions() for sequences of any length.",
        )
    assert isinstance(width, int)
    table = builder.parameter("table", (length, width), initial, decays=False)
    return builder.add_operation("position", (x,), x.shape, parameters={"table": table})


def forward(compiler: Compiler, op: Operation) -> None:
    x, y = compiler.value(op.inputs[0]), compiler.value(op.output)
    compiler.emit(op, "position", x=x, y=y, table=compiler.block(op, "table"))


def backward(compiler: Compiler, op: Operation) -> None:
    if "table" in op.parameters:
        dy, table = compiler.gradient(op.output), compiler.block(op, "table")
        compiler.emit(op, "position", backward=1, dy=dy, table=table)
    compiler.pass_on(op, op.inputs[0])
