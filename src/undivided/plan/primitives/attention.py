"""attention: softmax(Q·Kᵀ·scale)·V for each head."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from undivided._operator.positions import alibi_slopes, t5_buckets
from undivided.plan.plan import Initial, Operation, Ragged, Value, most_of, size_of

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = [
    "backward",
    "constants",
    "expect_heads",
    "forward",
    "looks_back",
    "lower",
    "multiply_adds",
]

STRIDED = True
PLACED = True

TILE_ROWS = 14
"""The most rows of a native tile (`matrix.h`); scratch has room for that many rows of dP."""
KEY_TILE = 64
"""Transposed keys and values lie in tiles of this many (`attention_call.h`)."""
QUERIES = 256
"""Rows that go over the tiles of keys together (`attention_tiles.h`)."""
RECALLED = 48
"""New rows that look at kept keys together (`attention_kept.h`)."""
WHOLE_KEYS = 512
"""Rows of weights with more keys are not kept: they go tile by tile, and backward finds them
again."""


def lower(
    builder: Builder,
    query: Value,
    key: Value,
    value: Value,
    heads: int,
    *,
    key_heads: int | None = None,
    relative: tuple[int, int] | None = None,
    **options: Any,
) -> Value:
    """softmax(Q·Kᵀ/√d)·V for each head; heads lie side by side in the last axis.

    `relative` is (buckets, max_distance) of a learned table that scores know distances from.
    """
    expect_heads(builder, query, key, value, heads, key_heads)
    given = {name: option for name, option in options.items() if option not in (None, False, 0.0)}
    if key_heads not in (None, heads):
        given["key_heads"] = key_heads
    if "dropout" in given:
        given["number"] = builder.next_coins()
    names = {}
    if relative is not None:
        table = (relative[0], heads)
        names["relative"] = builder.parameter("relative", table, Initial("constant"), decays=False)
        given |= {"buckets": relative[0], "max_distance": relative[1]}
    shape = (*query.shape[:-1], value.width // (key_heads or heads) * heads)
    return builder.add_operation(
        "attention",
        (query, key, value),
        shape,
        part="heads",
        parameters=names,
        heads=heads,
        scale=1.0 / math.sqrt(query.width // heads),
        **given,
    )


def looks_back(op: Operation) -> bool:
    """Whether nobody attends to what comes later."""
    _, right = op.attributes.get("window") or (None, None)
    return bool(op.attributes.get("causal")) or right == 0


def expect_heads(
    builder: Builder, query: Value, key: Value, value: Value, heads: int, key_heads: int | None
) -> None:
    """Queries, keys and values must be sequences whose widths their heads divide evenly."""
    for x, number in ((query, heads), (key, key_heads or heads), (value, key_heads or heads)):
        builder.expect_sequence(x)
        if x.width % number:
            raise builder.refuse(x, f"a width that {number} heads divide evenly")


def multiply_adds(
    op: Operation, values: Mapping[str, Value], length: int, above: bool
) -> tuple[int, int]:
    query, key, _ = (values[name] for name in op.inputs)
    keys = size_of(key.shape[:-1], length)
    out = values[op.output]
    products = size_of(query.shape[:-1], length) * keys * (query.width + out.width)
    return products, 2 * products


def forward(compiler: Compiler, op: Operation) -> None:
    if compiler.purpose == "continue" and op.output in compiler.graph.new_rows:
        return _recall(compiler, op)
    query, key, value = op.inputs
    heads = op.attributes["heads"]
    most_queries, most_keys = (compiler.most_rows(name) for name in (query, key))
    keeps = compiler.purpose not in ("predict", "begin", "continue")
    values = {
        "x": compiler.value(query),
        "z": compiler.value(key),
        "v": compiler.value(value),
    }
    drops = "dropout" in op.attributes and compiler.purpose == "train"
    whole_keys = 0 if "softcap" in op.attributes or drops else WHOLE_KEYS
    # What is kept of a head: rows of weights, or where they are too long a number for each row.
    rows = most_queries
    if compiler.graph.values[query].shape[0] == compiler.graph.values[key].shape[0]:
        rows = min(rows, whole_keys)  # as many as keys
    if most_keys > whole_keys and not isinstance(compiler.graph.values[key].shape[0], Ragged):
        rows = 0  # never whole
    kept = max(rows * compiler.padded(min(most_keys, whole_keys)), compiler.padded(most_queries))
    shared = {
        # The native side takes a width above 1 to say that every head's are kept.
        "probabilities": compiler.region(
            0, 2 if keeps else 1, 1, kept * (compiler.group * heads if keeps else 1)
        ),
        "kept": kept,
        "whole_keys": whole_keys,
        "heads": heads,
        "scale": op.attributes["scale"],
        **_rules(compiler, op, most_queries, most_keys),
    }
    scratch = compiler.scratch(_scratch(compiler, op, most_queries, most_keys, whole_keys))
    compiler.kept[op.output] = compiler.emit(
        op, "attention", **values, y=compiler.value(op.output), scratch=scratch, **shared
    )
    if compiler.purpose == "weights":
        slot = {"slot": compiler.next_weights()}
        compiler.emit(op, "store_weights", **values, scratch=scratch, **shared | slot)


def begin(compiler: Compiler, op: Operation) -> None:
    """What it will look at in the source of its sequence, which is there before any token."""
    if op.inputs[1] not in compiler.graph.new_rows:
        _keep(compiler, op)


def _keep(compiler: Compiler, op: Operation) -> None:
    """Rows of keys and values go behind those that the sequence has."""
    _, key, value = op.inputs
    compiler.emit(
        op,
        "keep",
        z=compiler.value(key),
        v=compiler.value(value),
        key_heads=op.attributes.get("key_heads") or op.attributes["heads"],
        slot=compiler.graph.kept.index(op),
    )


def _recall(compiler: Compiler, op: Operation) -> None:
    """New rows of queries look at all keys that are kept, some rows at a time."""
    query, key, value = op.inputs
    if key in compiler.graph.new_rows:
        _keep(compiler, op)
    heads, values = op.attributes["heads"], compiler.graph.values
    value_width = values[value].width // (op.attributes.get("key_heads") or heads)
    rows, longest = min(RECALLED, compiler.most_rows(query)), compiler.longest
    keys = values[key].shape[0]
    compiler.emit(
        op,
        "recall",
        x=compiler.value(query),
        y=compiler.value(op.output),
        probabilities=compiler.scratch(rows * compiler.padded(longest)),
        scratch=compiler.scratch(rows * compiler.padded(value_width)),
        heads=heads,
        scale=op.attributes["scale"],
        axis=compiler.axis(keys),
        **_rules(compiler, op, longest, longest)
        | {"slot": compiler.graph.kept.index(op), "rate": 0.0},
    )


def _rules(compiler: Compiler, op: Operation, most_queries: int, most_keys: int) -> dict[str, Any]:
    """What the instruction says of scores and of who may attend to whom; see rules.h."""
    given, far = op.attributes, most_queries + most_keys
    left, right = given.get("window") or (None, None)
    left, right = (far if n is None else n for n in (left, right))
    rules: dict[str, Any] = {
        "key_heads": given.get("key_heads") or 0,
        "softcap": given.get("softcap") or 0.0,
        "left": left,
        "right": min(right, 0) if given.get("causal") else right,
        "distances": compiler.block(op, "distances"),
        "rate": given.get("dropout", 0.0),
        "slot": given.get("number", 0),
    }
    if given.get("pattern") is not None:
        rules["pattern"] = len(compiler.patterns)
        compiler.patterns.append(given["pattern"].blocks(most_queries, most_keys))
    if "relative" in op.parameters:
        rules["table"] = compiler.block(op, "relative")
        width = compiler.padded(compiler.storage.blocks[rules["distances"]].width)
        rules["biases"] = compiler.scratch(given["heads"] * width)
    limited = left < far or rules["right"] < far or "pattern" in rules
    rules["ruled"] = int(limited or rules["distances"] >= 0 or rules["softcap"] > 0)
    return rules


def constants(op: Operation, values: Mapping[str, Value], longest: int) -> dict[str, np.ndarray]:
    """What depends on distance alone: rows from distance −most to most, in the middle 0.

    For ALiBi the numbers themselves, a row a head; for a learned table one row, which of its
    rows belongs to a distance.
    """
    most = max(most_of(values[name], longest) for name in op.inputs[:2])
    distances = np.arange(-most, most + 1)
    if op.attributes.get("alibi"):
        return {"distances": -alibi_slopes(op.attributes["heads"])[:, None] * np.abs(distances)}
    if "relative" in op.parameters:
        buckets = t5_buckets(
            1,
            2 * most + 1,
            buckets=op.attributes["buckets"],
            max_distance=op.attributes["max_distance"],
            bidirectional=not op.attributes.get("causal"),
            offset=most,
        )
        return {"distances": buckets}
    return {}


def _scratch(
    compiler: Compiler, op: Operation, most_queries: int, most_keys: int, whole_keys: int
) -> int:
    """Room for a transposed operand beside rows of dP, or for one head's result; and where rows
    may go tile by tile for what that takes."""
    heads = op.attributes["heads"]
    key_heads = op.attributes.get("key_heads") or heads
    query, _, value = (compiler.graph.values[name] for name in op.inputs)
    D, F = compiler.padded(query.width // heads), compiler.padded(value.width // key_heads)
    keys = min(most_keys, whole_keys)
    whole_tiles = -(-keys // KEY_TILE) * KEY_TILE
    turned = max(D, F) * whole_tiles + TILE_ROWS * compiler.padded(keys)
    whole = max(turned, max(most_queries, keys) * max(D, F))
    if most_keys <= whole_keys:
        return whole
    rows = 2 * most_queries * (D + F) + most_keys * (D + F) + compiler.padded(most_queries)
    tiles = 3 * (D + F) * KEY_TILE + 4 * KEY_TILE * KEY_TILE + QUERIES * (F + 3)
    return max(whole, rows + tiles)


def backward(compiler: Compiler, op: Operation) -> None:
    query, key, value = op.inputs
    # In the order in which the kernel writes them: the same value may be key and value.
    (dv, add_v), (dx, add_x), (dz, add_z) = (compiler.into(n) for n in (value, query, key))
    forward = compiler.kept[op.output]
    d_biases = -1
    if forward.biases >= 0:
        d_biases = compiler.scratch(compiler.regions[forward.biases].floats + 2 * KEY_TILE)
    compiler.emit(
        op,
        "attention",
        backward=1,
        dx=dx,
        dz=dz,
        dv=dv,
        dy=compiler.gradient(op.output),
        accumulate_x=add_x,
        accumulate_z=add_z,
        accumulate_v=add_v,
        d_biases=d_biases,
        scratch=compiler.scratch(compiler.regions[forward.scratch].floats),
        # Rows that went tile by tile are found again with the help of what they gave.
        y=forward.y if compiler.most_rows(key) > forward.whole_keys else -1,
        **{name: getattr(forward, name) for name in SAME_IN_BOTH},
    )


SAME_IN_BOTH = (
    "x", "z", "v", "probabilities", "kept", "whole_keys", "heads", "key_heads", "scale", "softcap",
    "ruled", "left", "right", "pattern", "distances", "biases", "table", "rate", "slot",
)  # fmt: skip
