"""normalize: y = (x − mean)/√(variance + ε)·gain + shift, over the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Initial, Operation, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]

STRIDED = True
BY_ROW = True


def lower(builder: Builder, x: Value, epsilon: float) -> Value:
    """y = (x − mean)/√(variance + ε)·gain + shift, over the last axis."""
    builder.expect_width(x)
    names = {
        "gain": builder.parameter("gain", (x.width,), Initial("constant", 1.0), decays=False),
        "shift": builder.parameter("shift", (x.width,), Initial("constant", 0.0), decays=False),
    }
    return builder.add_operation("normalize", (x,), x.shape, parameters=names, epsilon=epsilon)


def forward(compiler: Compiler, op: Operation) -> None:
    compiler.emit(op, "normalize", y=compiler.value(op.output), **_shared(compiler, op))


def backward(compiler: Compiler, op: Operation) -> None:
    shared = _shared(compiler, op)
    dx, accumulate = compiler.into(op.inputs[0])
    dy = compiler.gradient(op.output)
    compiler.emit(op, "normalize", backward=1, dx=dx, dy=dy, accumulate_x=accumulate, **shared)


def _shared(compiler: Compiler, op: Operation) -> dict[str, float]:
    return {
        "x": compiler.value(op.inputs[0]),
        "gain": compiler.block(op, "gain"),
        "shift": compiler.block(op, "shift"),
        "offset": op.attributes["epsilon"],
    }
