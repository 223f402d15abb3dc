"""linear: y = x·W + b over the last axis.

On its way through the schedule a linear operation may take in what stands around it: other
linear layers (`merged`, `fold`), a position table (`position`), an activation (`function`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from undivided.plan.plan import Initial, Operation, Value, size_of
from undivided.plan.primitives.activation import KEEP_RESULT

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "gradients", "lower", "multiply_adds"]

STRIDED = True
BY_ROW = True


def lower(
    builder: Builder, x: Value, units: int, *, bias: bool = True, part: str = "", role: str = ""
) -> Value:
    """y = x·W + b over the last axis, W [in, out]."""
    dot = f"{role}." if role else ""
    builder.expect_width(x)
    shape, initial = (x.width, units), Initial("xavier")
    names = {"weight": builder.parameter(f"{dot}weight", shape, initial, decays=True)}
    if bias:
        names["bias"] = builder.parameter(f"{dot}bias", (units,), Initial("constant"), decays=False)
    return builder.add_operation(
        "linear", (x,), (*x.shape[:-1], units), part=part or role, parameters=names
    )


def lower_tied(builder: Builder, x: Value, table: str, *, bias: bool) -> Value:
    """y = x·tableᵀ/√width + b, with the table of an embedding that is named by its layer.

    Rows of a table have a variance of 1 in each number; with 1/√width scores have it too.
    """
    parameter = builder.table_of(table)
    vocabulary, width = parameter.shape
    if x.width != width:
        raise builder.refuse(x, f"a width of {width}, that of {table!r}, to which it is tied")
    names = {"weight": parameter.name}
    if bias:
        names["bias"] = builder.parameter("bias", (vocabulary,), Initial("constant"), decays=False)
    scale = 1 / math.sqrt(width)
    x = builder.add_operation("rescale", (x,), x.shape, part="scaled", scale=scale, offset=0.0)
    shape = (*x.shape[:-1], vocabulary)
    return builder.add_operation("linear", (x,), shape, parameters=names, turned=True)


def multiply_adds(
    op: Operation, values: Mapping[str, Value], length: int, above: bool
) -> tuple[int, int]:
    x = values[op.inputs[0]]
    rows = size_of(x.shape[:-1], length)
    originals = op.attributes.get("merged", (op,))
    products = sum(rows * x.width * values[each.output].width for each in originals)
    return products, products * (2 if above else 1)


def forward(compiler: Compiler, op: Operation) -> None:
    function, turned = op.attributes.get("function", "none"), op.attributes.get("turned", False)
    if turned:
        compiler.transposed.add(compiler.block(op, "weight"))
    compiler.emit(
        op,
        "linear",
        x=compiler.value(op.inputs[0]),
        y=compiler.value(op.output),
        before=compiler.before(op.output) if compiler.backwards and _keeps(function) else -1,
        weight=compiler.block(op, "weight"),
        bias=compiler.block(op, "bias"),
        table=compiler.block(op, "table"),
        function=function,
        turned=int(turned),
    )


def backward(compiler: Compiler, op: Operation) -> None:
    function = op.attributes.get("function", "none")
    if op.output in compiler.masked:
        function = "none"
    table = compiler.block(op, "table")
    if table >= 0 and not compiler.storage.blocks[table].trained:
        table = -1
    compiler.emit(
        op,
        "linear",
        backward=1,
        **gradients(compiler, op),
        y=compiler.value(op.output) if function in KEEP_RESULT else -1,
        before=compiler.before(op.output) if _keeps(function) else -1,
        dy=compiler.gradient(op.output),
        table=table,
        function=function,
    )


def gradients(compiler: Compiler, op: Operation) -> dict[str, int]:
    """What the gradients of the input, the weight and the bias are made of."""
    source, turned = op.inputs[0], op.attributes.get("turned", False)
    mask = compiler.mask(op, source)
    dx, accumulate = compiler.into(source)
    weight = compiler.block(op, "weight")
    if dx >= 0 or turned:
        compiler.transposed.add(weight)
    return {
        "x": compiler.value(source),
        "dx": dx,
        "accumulate_x": accumulate,
        "mask": mask,
        "weight": weight,
        "bias": compiler.block(op, "bias"),
        "turned": int(turned),
    }


def _keeps(function: str) -> bool:
    """Whether the derivative needs what the function was applied to."""
    return function != "none" and function not in KEEP_RESULT
