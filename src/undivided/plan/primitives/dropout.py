"""dropout: y = x/(1 − rate) where a coin says so, else 0; in training alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Operation, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower"]

STRIDED = True
BY_ROW = True


def lower(builder: Builder, x: Value, rate: float) -> Value:
    """Each number is 0 with the chance `rate`, else divided by 1 − rate; x itself outside training.

    Every dropout of a plan has a number of its own, which its coins depend on.
    """
    if rate == 0.0:
        return x
    number = builder.next_coins()
    return builder.add_operation("dropout", (x,), x.shape, part="dropout", rate=rate, number=number)


def forward(compiler: Compiler, op: Operation) -> None:
    if compiler.purpose != "train":
        compiler.share(op)
        return
    x, y = compiler.value(op.inputs[0]), compiler.value(op.output)
    compiler.emit(op, "dropout", x=x, y=y, **_coins(op))


def backward(compiler: Compiler, op: Operation) -> None:
    if compiler.purpose != "train":
        compiler.pass_on(op, op.inputs[0])
        return
    compiler.unary_backward(op, "dropout", **_coins(op))


def _coins(op: Operation) -> dict[str, float]:
    return {"rate": op.attributes["rate"], "slot": op.attributes["number"]}
