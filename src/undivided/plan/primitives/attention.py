"""attention: softmax(Q·Kᵀ·scale)·V for each head."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from undivided.plan.plan import Operation, Value, size_of

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower", "multiply_adds"]

STRIDED = True

TILE_ROWS = 14
"""The most rows of a native tile (`matrix.h`); scratch has room for that many rows of dP."""
KEY_TILE = 64
"""Transposed keys and values lie in tiles of this many (`attention_call.h`)."""


def lower(builder: Builder, query: Value, key: Value, value: Value, heads: int) -> Value:
    """softmax(Q·Kᵀ/√d)·V for each head; heads lie side by side in the last axis."""
    for x in (query, key, value):
        builder.expect_sequence(x)
        if x.width % heads:
            raise builder.refuse(x, f"a width that {heads} heads divide evenly")
    shape = (*query.shape[:-1], value.width)
    scale = 1.0 / math.sqrt(query.width // heads)
    return builder.add_operation(
        "attention", (query, key, value), shape, part="heads", heads=heads, scale=scale
    )


def multiply_adds(
    op: Operation, values: Mapping[str, Value], length: int, above: bool
) -> tuple[int, int]:
    query, key, value = (values[name] for name in op.inputs)
    keys = size_of(key.shape[:-1], length)
    products = size_of(query.shape[:-1], length) * keys * (query.width + value.width)
    return products, 2 * products


def forward(compiler: Compiler, op: Operation) -> None:
    query, key, value = op.inputs
    heads = op.attributes["heads"]
    most_queries, most_keys = (compiler.most_rows(name) for name in (query, key))
    keeps = compiler.purpose != "predict"
    # The native side takes a width above 1 to say that every head's weights are kept.
    kept = compiler.group * heads if keeps else 1
    probabilities = compiler.region(
        0, 2 if keeps else 1, 1, kept * most_queries * compiler.padded(most_keys)
    )
    values = {
        "x": compiler.value(query),
        "z": compiler.value(key),
        "v": compiler.value(value),
    }
    shared = {"probabilities": probabilities, "heads": heads, "scale": op.attributes["scale"]}
    scratch = compiler.scratch(_scratch(compiler, op, most_queries, most_keys))
    compiler.kept[op.output] = compiler.emit(
        op, "attention", **values, y=compiler.value(op.output), scratch=scratch, **shared
    )
    if compiler.purpose == "weights":
        slot = sum(i.kind == "store_weights" for i in compiler.instructions)
        compiler.emit(op, "store_weights", **values, slot=slot, **shared)


def _scratch(compiler: Compiler, op: Operation, most_queries: int, most_keys: int) -> int:
    """Room for a transposed operand beside rows of dP, or for one head's result."""
    heads = op.attributes["heads"]
    values = compiler.graph.values
    width = compiler.padded(max(values[name].width // heads for name in op.inputs))
    whole_tiles = -(-most_keys // KEY_TILE) * KEY_TILE
    turned = width * whole_tiles + TILE_ROWS * compiler.padded(most_keys)
    return max(turned, max(most_queries, most_keys) * width)


def backward(compiler: Compiler, op: Operation) -> None:
    query, key, value = op.inputs
    # In the order in which the kernel writes them: the same value may be key and value.
    (dv, add_v), (dx, add_x), (dz, add_z) = (compiler.into(n) for n in (value, query, key))
    forward = compiler.kept[op.output]
    compiler.emit(
        op,
        "attention",
        backward=1,
        x=forward.x,
        z=forward.z,
        v=forward.v,
        dx=dx,
        dz=dz,
        dv=dv,
        dy=compiler.gradient(op.output),
        accumulate_x=add_x,
        accumulate_z=add_z,
        accumulate_v=add_v,
        probabilities=forward.probabilities,
        scratch=compiler.scratch(compiler.regions[forward.scratch].floats),
        heads=forward.heads,
        scale=forward.scale,
    )
