"""activation: y = f(x), element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Operation, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["KEEP_RESULT", "backward", "forward", "lower"]

STRIDED = True
BY_ROW = True

KEEP_RESULT = frozenset({"relu", "leaky_relu", "tanh", "sigmoid"})
"""Functions whose derivative is told from their result; the others keep what they are given."""


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
        if function in KEEP_RESULT
        else {"x": compiler.value(op.inputs[0])}
    )
    compiler.unary_backward(op, "activation", function=function, **kept)
