"""rotary: queries or keys turned by where their tokens stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from undivided.plan.plan import Operation, Value, most_of

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "constants", "forward", "lower"]

STRIDED = True
BY_ROW = True
PLACED = True


def lower(builder: Builder, x: Value, heads: int, *, base: float = 10000.0, part: str) -> Value:
    """Pairs of numbers of each head turned by an angle that grows with the position."""
    builder.expect_sequence(x)
    return builder.add_operation("rotary", (x,), x.shape, part=part, heads=heads, base=base)


def constants(op: Operation, values: Mapping[str, Value], longest: int) -> dict[str, np.ndarray]:
    """cos and sin of each pair of a head, side by side, a row for each position."""
    from undivided.engines.reference.rotary import angles

    x, heads = values[op.inputs[0]], op.attributes["heads"]
    angle = angles(most_of(x, longest), x.width // heads, op.attributes["base"])
    return {"table": np.concatenate([np.cos(angle), np.sin(angle)], axis=1)}


def forward(compiler: Compiler, op: Operation) -> None:
    x, y = compiler.value(op.inputs[0]), compiler.value(op.output)
    heads, table = op.attributes["heads"], compiler.block(op, "table")
    compiler.emit(op, "rotary", x=x, y=y, heads=heads, table=table)


def backward(compiler: Compiler, op: Operation) -> None:
    heads, table = op.attributes["heads"], compiler.block(op, "table")
    compiler.unary_backward(op, "rotary", heads=heads, table=table)
