"""Each rewrite alone and in any order: what it does, when it must not, and that it is seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import permutations
from unittest.mock import patch

import pytest
from agreement import Trio, batch_for

from undivided.engines.native import engine as native_engine
from undivided.layers import (
    Activation,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePooling1D,
    Layer,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    Output,
    Patches,
    Rescaling,
    Residual,
    SinusoidalPositions,
    TokenAt,
)
from undivided.network import Network
from undivided.plan.plan import Operation, Plan, Value
from undivided.plan.schedule import Schedule
from undivided.plan.schedule.graph import Graph, graph_of
from undivided.plan.schedule.rewrites import (
    PASSES,
    Pass,
    fuse_activation,
    fuse_input,
    fuse_position,
    merge_linears,
    pick_before_rows,
    pool_before_linear,
    rewrite,
)
from undivided.plan.schedule.storage import store

ENDS = GlobalAveragePooling1D(), Output(4)

NETWORKS: dict[str, Network] = {
    "classifier": Network(
        input=(6, 8),
        layers=(
            Rescaling(0.5, 0.1),
            Patches(2),
            Dense(12),
            LearnedPositions(),
            Activation("relu"),
            MultiHeadAttention(1, output_projection=False),
            Dense(9, activation="relu"),
            Dense(7),
            *ENDS,
        ),
    ),
    "blocks": Network(
        input=(5, 6),
        layers=(
            Rescaling(2.0),
            Dense(8, activation="gelu"),
            SinusoidalPositions(),
            Residual((LayerNormalization(), MultiHeadAttention(2, bias=False))),
            Residual((LayerNormalization(), Dense(10, activation="gelu"), Dense(8))),
            Rescaling(0.5, 0.5),
            Dense(8),
            Residual((Dense(8, bias=False),)),
            Dense(6),
            *ENDS,
        ),
    ),
    "one of its tokens": Network(
        input=(5, 6),
        layers=(
            Dense(8),
            LearnedPositions(),
            MultiHeadAttention(2),
            Residual((Dense(8),)),
            LayerNormalization(),
            Dense(9, activation="gelu"),
            TokenAt(-2),
            Output(4),
        ),
    ),
    "any length": Network(
        input=(None, 6),
        layers=(
            Rescaling(0.5, -0.5),
            Dense(8),
            SinusoidalPositions(),
            Activation("relu"),
            MultiHeadAttention(2),
            Dense(5),
            *ENDS,
        ),
    ),
}
FREE = [each for each in PASSES if each is not fuse_input]


def graph(*layers: Layer, shape: tuple[int | None, ...] = (5, 6)) -> Graph:
    return graph_of(Network(input=shape, layers=layers).plan())


def kinds(graph: Graph) -> list[str]:
    return [op.kind for op in graph.operations]


def named(passes: Sequence[Pass]) -> str:
    return ", ".join(each.__name__ for each in passes)


@contextmanager
def using(passes: Sequence[Pass]) -> Iterator[None]:
    """Native engines that are made meanwhile rewrite with these passes."""

    def schedule(plan: Plan, longest: int = 1) -> Schedule:
        rewritten = rewrite(graph_of(plan), passes)
        return Schedule(plan, rewritten, store(plan, rewritten, longest), longest)

    with patch.object(native_engine, "schedule", schedule):
        yield


def check(name: str, passes: Sequence[Pass], seed: int = 0) -> None:
    """A rewritten network against the reference, which runs the plan as it is."""
    with using(passes):
        trio = Trio(NETWORKS[name], seed=seed)
        lengths = (3, 1, 17, 6) if name == "any length" else ()
        trio.check(batch_for(trio.plan, 4, seed=seed, lengths=lengths)).verify()


def parameters_of(op: Operation) -> list[str]:
    """All parameters that an operation stands for, merged and folded ones too."""
    folded = op.attributes.get("fold")
    originals = (folded.left, folded.right) if folded else op.attributes.get("merged", ())
    return [*op.parameters.values(), *(n for each in originals for n in each.parameters.values())]


def sound(before: Graph, after: Graph) -> None:
    """Nothing is read before it is there, nothing is lost, nothing is there twice."""
    known = set(after.inputs)
    for op in after.operations:
        assert op.output not in known or (op.kind == "load" and op.output in after.inputs)
        for name in op.inputs:
            assert after.parts.get(name, (name, 0))[0] in known, f"{op.output} reads {name}"
        known.add(op.output)
        for name in (op.output, *op.inputs):
            assert name in after.values
    assert (after.inputs, after.output) == (before.inputs, before.output)
    assert after.output in known
    assert after.values[after.output] == before.values[before.output]
    found = Counter(name for op in after.operations for name in parameters_of(op))
    assert found == Counter(name for op in before.operations for name in parameters_of(op))
    for name, (wide, column) in after.parts.items():
        assert column % 16 == 0
        assert column + after.values[name].width <= after.values[wide].width


# In any order.


ORDERS = [order for count in (0, 1, 2) for order in permutations(FREE, count)] + [
    tuple(FREE),
    tuple(reversed(FREE)),
    *(tuple(FREE[n:] + FREE[:n]) for n in range(1, len(FREE))),
]


@pytest.mark.parametrize("order", ORDERS, ids=named)
def test_any_passes_in_any_order_agree(order: tuple[Pass, ...]) -> None:
    for name in NETWORKS:
        check(name, (*order, fuse_input))


def test_any_order_is_sound() -> None:
    for network in NETWORKS.values():
        before = graph_of(network.plan())
        for count in range(len(FREE) + 1):
            for order in permutations(FREE, min(count, 4)):
                sound(before, rewrite(before, (*order, fuse_input)))


def test_a_pass_twice_changes_nothing_more() -> None:
    for network in NETWORKS.values():
        for each in FREE:
            once = each(graph_of(network.plan()))
            sound(once, each(once))


def test_no_pass_touches_what_it_is_given() -> None:
    for network in NETWORKS.values():
        before = graph_of(network.plan())
        operations, values = before.operations, dict(before.values)
        rewrite(before)
        assert before.operations == operations and before.values == values and not before.parts


def test_passes_are_those_that_are_scheduled() -> None:
    assert PASSES[-1] is fuse_input
    assert {pool_before_linear, merge_linears, fuse_position, fuse_activation} <= set(FREE)
    assert len(set(PASSES)) == len(PASSES)
    before = graph_of(NETWORKS["classifier"].plan())
    assert rewrite(before) == rewrite(before, PASSES)


# Picking a row before what goes row by row.


def test_picking_moves_before_what_goes_row_by_row() -> None:
    before = graph(LayerNormalization(), Dense(7), Activation("gelu"), TokenAt(2))
    after = pick_before_rows(before)
    sound(before, after)
    assert kinds(before) == ["normalize", "linear", "activation", "pick"]
    assert kinds(after) == ["normalize", "pick", "linear", "activation"]
    assert [after.values[op.output].shape for op in after.operations] == [(5, 6), (6,), (7,), (7,)]
    assert after.operations[1].attributes["index"] == 2


def test_what_is_read_twice_is_picked_once() -> None:
    for order in (1, -1):
        inner = Residual((LayerNormalization(), Dense(6)))
        before = graph(Dense(6), inner, TokenAt(1))
        add = next(op for op in before.operations if op.kind == "add")
        before = before.replacing({add.output: (replace(add, inputs=add.inputs[::order]),)})
        after = pick_before_rows(before)
        sound(before, after)
        assert kinds(before) == ["linear", "normalize", "linear", "add", "pick"]
        assert kinds(after) == ["linear", "pick", "normalize", "linear", "add"]


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ((Dense(7), SinusoidalPositions(), TokenAt(0)), "it matters where a row stands"),
        ((Dense(6), MultiHeadAttention(2, output_projection=False), TokenAt(0)), "rows are mixed"),
        ((Dense(6), Dropout(0.5), TokenAt(0)), "coins fall by where a row stands"),
        ((TokenAt(0), Dense(7)), "it is picked at once"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_picking_stays_where_moving_would_be_wrong(layers: tuple[Layer, ...], why: str) -> None:
    before = graph(*layers, Output(4))
    assert kinds(pick_before_rows(before)) == kinds(before), why


def test_picking_stays_behind_a_table_that_was_taken_in() -> None:
    before = fuse_position(graph(Dense(7), SinusoidalPositions(), TokenAt(0), Output(4)))
    assert kinds(pick_before_rows(before)) == kinds(before) == ["linear", "pick", "linear"]


# Pooling before a linear layer.


def test_pooling_moves_before_a_linear_layer() -> None:
    before = graph(Activation("gelu"), Dense(7), *ENDS)
    after = pool_before_linear(before)
    sound(before, after)
    assert kinds(before) == ["activation", "linear", "pool", "linear"]
    assert kinds(after) == ["activation", "pool", "linear", "linear"]
    pool, linear = after.operations[1:3]
    assert after.values[pool.output].shape == (6,)
    assert after.values[linear.output].shape == (7,)
    assert linear.parameters == before.operations[1].parameters
    assert (pool.layer, linear.layer) == ("pooling_1", "dense_1")


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ((Dense(7, activation="relu"), *ENDS), "an activation stands between"),
        ((Dense(7), LayerNormalization(), *ENDS), "a normalisation stands between"),
        ((Dense(7), LearnedPositions(), *ENDS), "positions stand between"),
        ((Dense(6), Residual((Dense(6),)), *ENDS), "what is pooled is a sum"),
        ((Dense(7), Flatten(), Output(4)), "nothing is pooled"),
        ((LearnedPositions(), *ENDS), "there is no linear layer"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_pooling_stays_where_moving_would_be_wrong(layers: tuple[Layer, ...], why: str) -> None:
    before = graph(*layers)
    assert kinds(pool_before_linear(before)) == kinds(before), why


def test_pooling_stays_where_there_may_be_no_tokens() -> None:
    before = graph(Activation("gelu"), Dense(7), *ENDS, shape=(None, 6))
    assert kinds(pool_before_linear(before)) == kinds(before)


def test_pooling_stays_where_others_read_what_is_pooled() -> None:
    before = graph(Dense(7), *ENDS)
    linear, pool, output = before.operations
    twice = Operation("add", (pool.output, pool.output), "twice", "extra")
    also = Operation("normalize", (linear.output,), "also", "extra")
    values = {**before.values, "also": before.values[linear.output], "twice": Value("twice", (7,))}
    for more in ((linear, pool, also, output), (linear, also, pool, output)):
        shared = replace(before, operations=more, values=values)
        assert kinds(pool_before_linear(shared)) == kinds(shared)
    # What reads the pooled value does not matter.
    more = (linear, pool, twice, output)
    shared = replace(before, operations=more, values=values)
    assert kinds(pool_before_linear(shared)) == ["pool", "linear", "add", "linear"]


def test_pooling_stays_behind_a_linear_layer_that_does_more() -> None:
    for fuse, layer in ((fuse_position, LearnedPositions()), (fuse_activation, Activation("relu"))):
        before = fuse(graph(Dense(7), layer, *ENDS))
        assert kinds(before) == ["linear", "pool", "linear"]
        assert kinds(pool_before_linear(before)) == kinds(before)


def test_pooling_stays_where_the_plan_ends_with_the_linear_layer() -> None:
    before = graph(Dense(7), *ENDS)
    linear, pool, _ = before.operations
    ends = replace(before, operations=(linear, pool), output=linear.output)
    assert kinds(pool_before_linear(ends)) == ["linear", "pool"]


# Linear layers that read the same value.


@pytest.mark.parametrize("bias", [True, False])
def test_query_key_and_value_run_as_one(bias: bool) -> None:
    before = graph(MultiHeadAttention(2, key_dim=5, bias=bias), *ENDS)
    after = merge_linears(before)
    sound(before, after)
    assert kinds(after) == ["linear", "attention", "linear", "pool", "linear"]
    wide = after.operations[0]
    merged = wide.attributes["merged"]
    assert [op.output for op in merged] == [f"attention_1.{r}" for r in ("query", "key", "value")]
    assert merged == before.operations[:3]
    assert [after.parts[op.output] for op in merged] == [
        (wide.output, 0),
        (wide.output, 16),
        (wide.output, 32),
    ]
    assert after.values[wide.output].shape == (5, 48)
    assert after.operations[1].inputs == tuple(op.output for op in merged)


def two_linears(
    *, bias: tuple[bool, bool] = (True, True), apart: bool = False, output: str = "sum"
) -> Graph:
    """x → (left, right) → sum, with something between the two where they stand apart."""
    x, left, right = Value("x", (5, 6)), Value("left", (5, 6)), Value("right", (5, 6))
    between = Value("between", (5, 6))
    linears = [
        Operation(
            "linear",
            ("x",),
            value.name,
            value.name,
            {"weight": f"{value.name}.weight"} | ({"bias": f"{value.name}.bias"} if has else {}),
        )
        for value, has in zip((left, right), bias, strict=True)
    ]
    middle = Operation("activation", ("left",), "between", "between", {}, {"function": "relu"})
    end = Operation("add", ("between" if apart else "left", "right"), "sum", "sum")
    operations = (linears[0], *((middle,) if apart else ()), linears[1], end)
    values = {v.name: v for v in (x, left, right, between, Value("sum", (5, 6)))}
    return Graph(("x",), output, values, operations)


def test_linear_layers_merge_where_the_first_stood() -> None:
    for apart in (False, True):
        before = two_linears(apart=apart)
        after = merge_linears(before)
        sound(before, after)
        assert kinds(after) == ["linear", *kinds(before)[1:-2], "add"]


@pytest.mark.parametrize("bias", [(True, False), (False, True)])
def test_a_bias_and_none_do_not_merge(bias: tuple[bool, bool]) -> None:
    before = two_linears(bias=bias)
    assert merge_linears(before).operations == before.operations
    assert not merge_linears(before).parts


def test_what_a_plan_gives_is_no_part_of_anything() -> None:
    for output in ("left", "right"):
        before = two_linears(output=output)
        assert merge_linears(before).operations == before.operations


def test_readers_of_different_values_do_not_merge() -> None:
    before = graph(Dense(6), Dense(6), Dense(6), *ENDS)
    assert merge_linears(before).operations == before.operations


def test_linear_layers_that_do_more_do_not_merge() -> None:
    before = fuse_activation(two_linears(apart=True))
    assert kinds(before) == ["linear", "linear", "add"]
    assert merge_linears(before).operations == before.operations


# What a linear layer takes in.


@pytest.mark.parametrize("layer", [LearnedPositions(), SinusoidalPositions()], ids=repr)
def test_positions_join_a_linear_layer(layer: Layer) -> None:
    before = graph(Dense(7), layer, *ENDS)
    after = fuse_position(before)
    sound(before, after)
    assert kinds(after) == ["linear", "pool", "linear"]
    fused = after.operations[0]
    assert fused.output == "positions_1" and fused.inputs == ("input",)
    assert fused.attributes == {"position": True}
    assert ("table" in fused.parameters) == isinstance(layer, LearnedPositions)
    kept = graph(Dense(7), Activation("relu"), layer, *ENDS)
    assert fuse_position(kept).operations == kept.operations
    shared = graph(Dense(6), Residual((layer,)), *ENDS)
    assert fuse_position(shared).operations == shared.operations


@pytest.mark.parametrize("function", ["relu", "gelu"])
def test_an_activation_joins_a_linear_layer(function: str) -> None:
    layer = Activation(function)  # type: ignore[arg-type]
    before = graph(Dense(7), layer, *ENDS)
    after = fuse_activation(before)
    sound(before, after)
    assert kinds(after) == ["linear", "pool", "linear"]
    fused = after.operations[0]
    assert fused.output == f"activation_1.{function}"
    assert fused.attributes == {"function": function}
    with_positions = fuse_activation(
        fuse_position(graph(Dense(7), LearnedPositions(), layer, *ENDS))
    )
    assert kinds(with_positions) == ["linear", "pool", "linear"]
    assert with_positions.operations[0].attributes == {"position": True, "function": function}
    for layers in (
        (LearnedPositions(), layer),
        (Dense(6), Residual((layer,))),
        (MultiHeadAttention(1, output_projection=False), layer),
    ):
        kept = graph(*layers, *ENDS)
        assert fuse_activation(kept).operations == kept.operations


def test_one_activation_joins_and_a_second_does_not() -> None:
    before = graph(Dense(7), Activation("relu"), Activation("gelu"), *ENDS)
    after = fuse_activation(before)
    assert kinds(after) == ["linear", "activation", "pool", "linear"]
    assert after.operations[0].attributes["function"] == "relu"
    assert fuse_activation(after).operations == after.operations


# What happens while a sample is read.


@pytest.mark.parametrize(
    ("layers", "scale", "offset", "size", "left"),
    [
        ((), 1, 0, None, []),
        ((Rescaling(2, 1),), 2, 1, None, []),
        ((Rescaling(2, 1), Rescaling(3, -1)), 6, 2, None, []),
        ((Rescaling(2, 1), Rescaling(3, -1), Rescaling(-1, 0.5)), -6, -1.5, None, []),
        ((Patches(2),), 1, 0, (2, 2), []),
        ((Rescaling(2, 1), Patches((2, 3))), 2, 1, (2, 3), []),
        ((Patches(2), Rescaling(2, 1)), 1, 0, (2, 2), ["rescale"]),
        ((Patches(2), Patches((3, 2))), 1, 0, (2, 2), ["unfold"]),
        ((Activation("relu"), Rescaling(2, 1)), 1, 0, None, ["activation", "rescale"]),
        ((Rescaling(2, 1), LearnedPositions(), Rescaling(3)), 2, 1, None, ["position", "rescale"]),
        ((Residual((Rescaling(2, 1),)),), 1, 0, None, ["rescale", "add"]),
        ((Rescaling(3), Residual((Rescaling(2, 1),))), 3, 0, None, ["rescale", "add"]),
    ],
    ids=lambda each: "" if not isinstance(each, tuple) else ", ".join(map(str, each)),
)
def test_reading_takes_in_rescaling_and_patches(
    layers: tuple[Layer, ...],
    scale: float,
    offset: float,
    size: tuple[int, int] | None,
    left: list[str],
) -> None:
    before = graph(*layers, Flatten(), Output(4), shape=(4, 6))
    after = fuse_input(before)
    sound(before, after)
    load, *rest = after.operations
    assert load.kind == "load" and load.inputs == ()
    assert load.attributes == {"input": "input", "scale": scale, "offset": offset, "size": size}
    assert [op.kind for op in rest] == [*left, "reshape", "linear"]


def test_reading_leaves_alone_what_the_plan_gives() -> None:
    network = Network(input=(4,), layers=(Rescaling(2.0, 1.0),))
    after = fuse_input(graph_of(network.plan()))
    assert kinds(after) == ["load"] and after.operations[0].output == after.output


# A wrong rewrite cannot hide. Each of these is a slip that is easily made.


def pool_before_anything(graph: Graph) -> Graph:
    """Moves pooling before an activation, which does not commute with it."""
    for op in graph.operations:
        pool = graph.only_reader(op.output)
        if op.kind == "activation" and pool is not None and pool.kind == "pool":
            pooled = Value("pooled", graph.values[pool.output].shape)
            first = replace(pool, inputs=op.inputs, output="pooled")
            second = replace(op, inputs=("pooled",), output=pool.output)
            values = {**graph.values, "pooled": pooled}
            moved = graph.replacing({op.output: (), pool.output: (first, second)})
            return replace(moved, values=values)
    return graph


def pool_and_forget_the_bias(graph: Graph) -> Graph:
    """Moves pooling, and the bias is left behind."""
    after = pool_before_linear(graph)
    return replace(
        after,
        operations=tuple(
            replace(op, parameters={"weight": op.parameters["weight"]})
            if op.kind == "linear" and op.inputs[0].endswith(".mean")
            else op
            for op in after.operations
        ),
    )


def merge_and_swap(graph: Graph) -> Graph:
    """Merges, and takes queries for values and values for queries."""
    after = merge_linears(graph)
    parts = dict(after.parts)
    for name in after.parts:
        if name.endswith(".query"):
            other = name.removesuffix("query") + "value"
            parts[name], parts[other] = after.parts[other], after.parts[name]
    return replace(after, parts=parts)


def fuse_a_fixed_table(graph: Graph) -> Graph:
    """Fuses positions, and forgets that the table is a learned one."""
    after = fuse_position(graph)
    return replace(
        after,
        operations=tuple(
            replace(op, parameters={k: v for k, v in op.parameters.items() if k != "table"})
            if op.attributes.get("position")
            else op
            for op in after.operations
        ),
    )


def fuse_relu_for_gelu(graph: Graph) -> Graph:
    after = fuse_activation(graph)
    return replace(
        after,
        operations=tuple(
            replace(op, attributes={**op.attributes, "function": "relu"})
            if op.attributes.get("function") == "gelu" and op.kind == "linear"
            else op
            for op in after.operations
        ),
    )


def fuse_input_without(key: str) -> Pass:
    def fuse(graph: Graph) -> Graph:
        after = fuse_input(graph)
        load, *rest = after.operations
        attributes = {**load.attributes, key: {"scale": 1.0, "offset": 0.0}[key]}
        return replace(after, operations=(replace(load, attributes=attributes), *rest))

    fuse.__name__ = f"fuse_input_without_{key}"
    return fuse


def drop_a_normalization(graph: Graph) -> Graph:
    """Reads what went into a normalisation in place of what came out."""
    norm = next(op for op in graph.operations if op.kind == "normalize")
    operations = tuple(
        replace(op, inputs=tuple(norm.inputs[0] if n == norm.output else n for n in op.inputs))
        for op in graph.operations
        if op is not norm
    )
    return replace(graph, operations=operations)


WRONG: dict[str, tuple[Pass, ...]] = {
    "classifier": (
        pool_before_anything,
        merge_and_swap,
        fuse_a_fixed_table,
        fuse_input_without("scale"),
        fuse_input_without("offset"),
    ),
    "blocks": (pool_and_forget_the_bias, fuse_relu_for_gelu, drop_a_normalization),
    "any length": (merge_and_swap, fuse_input_without("offset")),
}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(name, wrong) for name, passes in WRONG.items() for wrong in passes],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_wrong_rewrite_cannot_hide(name: str, wrong: Pass) -> None:
    network = NETWORKS[name]
    if wrong is pool_before_anything:
        layers = (Rescaling(0.5), Dense(9), Activation("relu"), *ENDS)
        network = Network(input=(5, 6), layers=layers)
    passes = (wrong,) if wrong.__name__.startswith("fuse_input") else (wrong, fuse_input)
    plan = network.plan()
    lengths = (3, 1, 17, 6) if name == "any length" else ()
    with using((fuse_input,)):
        Trio(plan).check(batch_for(plan, 4, lengths=lengths)).verify()
    assert rewrite(graph_of(plan), passes) != rewrite(graph_of(plan), (fuse_input,))
    broken = rewrite(graph_of(plan), passes)
    if set(plan.parameters) != {n for op in broken.operations for n in parameters_of(op)}:
        # A parameter that nothing reads has no place: that is noticed before anything is run.
        with using(passes), pytest.raises(KeyError):
            Trio(plan)
        return
    with using(passes), pytest.raises(AssertionError, match="does not agree with the reference"):
        Trio(plan).check(batch_for(plan, 4, lengths=lengths)).verify()
