"""rms_normalize: y = x/√(mean(x²) + ε)·gain, over the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Initial, Operation, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]

STRIDED = True
BY_ROW = True


def lower(builder: Builder, x: Value, epsilon: float, *, heads: int = 1, role: str = "") -> Value:
    """y = x/√(mean(x²) + ε)·gain, over the last axis, or over the columns of each head."""
    builder.expect_width(x)
    shape, name = (x.width // heads,), f"{role}.gain" if role else "gain"
    names = {"gain": builder.parameter(name, shape, Initial("constant", 1.0), decays=False)}
    given = {"epsilon": epsilon} | ({"heads": heads} if heads > 1 else {})
    return builder.add_operation(
        "rms_normalize", (x,), x.shape, part=role, parameters=names, **given
    )


def forward(compiler: Compiler, op: Operation) -> None:
    compiler.emit(op, "rms_normalize", y=compiler.value(op.output), **_shared(compiler, op))


def backward(compiler: Compiler, op: Operation) -> None:
    shared = _shared(compiler, op)
    dx, accumulate = compiler.into(op.inputs[0])
    dy = compiler.gradient(op.output)
    compiler.emit(op, "rms_normalize", backward=1, dx=dx, dy=dy, accumulate_x=accumulate, **shared)


def _shared(compiler: Compiler, op: Operation) -> dict[str, float]:
    return {
        "x": compiler.value(op.inputs[0]),
        "gain": compiler.block(op, "gain"),
        "offset": op.attributes["epsilon"],
        "heads": op.attributes.get("heads", 1),
    }
