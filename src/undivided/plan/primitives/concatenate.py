"""concatenate: two sequences end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Operation, Ragged, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]


def lower(builder: Builder, x: Value, y: Value) -> Value:
    """(S, D) and (T, D) → (S + T, D)."""
    for each in (x, y):
        builder.expect_sequence(each)
        if isinstance(each.shape[0], Ragged):
            raise builder.refuse(each, "a sequence of fixed length")
    if x.width != y.width:
        raise builder.refuse(y, f"a sequence of {x.width} features, to go behind another")
    lengths = [n for n in (x.shape[0], y.shape[0]) if isinstance(n, int)]
    return builder.add_operation("concatenate", (x, y), (sum(lengths), x.width))


def forward(compiler: Compiler, op: Operation) -> None:
    x, z = (compiler.value(name) for name in op.inputs)
    compiler.emit(op, "concatenate", x=x, z=z, y=compiler.value(op.output))


def backward(compiler: Compiler, op: Operation) -> None:
    left, right = op.inputs
    (dx, add_x), (dz, add_z) = compiler.into(left), compiler.into(right)
    compiler.emit(
        op,
        "concatenate",
        backward=1,
        x=compiler.value(left),
        z=compiler.value(right),
        dx=dx,
        dz=dz,
        dy=compiler.gradient(op.output),
        accumulate_x=add_x,
        accumulate_z=add_z,
    )
