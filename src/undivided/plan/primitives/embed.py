"""embed: y = table[ids], a row for each id of a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Initial, Input, Operation, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]

BY_ROW = True


def lower(builder: Builder, ids: Value, vocabulary: int, width: int, initial: Initial) -> Value:
    """y = table[ids], a row of `width` numbers for each id."""
    if not isinstance(ids, Input) or ids.vocabulary is None:
        raise builder.refuse(
            ids, "ids, as the first layer of a network", "Dense(units) takes numbers."
        )
    table = builder.parameter("table", (vocabulary, width), initial, decays=False)
    if builder.source_table is None:
        builder.source_table = builder.parameters[table]
    return builder.add_operation("embed", (ids,), (*ids.shape, width), parameters={"table": table})


def forward(compiler: Compiler, op: Operation) -> None:
    y, table = compiler.value(op.output), compiler.block(op, "table")
    compiler.emit(op, "embed", y=y, table=table, slot=compiler.input_number(op.inputs[0]))


def backward(compiler: Compiler, op: Operation) -> None:
    dy, table = compiler.gradient(op.output), compiler.block(op, "table")
    slot = compiler.input_number(op.inputs[0])
    listed = sum(i.kind == "embed" and i.backward for i in compiler.instructions)
    compiler.emit(op, "embed", backward=1, dy=dy, table=table, slot=slot, kept=listed)
