"""activation: y = f(x), element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Operation, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]


def lower(builder: Builder, x: Value, function: str) -> Value:
    """y = f(x), element by element."""
    return builder.add_operation("activation", (x,), x.shape, part=function, function=function)


def forward(compiler: Compiler, op: Operation) -> None:
    x, y = compiler.value(op.inputs[0]), compiler.value(op.output)
    compiler.emit(op, "activation", x=x, y=y, function=op.attributes["function"])


def backward(compiler: Compiler, op: Operation) -> None:
    function = op.attributes["function"]
    kept = (
        {"y": compiler.value(op.output)}
        if function == "relu"
        else {"x": compiler.value(op.inputs[0])}
    )
    compiler.unary_backward(op, "activation", function=function, **kept)
