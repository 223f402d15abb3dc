"""learned: rows that are the same for every sample, and trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Initial, Operation, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]


def lower(builder: Builder, x: Value, rows: int, limit: float, role: str = "token") -> Value:
    """(rows, D) for every sample of `x`, D as wide as x; they start uniform within ±limit."""
    builder.expect_width(x)
    initial = Initial("uniform", limit)
    table = builder.parameter(role, (rows, x.width), initial, decays=False)
    return builder.add_operation(
        "learned", (x,), (rows, x.width), part=role, parameters={"table": table}
    )


def forward(compiler: Compiler, op: Operation) -> None:
    compiler.emit(op, "learned", y=compiler.value(op.output), table=compiler.block(op, "table"))


def backward(compiler: Compiler, op: Operation) -> None:
    dy, table = compiler.gradient(op.output), compiler.block(op, "table")
    compiler.emit(op, "learned", backward=1, dy=dy, table=table)
