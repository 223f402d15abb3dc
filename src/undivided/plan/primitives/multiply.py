"""multiply: z = x∘y, of the same shape."""

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
    """x∘y, of the same shape."""
    if x.shape != y.shape:
        raise builder.differ(x, y, "multiplies", "with")
    return builder.add_operation("multiply", (x, y), x.shape)


def forward(compiler: Compiler, op: Operation) -> None:
    x, z = (compiler.value(name) for name in op.inputs)
    compiler.emit(op, "multiply", x=x, z=z, y=compiler.value(op.output))


def backward(compiler: Compiler, op: Operation) -> None:
    left, right = op.inputs
    (dx, add_x), (dz, add_z) = compiler.into(left), compiler.into(right)
    compiler.emit(
        op,
        "multiply",
        backward=1,
        x=compiler.value(left),
        z=compiler.value(right),
        dx=dx,
        dz=dz,
        dy=compiler.gradient(op.output),
        accumulate_x=add_x,
        accumulate_z=add_z,
    )
