"""pick: one token of a sequence; the last, where sequences bring their own lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from undivided.plan.plan import Operation, Ragged, Value
from undivided.plan.primitives.table import padded, table

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "constants", "forward", "lower"]


def lower(builder: Builder, x: Value, index: int) -> Value:
    """Token `index` of (S, D), from the end where it is negative: (D,)."""
    builder.expect_sequence(x)
    length = x.shape[0]
    if isinstance(length, Ragged):
        raise builder.refuse(x, "a sequence of fixed length", "Pool it instead.")
    if not -length <= index < length:
        raise builder.refuse(x, f"a sequence with a token number {index}")
    return builder.add_operation("pick", (x,), x.shape[1:], index=index % length)


def constants(op: Operation, values: Mapping[str, Value], longest: int) -> dict[str, np.ndarray]:
    if op.attributes["index"] < 0:
        return {}
    return table(np.array(op.attributes["index"] * padded(values[op.output].width)))


def forward(compiler: Compiler, op: Operation) -> None:
    x, y = compiler.value(op.inputs[0]), compiler.value(op.output)
    if op.attributes["index"] < 0:  # which only plans that go on ask for: there is no way back
        compiler.emit(op, "last", x=x, y=y)
    else:
        compiler.emit(op, "gather", x=x, y=y, **_shared(compiler, op))


def backward(compiler: Compiler, op: Operation) -> None:
    compiler.unary_backward(op, "gather", **_shared(compiler, op))


def _shared(compiler: Compiler, op: Operation) -> dict[str, int]:
    depth = compiler.graph.values[op.output].width
    return {"table": compiler.block(op, "places"), "depth": depth}
