"""What may be changed about a plan without changing what it computes.

Each pass is a function Graph → Graph with one idea. Results stay the same up to rounding; the
reference engine runs the plan without them, so a wrong one cannot hide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from undivided.plan.plan import Operation, Ragged, Value
from undivided.plan.schedule.graph import Graph

__all__ = [
    "PASSES",
    "fuse_activation",
    "fuse_input",
    "fuse_position",
    "merge_linears",
    "pool_before_linear",
    "rewrite",
]

PAD = 16
"""Floats in the widest vector; the engine pads every row to a multiple of it."""


def padded(width: int) -> int:
    return -(-width // PAD) * PAD


def pool_before_linear(graph: Graph) -> Graph:
    """mean(x·W + b) = mean(x)·W + b: pool first, and the linear layer sees one row, not S."""
    for pool in graph.operations:
        if pool.kind != "pool":
            continue
        linear = graph.producer(pool.inputs[0])
        if (
            linear is None
            or linear.kind != "linear"
            or linear.attributes
            or graph.only_consumer(linear.output) is not pool
        ):
            continue
        source = graph.values[linear.inputs[0]]
        # Averaging over no tokens gives 0, which the bias would then be added to.
        if isinstance(source.shape[0], Ragged):
            continue
        pooled = Value(f"{pool.output}.mean", source.shape[1:])
        values = {**graph.values, pooled.name: pooled}
        first = replace(pool, inputs=linear.inputs, output=pooled.name)
        second = replace(linear, inputs=(pooled.name,), output=pool.output)
        graph = replace(graph, values=values).replacing((linear, pool), (first, second))
        return pool_before_linear(graph)
    return graph


def merge_linears(graph: Graph) -> Graph:
    """Linear layers that read the same value run as one, their results side by side."""
    for source in [graph.input, *(op.output for op in graph.operations)]:
        readers = [op for op in graph.consumers(source) if op.kind == "linear"]
        graph = _merged(graph, source, [op for op in readers if not op.attributes])
    return graph


def _merged(graph: Graph, source: str, readers: list[Operation]) -> Graph:
    same_bias = len({"bias" in op.parameters for op in readers}) == 1
    if len(readers) < 2 or not same_bias or graph.output in {op.output for op in readers}:
        return graph
    values, parts, column = dict(graph.values), dict(graph.parts), 0
    name = "+".join(op.output for op in readers)
    for op in readers:
        parts[op.output] = (name, column)
        column += padded(graph.values[op.output].width)
    values[name] = Value(name, (*graph.values[source].shape[:-1], column))
    wide = Operation("linear", (source,), name, readers[0].layer, {}, {"merged": tuple(readers)})
    # The merged operation must stand where the first reader stood: others read its parts.
    operations = []
    for op in graph.operations:
        if op is readers[0]:
            operations.append(wide)
        elif op not in readers:
            operations.append(op)
    return replace(graph, values=values, parts=parts, operations=tuple(operations))


def fuse_position(graph: Graph) -> Graph:
    """A position table after a linear layer is added while its result is in registers."""
    for op in graph.operations:
        after = graph.only_consumer(op.output)
        fits = op.kind == "linear" and not op.attributes and op.output not in graph.parts
        if not fits or after is None or after.kind != "position":
            continue
        fused = replace(
            op,
            output=after.output,
            parameters={**op.parameters, **after.parameters},
            attributes={"position": True},
        )
        return fuse_position(graph.replacing((op, after), (fused,)))
    return graph


def fuse_activation(graph: Graph) -> Graph:
    """An activation after a linear layer is applied while its result is in registers."""
    for op in graph.operations:
        after = graph.only_consumer(op.output)
        fits = (
            op.kind == "linear"
            and "function" not in op.attributes
            and "merged" not in op.attributes
            and op.output not in graph.parts
        )
        if not fits or after is None or after.kind != "activation":
            continue
        fused = replace(
            op,
            output=after.output,
            attributes={**op.attributes, "function": after.attributes["function"]},
        )
        return fuse_activation(graph.replacing((op, after), (fused,)))
    return graph


def fuse_input(graph: Graph) -> Graph:
    """Rescaling and cutting into patches happen while a sample is read."""
    value, scale, offset, size = graph.input, 1.0, 0.0, None
    absorbed: list[Operation] = []
    while (op := graph.only_consumer(value)) is not None and size is None:
        if op.kind == "rescale":
            scale *= op.attributes["scale"]
            offset = offset * op.attributes["scale"] + op.attributes["offset"]
        elif op.kind == "unfold":
            size = op.attributes["size"]
        else:
            break
        absorbed.append(op)
        value = op.output
    attributes = {"scale": scale, "offset": offset, "size": size}
    load = Operation("load", (), value, absorbed[-1].layer if absorbed else "", {}, attributes)
    rest = tuple(op for op in graph.operations if op not in absorbed)
    return replace(graph, operations=(load, *rest))


PASSES: tuple[Callable[[Graph], Graph], ...] = (
    pool_before_linear,
    merge_linears,
    fuse_position,
    fuse_activation,
    fuse_input,
)


def rewrite(graph: Graph, passes: tuple[Callable[[Graph], Graph], ...] = PASSES) -> Graph:
    """All passes, in order. `fuse_input` comes last: it makes the load that engines start with."""
    for each in passes:
        graph = each(graph)
    return graph
