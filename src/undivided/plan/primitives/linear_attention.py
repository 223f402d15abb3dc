"""linear_attention: φ(Q)·(φ(K)ᵀ·V) / φ(Q)·Σφ(K) for each head, φ(x) = elu(x) + 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from undivided.plan.plan import Operation, Value, size_of
from undivided.plan.primitives.attention import expect_heads

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.schedule.compile import Compiler

__all__ = ["backward", "forward", "lower", "multiply_adds"]

STRIDED = True

CHUNK = 64
"""Rows that go together in a native kernel (`linear_attention.h`)."""


def lower(
    builder: Builder,
    query: Value,
    key: Value,
    value: Value,
    heads: int,
    *,
    key_heads: int | None = None,
    causal: bool = False,
) -> Value:
    """φ(Q)·(φ(K)ᵀ·V) / φ(Q)·Σφ(K) for each head; heads lie side by side in the last axis."""
    expect_heads(builder, query, key, value, heads, key_heads)
    if causal and query.shape[0] != key.shape[0]:
        raise builder.refuse(key, f"as many keys as queries where it is causal, {query.shape[0]}")
    given: dict[str, Any] = {"causal": True} if causal else {}
    if key_heads not in (None, heads):
        given["key_heads"] = key_heads
    shape = (*query.shape[:-1], value.width // (key_heads or heads) * heads)
    return builder.add_operation(
        "linear_attention", (query, key, value), shape, part="heads", heads=heads, **given
    )


def multiply_adds(
    op: Operation, values: Mapping[str, Value], length: int, above: bool
) -> tuple[int, int]:
    """Keys into the state of their head, and queries out of it; a state is D·(F + 1) numbers."""
    query, key, value = (values[name] for name in op.inputs)
    heads = op.attributes["heads"]
    key_heads = op.attributes.get("key_heads", heads)
    state = query.width // heads * (value.width // key_heads + 1)
    into = size_of(key.shape[:-1], length) * key_heads * state
    products = into + size_of(query.shape[:-1], length) * heads * state
    return products, 2 * products


def forward(compiler: Compiler, op: Operation) -> None:
    query, key, value = op.inputs
    heads = op.attributes["heads"]
    kept = compiler.padded(compiler.most_rows(query))  # the sum of each query's weights
    keeps = compiler.purpose != "predict"
    shared = {
        "x": compiler.value(query),
        "z": compiler.value(key),
        "v": compiler.value(value),
        # The native side takes a width above 1 to say that every head's are kept.
        "probabilities": compiler.region(
            0, 2 if keeps else 1, 1, kept * (compiler.group * heads if keeps else 1)
        ),
        "kept": kept,
        "heads": heads,
        "key_heads": op.attributes.get("key_heads", 0),
        "causal": int(op.attributes.get("causal", False)),
        "scratch": compiler.scratch(_scratch(compiler, op)),
    }
    y = compiler.value(op.output)
    compiler.kept[op.output] = compiler.emit(op, "linear_attention", y=y, **shared)
    if compiler.purpose == "weights":
        slot = compiler.next_weights()
        compiler.emit(op, "store_linear_weights", **shared, slot=slot)


def _scratch(compiler: Compiler, op: Operation) -> int:
    """The `LinearRoom` of linear_attention.h."""
    heads = op.attributes["heads"]
    query, _, value = (compiler.graph.values[name] for name in op.inputs)
    D, F = query.width // heads, value.width // op.attributes.get("key_heads", heads)
    width, value_width = compiler.padded(D), compiler.padded(F + 1)
    states = (F + 1) * width + D * value_width
    rows = 3 * (width + value_width) + CHUNK + max(D, F + 1)
    return states + CHUNK * rows


def backward(compiler: Compiler, op: Operation) -> None:
    query, key, value = op.inputs
    # In the order in which the kernel writes them: the same value may be two of them.
    (dx, add_x), (dz, add_z), (dv, add_v) = (compiler.into(n) for n in (query, key, value))
    forward = compiler.kept[op.output]
    compiler.emit(
        op,
        "linear_attention",
        backward=1,
        y=forward.y,
        dx=dx,
        dz=dz,
        dv=dv,
        dy=compiler.gradient(op.output),
        accumulate_x=add_x,
        accumulate_z=add_z,
        accumulate_v=add_v,
        scratch=compiler.scratch(compiler.regions[forward.scratch].floats),
        **{name: getattr(forward, name) for name in SAME_IN_BOTH},
    )


SAME_IN_BOTH = ("x", "z", "v", "probabilities", "kept", "heads", "key_heads", "causal")
