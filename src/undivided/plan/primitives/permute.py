"""permute: the same numbers, the axes in another order."""

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


def lower(builder: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    """y[i_a0, i_a1, …] = x[i_0, i_1, …]: axis n of y is axis axes[n] of x, counted from 0."""
    if any(isinstance(extent, Ragged) for extent in x.shape):
        raise builder.refuse(x, "a fixed shape")
    if sorted(axes) != list(range(len(x.shape))):
        wanted = ", ".join(str(n + 1) for n in range(len(x.shape)))
        written = ", ".join(str(n + 1) for n in axes)
        raise builder.refuse(x, f"as many axes as ({written}) names, each once ({wanted})")
    shape = tuple(x.shape[n] for n in axes)
    return builder.add_operation("permute", (x,), shape, axes=axes)


def constants(op: Operation, values: Mapping[str, Value], longest: int) -> dict[str, np.ndarray]:
    shape = [n for n in values[op.inputs[0]].shape if isinstance(n, int)]
    stride = padded(shape[-1])
    rows = np.arange(int(np.prod(shape[:-1])))[:, None] * stride
    places = (rows + np.arange(shape[-1])).reshape(shape).transpose(op.attributes["axes"])
    if _run(op, values) > 1:
        places = places[..., 0]  # the last axis stays together
    return table(places)


def forward(compiler: Compiler, op: Operation) -> None:
    x, y = compiler.value(op.inputs[0]), compiler.value(op.output)
    compiler.emit(op, "gather", x=x, y=y, **_shared(compiler, op))


def backward(compiler: Compiler, op: Operation) -> None:
    compiler.unary_backward(op, "gather", **_shared(compiler, op))


def _run(op: Operation, values: Mapping[str, Value]) -> int:
    """How many numbers stay side by side: a row where the last axis stays the last, else 1."""
    axes = op.attributes["axes"]
    return values[op.output].width if axes[-1] == len(axes) - 1 else 1


def _shared(compiler: Compiler, op: Operation) -> dict[str, int]:
    depth = _run(op, compiler.graph.values)
    return {"table": compiler.block(op, "places"), "depth": depth}
