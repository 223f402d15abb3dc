"""windows: every window of a picture becomes a row, overlapping ones and padding included.

What `unfold` does for windows that touch and do not overlap, at any strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from undivided.plan.plan import Operation, Ragged, Value
from undivided.plan.primitives.table import padded, table

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = [
    "backward",
    "constants",
    "expect_picture",
    "expect_places",
    "forward",
    "lower",
    "placed",
    "rows_of_windows",
]

Pair = tuple[int, int]

MOST_PLACES = 1 << 28
"""So that the table of a layer's windows takes at most a GiB."""


def lower(builder: Builder, x: Value, size: Pair, strides: Pair, padding: str) -> Value:
    """(H, W) or (H, W, C) → (R, C', h·w·C), the windows of `size` at every stride.

    `valid` keeps to the picture; `same` pads with zeros so that R = ⌈H/stride⌉.
    """
    height, width, depth = expect_picture(builder, x)
    rows, above, below = placed(height, size[0], strides[0], padding)
    columns, left, right = placed(width, size[1], strides[1], padding)
    if rows < 1 or columns < 1:
        raise builder.refuse(
            x,
            f"a picture of at least {size[0]}×{size[1]}, which is the size of a window",
            'Choose a smaller kernel_size, or padding="same".',
        )
    expect_places(builder, x, rows * columns * size[0] * size[1])
    shape = (rows, columns, size[0] * size[1] * depth)
    pads = ((above, below), (left, right))
    return builder.add_operation(
        "windows", (x,), shape, part="windows", size=size, strides=strides, pads=pads
    )


def expect_picture(builder: Builder, x: Value) -> tuple[int, int, int]:
    """The height, width and depth of a picture."""
    if len(x.shape) not in (2, 3) or any(isinstance(n, Ragged) for n in x.shape):
        raise builder.refuse(x, "a picture, shape (height, width) or (height, width, channels)")
    height, width, *channels = (int(n) for n in x.shape if isinstance(n, int))
    return height, width, channels[0] if channels else 1


def expect_places(builder: Builder, x: Value, places: int) -> None:
    """Places in a picture are counted in 32 bits, and a table has all those of its windows."""
    height, width, depth = expect_picture(builder, x)
    numbers = height * width * padded(depth)
    if numbers >= 1 << 31 or places > MOST_PLACES:
        raise builder.refuse(
            x,
            f"a picture of fewer than {1 << 31:,} numbers, and windows with at most "
            f"{MOST_PLACES:,} places together (here {places:,})",
            "Give it smaller pictures.",
        )


def placed(extent: int, size: int, stride: int, padding: str) -> tuple[int, int, int]:
    """How many windows fit along an axis, and the zeros before and after it."""
    if padding == "valid":
        return (extent - size) // stride + 1, 0, 0
    count = -(-extent // stride)
    zeros = max((count - 1) * stride + size - extent, 0)
    return count, zeros // 2, zeros - zeros // 2


def rows_of_windows(picture: Pair, size: Pair, strides: Pair, pads: Sequence[Pair]) -> np.ndarray:
    """[R·C', h·w]: the pixel, counted along rows, at each place of each window; −1 outside."""
    axes = []
    for extent, length, stride, (before, after) in zip(picture, size, strides, pads, strict=True):
        count = (extent + before + after - length) // stride + 1
        at = np.arange(count)[:, None] * stride + np.arange(length) - before
        axes.append(np.where((at >= 0) & (at < extent), at, -1))
    down, across = axes
    down, across = down[:, None, :, None], across[None, :, None, :]
    pixels = np.where((down < 0) | (across < 0), -1, down * picture[1] + across)
    return pixels.reshape(-1, size[0] * size[1]).astype(np.int32)


def constants(op: Operation, values: Mapping[str, Value], longest: int) -> dict[str, np.ndarray]:
    height, width, *channels = (n for n in values[op.inputs[0]].shape if isinstance(n, int))
    attributes = op.attributes
    pixels = rows_of_windows(
        (height, width), attributes["size"], attributes["strides"], attributes["pads"]
    )
    if channels:
        return table(np.where(pixels < 0, -1, pixels * padded(channels[0])))
    places = pixels // width * padded(width) + pixels % width
    return table(np.where(pixels < 0, -1, places))


def forward(compiler: Compiler, op: Operation) -> None:
    x, y = compiler.value(op.inputs[0]), compiler.value(op.output)
    compiler.emit(op, "gather", x=x, y=y, **_shared(compiler, op))


def backward(compiler: Compiler, op: Operation) -> None:
    compiler.unary_backward(op, "gather", **_shared(compiler, op))


def _shared(compiler: Compiler, op: Operation) -> dict[str, int]:
    shape = compiler.graph.values[op.inputs[0]].shape
    depth = shape[2] if len(shape) == 3 else 1
    assert isinstance(depth, int)
    return {"table": compiler.block(op, "places"), "depth": depth}
