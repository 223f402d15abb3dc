"""max_pool: the largest numbers, of each window of a picture or of all tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from undivided.plan.plan import Operation, Value
from undivided.plan.primitives.table import table
from undivided.plan.primitives.windows import (
    expect_picture,
    expect_places,
    placed,
    rows_of_windows,
)

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "constants", "forward", "lower"]

Pair = tuple[int, int]


def lower(
    builder: Builder,
    x: Value,
    size: Pair | None = None,
    strides: Pair = (1, 1),
    padding: str = "valid",
) -> Value:
    """Without a size, over all tokens: (S, D) → (D,). Else over windows: (H, W, C) → (R, C', C)."""
    if size is None:
        builder.expect_sequence(x)
        return builder.add_operation("max_pool", (x,), x.shape[1:])
    if len(x.shape) != 3:
        raise builder.refuse(x, "a picture, shape (height, width, channels)")
    height, width, depth = expect_picture(builder, x)
    rows, *down = placed(height, size[0], strides[0], padding)
    columns, *across = placed(width, size[1], strides[1], padding)
    if rows < 1 or columns < 1:
        raise builder.refuse(
            x, f"a picture of at least {size[0]}×{size[1]}", 'Choose a smaller pool, or "same".'
        )
    expect_places(builder, x, rows * columns * size[0] * size[1])
    pads = (tuple(down), tuple(across))
    return builder.add_operation(
        "max_pool", (x,), (rows, columns, depth), size=size, strides=strides, pads=pads
    )


def constants(op: Operation, values: Mapping[str, Value], longest: int) -> dict[str, np.ndarray]:
    if "size" not in op.attributes:
        return {}
    height, width, _ = (n for n in values[op.inputs[0]].shape if isinstance(n, int))
    attributes = op.attributes
    pixels = rows_of_windows(
        (height, width), attributes["size"], attributes["strides"], attributes["pads"]
    )
    return table(pixels)


def forward(compiler: Compiler, op: Operation) -> None:
    x, y = compiler.value(op.inputs[0]), compiler.value(op.output)
    compiler.emit(op, "max_pool", x=x, y=y, **_shared(compiler, op))


def backward(compiler: Compiler, op: Operation) -> None:
    x, y = compiler.value(op.inputs[0]), compiler.value(op.output)
    compiler.unary_backward(op, "max_pool", x=x, y=y, **_shared(compiler, op))


def _shared(compiler: Compiler, op: Operation) -> dict[str, int]:
    down, across = op.attributes.get("size", (0, 0))
    return {"table": compiler.block(op, "places"), "down": down * across}
