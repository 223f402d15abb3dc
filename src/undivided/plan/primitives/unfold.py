"""unfold: a picture is cut into patches that touch and do not overlap."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from undivided.plan.plan import Operation, Ragged, Shape, Value

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "geometry", "lower"]


def lower(builder: Builder, x: Value, size: tuple[int, int]) -> Value:
    """Cut (H, W) or (H, W, C) into patches: (H/h · W/w, h·w·C), row by row."""
    if len(x.shape) not in (2, 3) or any(isinstance(n, Ragged) for n in x.shape):
        raise builder.refuse(x, "a picture, shape (height, width) or (height, width, channels)")
    height, width, *channels = (int(n) for n in x.shape if isinstance(n, int))
    down, across = size
    if height % down or width % across:
        raise builder.refuse(
            x, f"a picture that {down}×{across} patches divide evenly", "Choose another size."
        )
    tokens = (height // down) * (width // across)
    depth = math.prod(channels)
    return builder.add_operation("unfold", (x,), (tokens, down * across * depth), size=size)


def geometry(shape: Shape, size: tuple[int, int]) -> dict[str, int]:
    """The picture and the patches, as instructions carry them."""
    height, width, *channels = (n for n in shape if isinstance(n, int))
    return {
        "height": height,
        "across_image": width,
        "depth": math.prod(channels),
        "down": size[0],
        "across": size[1],
    }


def forward(compiler: Compiler, op: Operation) -> None:
    x, y = compiler.value(op.inputs[0]), compiler.value(op.output)
    compiler.emit(op, "unfold", x=x, y=y, **_geometry(compiler, op))


def backward(compiler: Compiler, op: Operation) -> None:
    compiler.unary_backward(op, "unfold", **_geometry(compiler, op))


def _geometry(compiler: Compiler, op: Operation) -> dict[str, int]:
    return geometry(compiler.graph.values[op.inputs[0]].shape, op.attributes["size"])
