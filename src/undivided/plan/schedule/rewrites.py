"""What may be changed about a plan without changing what it computes.

Each pass is a function Graph → Graph with one idea. Results stay the same up to rounding; the
reference engine runs the plan without them, so a wrong one cannot hide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from undivided.plan.plan import Operation, Ragged, Value
from undivided.plan.primitives import PRIMITIVES
from undivided.plan.schedule.graph import Graph

__all__ = [
    "PASSES",
    "Folded",
    "fold_scores",
    "fold_values",
    "fuse_activation",
    "fuse_input",
    "fuse_position",
    "merge_linears",
    "padded",
    "pick_before_rows",
    "pool_before_linear",
    "rewrite",
]

PAD = 16
"""Floats in the widest vector; the engine pads every row to a multiple of it."""

WIDTH_WORTH_FOLDING = 32
"""Narrower values stay in the order in which they are described. Folding them gains a twentieth of
an epoch at a width of 16, and takes the float32 programs' roundings away from networks that are
meant to reproduce them (benchmarks/LOG.md)."""

Pass = Callable[[Graph], Graph]


def padded(width: int) -> int:
    return -(-width // PAD) * PAD


def _is_plain_linear(op: Operation | None) -> bool:
    """A linear layer that no pass has added anything to."""
    return op is not None and op.kind == "linear" and not op.attributes


def pool_before_linear(graph: Graph) -> Graph:
    """mean(x·W + b) = mean(x)·W + b: pool first, and the linear layer sees one row, not S."""
    values = dict(graph.values)
    instead: dict[str, Sequence[Operation]] = {}
    for linear in graph.operations:
        pool = graph.only_reader(linear.output)
        if pool is None or pool.kind != "pool" or not _is_plain_linear(linear):
            continue
        source = graph.values[linear.inputs[0]]
        # Averaging over no tokens gives 0, which the bias would then be added to. Samples that are
        # only shorter than declared have some, and are to give the same bits as whole ones.
        if isinstance(source.shape[0], Ragged) and source.shape[0].most is None:
            continue
        pooled = Value(f"{pool.output}.mean", source.shape[1:])
        values[pooled.name] = pooled
        instead[linear.output] = ()
        instead[pool.output] = (
            replace(pool, inputs=linear.inputs, output=pooled.name),
            replace(linear, inputs=(pooled.name,), output=pool.output),
        )
    return replace(graph, values=values).replacing(instead)


@dataclass(frozen=True)
class Folded:
    """Two linear layers whose weights are multiplied once a step, not their results for each row.

    The weight is left·right and the bias left's·right + right's. `turned`: the weight is
    left·rightᵀ, and the bias of the right plays no part.
    """

    left: Operation
    right: Operation
    turned: bool


def _alone_before(graph: Graph, value: str, attention: Operation) -> Operation | None:
    """The plain linear layer that only gives `attention` one of its inputs."""
    linear = graph.producers.get(value)
    if linear is None or not _is_plain_linear(linear):
        return None
    return linear if graph.only_reader(value) is attention else None


def _has_one_plain_head(op: Operation) -> bool:
    """One head whose scores are products, and whose queries all see something."""
    plain = {"heads", "scale", "causal"}.issuperset(op.attributes) and not op.parameters
    return op.kind == "attention" and op.attributes["heads"] == 1 and plain


def fold_scores(graph: Graph) -> Graph:
    """With one head, (x·Wq + bq)·(x·Wk + bk)ᵀ is (x·Wq·Wkᵀ + bq·Wkᵀ)·xᵀ to a softmax."""
    values = dict(graph.values)
    instead: dict[str, Sequence[Operation]] = {}
    for op in graph.operations:
        if not _has_one_plain_head(op):
            continue
        query, key = (_alone_before(graph, name, op) for name in op.inputs[:2])
        if query is None or key is None or query.inputs != key.inputs:
            continue
        source = graph.values[query.inputs[0]]
        if source.width > graph.values[query.output].width:
            continue
        name = f"{query.output}·{key.output}"
        values[name] = Value(name, source.shape)
        folded = {"fold": Folded(query, key, turned=True)}
        instead[query.output] = (Operation("linear", query.inputs, name, query.layer, {}, folded),)
        instead[key.output] = ()
        instead[op.output] = (replace(op, inputs=(name, source.name, op.inputs[2])),)
    return replace(graph, values=values).replacing(instead)


def fold_values(graph: Graph) -> Graph:
    """With one head, (P·(x·Wv + bv))·W + b is (P·x)·(Wv·W) + bv·W + b: rows of P sum to 1."""
    values = dict(graph.values)
    instead: dict[str, Sequence[Operation]] = {}
    for op in graph.operations:
        if not _has_one_plain_head(op):
            continue
        value, after = _alone_before(graph, op.inputs[2], op), graph.only_reader(op.output)
        if value is None or after is None or not _is_plain_linear(after):
            continue
        source = graph.values[value.inputs[0]]
        unbiased = "bias" in value.parameters and "bias" not in after.parameters
        too_narrow = source.width < WIDTH_WORTH_FOLDING
        if source.width > graph.values[value.output].width or unbiased or too_narrow:
            continue
        name = f"{op.output}.of.{source.name}"
        values[name] = Value(name, (*graph.values[op.output].shape[:-1], source.width))
        instead[value.output] = ()
        instead[op.output] = (replace(op, inputs=(*op.inputs[:2], source.name), output=name),)
        folded = {"fold": Folded(value, after, turned=False)}
        instead[after.output] = (replace(after, inputs=(name,), parameters={}, attributes=folded),)
    return replace(graph, values=values).replacing(instead)


def _takes_parts(graph: Graph, name: str) -> bool:
    """Whether all that read a value can read it as columns of a wider one."""
    readers = graph.readers.get(name, [])
    return all(getattr(PRIMITIVES[op.kind], "STRIDED", False) for op in readers)


def _updates(graph: Graph, linear: Operation) -> tuple[tuple[str, bool, float], ...]:
    """Which parameters a linear layer has and how they are updated; equal ones share a block."""
    found = []
    for role, name in linear.parameters.items():
        parameter = graph.parameters.get(name)
        given = (True, 1.0) if parameter is None else (parameter.decays, parameter.rate)
        found.append((role, *given))
    return tuple(found)


def merge_linears(graph: Graph) -> Graph:
    """Linear layers that read the same value run as one, their results side by side."""
    values, parts = dict(graph.values), dict(graph.parts)
    instead: dict[str, Sequence[Operation]] = {}
    for source, readers in graph.readers.items():
        linears = [op for op in readers if _is_plain_linear(op)]
        linears = [op for op in linears if _takes_parts(graph, op.output)]
        alike = len({_updates(graph, op) for op in linears}) == 1
        if len(linears) < 2 or not alike or graph.output in {op.output for op in linears}:
            continue
        name, column = "+".join(op.output for op in linears), 0
        for op in linears:
            parts[op.output] = (name, column)
            column += padded(graph.values[op.output].width)
            instead[op.output] = ()
        values[name] = Value(name, (*graph.values[source].shape[:-1], column))
        first = linears[0]
        instead[first.output] = (
            Operation("linear", (source,), name, first.layer, {}, {"merged": tuple(linears)}),
        )
    return replace(graph, values=values, parts=parts).replacing(instead)


def _fuse_after_linear(
    graph: Graph, kind: str, fits: Callable[[Operation], bool], attributes: Callable
) -> Graph:
    """Linear layers take in the operation of that kind which alone reads their result."""
    instead: dict[str, Sequence[Operation]] = {}
    for op in graph.operations:
        after = graph.only_reader(op.output)
        if after is None or after.kind != kind or op.kind != "linear" or not fits(op):
            continue
        instead[op.output] = ()
        instead[after.output] = (
            replace(
                op,
                output=after.output,
                parameters={**op.parameters, **after.parameters},
                attributes={**op.attributes, **attributes(after)},
            ),
        )
    return graph.replacing(instead)


def fuse_position(graph: Graph) -> Graph:
    """A position table after a linear layer is added while its result is in registers."""
    return _fuse_after_linear(graph, "position", _is_plain_linear, lambda op: {"position": True})


def fuse_activation(graph: Graph) -> Graph:
    """An activation after a linear layer is applied while its result is in registers."""
    return _fuse_after_linear(
        graph,
        "activation",
        lambda op: not {"function", "merged"} & set(op.attributes),
        lambda op: {"function": op.attributes["function"]},
    )


def fuse_input(graph: Graph) -> Graph:
    """Rescaling and cutting into patches happen while a sample is read."""
    for source in graph.inputs:
        graph = _loading(graph, source)
    return graph


def _loading(graph: Graph, source: str) -> Graph:
    """The graph with an operation that reads one input; ids are read by who embeds them."""
    if any(op.kind == "embed" for op in graph.readers.get(source, [])):
        return graph
    value, scale, offset, size = source, 1.0, 0.0, None
    absorbed: list[Operation] = []
    while (op := graph.only_reader(value)) is not None and size is None:
        if op.kind == "rescale":
            scale *= op.attributes["scale"]
            offset = offset * op.attributes["scale"] + op.attributes["offset"]
        elif op.kind == "unfold":
            size = op.attributes["size"]
        else:
            break
        absorbed.append(op)
        value = op.output
    attributes = {"input": source, "scale": scale, "offset": offset, "size": size}
    load = Operation("load", (), value, absorbed[-1].layer if absorbed else "", {}, attributes)
    without = graph.replacing({op.output: () for op in absorbed})
    return replace(without, operations=(load, *without.operations))


def pick_before_rows(graph: Graph) -> Graph:
    """One row of f(x, y) is f of that row of each, where f goes row by row: f sees no other."""
    while (pick := _picked_late(graph)) is not None:
        op, index = graph.producers[pick.inputs[0]], pick.attributes["index"]
        operations, values = list(graph.operations), dict(graph.values)
        del operations[operations.index(op)]
        names: list[str] = []
        for name in op.inputs:
            if op.kind == "attention" and names:  # the keys and values stay, it is queries that go
                names.append(name)
                continue
            row = f"{name}[{index}]"
            values[row] = Value(row, values[name].shape[1:])
            outputs, here = [each.output for each in operations], operations.index(pick)
            if row in outputs[here:]:  # another picks it too, but too late
                del operations[outputs.index(row)]
            if row not in outputs[:here]:
                operations.insert(here, replace(pick, inputs=(name,), output=row))
            names.append(row)
        moved = replace(op, inputs=tuple(names), output=pick.output)
        operations[operations.index(pick)] = moved
        graph = replace(graph, operations=tuple(operations), values=values)
    return graph


def _picked_late(graph: Graph) -> Operation | None:
    """A pick of a row that could be one of what that row is made from."""
    for pick in graph.operations:
        if pick.kind != "pick" or graph.only_reader(pick.inputs[0]) is not pick:
            continue
        op = graph.producers.get(pick.inputs[0])
        if op is not None and _can_wait(graph, op, pick.attributes["index"]):
            return pick
    return None


def _can_wait(graph: Graph, op: Operation, index: int) -> bool:
    """Whether a row may be picked before the operation."""
    # Rows of a wider value lie apart, which only the last row of a sequence is picked from.
    if not set(op.inputs).isdisjoint(graph.inputs) or (
        index >= 0 and not graph.parts.keys().isdisjoint(op.inputs)
    ):
        return False
    if op.kind == "attention":  # of queries that go on, the last looks at all there is
        keys = graph.values[op.inputs[1]].shape[0]
        return isinstance(keys, Ragged) and keys.continued
    told = {"position", "number"} & set(op.attributes)  # where a row stands, or how coins fall
    by_row, placed = (getattr(PRIMITIVES.get(op.kind), n, False) for n in ("BY_ROW", "PLACED"))
    return by_row and not placed and not told


PASSES: tuple[Pass, ...] = (
    pool_before_linear,
    fold_values,
    fold_scores,
    merge_linears,
    fuse_position,
    fuse_activation,
    pick_before_rows,
    fuse_input,
)


def rewrite(graph: Graph, passes: Sequence[Pass] = PASSES) -> Graph:
    """All passes, in order. `fuse_input` comes last: it makes the load that programs start with."""
    for each in passes:
        graph = each(graph)
    return graph
