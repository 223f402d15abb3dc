"""From layers to a plan: shapes, names, parameters, and what is refused with which words."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from undivided.errors import ArgumentError, ShapeError
from undivided.layers import (
    Activation,
    Conv1D,
    Conv2D,
    Dense,
    Flatten,
    GlobalAveragePooling1D,
    Layer,
    LayerNormalization,
    LearnedPositions,
    MaxPooling2D,
    MultiHeadAttention,
    Output,
    Patches,
    Rescaling,
    Residual,
    SinusoidalPositions,
)
from undivided.network import Network
from undivided.plan.builder import Builder
from undivided.plan.plan import Initial, Plan, Ragged, Value, show_shape
from undivided.recipes import recipe

Shape = tuple[int | None, ...]


def plan_of(shape: Shape, *layers: Layer) -> Plan:
    return Network(input=shape, layers=layers).plan()


def value_after(shape: Shape, *layers: Layer) -> str:
    """The shape after these layers, whatever it takes to come to an end."""
    ends: list[tuple[Layer, ...]] = [(), (Flatten(),), (GlobalAveragePooling1D(),)]
    for end in ends:
        try:
            plan = plan_of(shape, *layers, *end)
        except ShapeError:
            continue
        operations = plan.operations[: len(plan.operations) - len(end)]
        return show_shape(plan.values[operations[-1].output].shape)
    raise AssertionError("no end fits")


def refused(shape: Shape, *layers: Layer) -> str:
    with pytest.raises(ShapeError) as caught:
        plan_of(shape, *layers)
    return str(caught.value)


# Shapes.


@pytest.mark.parametrize(
    ("shape", "layers", "expected"),
    [
        ((7,), (Rescaling(2.0),), "(7,)"),
        ((4, 6), (Rescaling(2.0),), "(4, 6)"),
        ((4, 6, 3), (Rescaling(2.0),), "(4, 6, 3)"),
        ((None, 6), (Rescaling(2.0),), "(None, 6)"),
        ((28, 28), (Patches(4),), "(49, 16)"),
        ((28, 28), (Patches((7, 14)),), "(8, 98)"),
        ((4, 6, 3), (Patches(2),), "(6, 12)"),
        ((4, 6, 3), (Patches((4, 6)),), "(1, 72)"),
        ((7,), (Dense(5),), "(5,)"),
        ((4, 6), (Dense(5, activation="gelu"),), "(4, 5)"),
        ((4, 6, 3), (Dense(5),), "(4, 6, 5)"),
        ((None, 6), (Dense(5, bias=False),), "(None, 5)"),
        ((7,), (Output(3),), "(3,)"),
        ((4, 6), (LearnedPositions(),), "(4, 6)"),
        ((None, 6), (SinusoidalPositions(),), "(None, 6)"),
        ((4, 6), (MultiHeadAttention(2),), "(4, 6)"),
        ((4, 6), (MultiHeadAttention(2, key_dim=5),), "(4, 6)"),
        ((4, 6), (MultiHeadAttention(2, output_projection=False),), "(4, 6)"),
        ((4, 6), (MultiHeadAttention(2, key_dim=5, output_projection=False),), "(4, 10)"),
        ((None, 6), (MultiHeadAttention(6),), "(None, 6)"),
        ((7,), (LayerNormalization(),), "(7,)"),
        ((4, 6, 3), (LayerNormalization(),), "(4, 6, 3)"),
        ((4, 6), (Activation("relu"),), "(4, 6)"),
        ((4, 6), (GlobalAveragePooling1D(),), "(6,)"),
        ((None, 6), (GlobalAveragePooling1D(),), "(6,)"),
        ((4, 6), (Flatten(),), "(24,)"),
        ((4, 6, 3), (Flatten(),), "(72,)"),
        ((7,), (Flatten(),), "(7,)"),
        ((4, 6), (Residual((Dense(9), Dense(6))),), "(4, 6)"),
        ((4, 6), (Residual(()),), "(4, 6)"),
        ((4, 6, 3), (Residual((Dense(3),)),), "(4, 6, 3)"),
        ((4, 6), (Dense(5) * 3,), "(4, 5)"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_shapes(shape: Shape, layers: tuple[Layer, ...], expected: str) -> None:
    assert value_after(shape, *layers) == expected


def test_ragged_axes_are_the_same_one() -> None:
    """All values of a sequence share its axis, so that they may be added."""
    plan = plan_of(
        (None, 6), Dense(6), Residual((MultiHeadAttention(2),)), GlobalAveragePooling1D(), Output(2)
    )
    extents = {v.shape[0] for v in plan.values.values() if len(v.shape) == 2}
    assert extents == {Ragged("input")}


# Names and parameters.


@pytest.mark.parametrize(
    ("name", "parameters"), [("mnist-attention", 3114), ("mnist-attention-64", 33930)]
)
def test_parameters_of_the_classifiers(name: str, parameters: int) -> None:
    assert recipe(name).plan().parameter_count == parameters


def test_the_classifier() -> None:
    plan = recipe("mnist-attention").plan()
    assert {name: p.shape for name, p in plan.parameters.items()} == {
        "dense_1.weight": (16, 16),
        "dense_1.bias": (16,),
        "positions_1.table": (49, 16),
        "attention_1.query.weight": (16, 16),
        "attention_1.query.bias": (16,),
        "attention_1.key.weight": (16, 16),
        "attention_1.key.bias": (16,),
        "attention_1.value.weight": (16, 16),
        "attention_1.value.bias": (16,),
        "dense_2.weight": (16, 32),
        "dense_2.bias": (32,),
        "dense_3.weight": (32, 16),
        "dense_3.bias": (16,),
        "output_1.weight": (16, 10),
        "output_1.bias": (10,),
    }
    assert list(plan.parameters)[:4] == [
        "dense_1.weight",
        "dense_1.bias",
        "positions_1.table",
        "attention_1.query.weight",
    ]
    assert [(op.kind, op.layer) for op in plan.operations] == [
        ("rescale", "rescaling_1"),
        ("unfold", "patches_1"),
        ("linear", "dense_1"),
        ("position", "positions_1"),
        ("activation", "activation_1"),
        ("linear", "attention_1"),
        ("linear", "attention_1"),
        ("linear", "attention_1"),
        ("attention", "attention_1"),
        ("linear", "dense_2"),
        ("activation", "dense_2"),
        ("linear", "dense_3"),
        ("pool", "pooling_1"),
        ("linear", "output_1"),
    ]
    assert (plan.input.name, plan.output.name) == ("input", "output_1")
    assert str(plan.loss) == "sparse_categorical_crossentropy"
    attention = plan.operations[8]
    assert attention.attributes == {"heads": 1, "scale": 0.25}
    assert attention.inputs == ("attention_1.query", "attention_1.key", "attention_1.value")


def test_every_operation_reads_what_is_there() -> None:
    for name in ("mnist-attention", "mnist-attention-64", "digits-attention"):
        plan = recipe(name).plan()
        known = {plan.input.name}
        for op in plan.operations:
            assert known.issuperset(op.inputs)
            assert op.output not in known
            known.add(op.output)
        assert known == set(plan.values)
        used = [n for op in plan.operations for n in op.parameters.values()]
        assert sorted(used) == sorted(plan.parameters)
        assert {p.layer for p in plan.parameters.values()} <= {name for name, _ in plan.layers}


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (MultiHeadAttention(2), ["query", "key", "value", "output"]),
        (MultiHeadAttention(2, output_projection=False), ["query", "key", "value"]),
    ],
    ids=["with output projection", "without"],
)
def test_parameters_of_attention(layer: MultiHeadAttention, expected: list[str]) -> None:
    roles = [
        name.removeprefix("attention_1.") for name in plan_of((4, 6), layer, Flatten()).parameters
    ]
    assert roles == [f"{each}.{kind}" for each in expected for kind in ("weight", "bias")]


def test_what_has_no_bias_has_no_bias() -> None:
    layers = (
        Dense(5, bias=False),
        MultiHeadAttention(1, bias=False),
        Flatten(),
        Output(2, bias=False),
    )
    assert not any(name.endswith("bias") for name in plan_of((4, 6), *layers).parameters)


def test_what_decays() -> None:
    """Weights of linear layers, and nothing else."""
    layers = Dense(6), LearnedPositions(), LayerNormalization(), MultiHeadAttention(2), Flatten()
    for name, parameter in plan_of((4, 6), *layers, Output(2)).parameters.items():
        assert parameter.decays == name.endswith(".weight"), name


@pytest.mark.parametrize(
    ("start", "initial"),
    [
        ("uniform", Initial("uniform", 0.25)),
        ("zero", Initial("constant", 0.0)),
        ("xavier", Initial("xavier")),
        ("sinusoidal", Initial("sinusoidal")),
    ],
)
def test_how_positions_start(start: str, initial: Initial) -> None:
    layer = LearnedPositions(start=start, range=0.25)  # type: ignore[arg-type]
    table = plan_of((4, 6), layer, Flatten()).parameters["positions_1.table"]
    assert table.initial == initial and table.shape == (4, 6)


def test_how_parameters_start() -> None:
    plan = plan_of((4, 6), Dense(6), LayerNormalization(), Flatten(), Output(2))
    rules = {name.split(".")[1]: p.initial for name, p in plan.parameters.items()}
    assert rules == {
        "weight": Initial("xavier"),
        "bias": Initial("constant", 0.0),
        "gain": Initial("constant", 1.0),
        "shift": Initial("constant", 0.0),
    }


def test_fixed_positions_have_no_parameters() -> None:
    assert plan_of((4, 6), SinusoidalPositions(), Flatten()).parameters == {}


def names(*layers: Layer, shape: Shape = (4, 6)) -> list[str]:
    return [name for name, _ in plan_of(shape, *layers, Flatten()).layers][:-1]


def test_layers_count_by_kind() -> None:
    layers = (
        Dense(6),
        Residual((LayerNormalization(), Dense(6))),
        Residual((Residual((Dense(6),)),)),
        Dense(6),
    )
    assert names(*layers) == [
        "dense_1",
        "residual_1",
        "normalization_1",
        "dense_2",
        "residual_2",
        "residual_3",
        "dense_3",
        "dense_4",
    ]


def test_layers_written_with_a_name() -> None:
    assert names(Dense(6, name="first"), Dense(6), Residual((Dense(6, name="in"),), name="r")) == [
        "first",
        "dense_1",
        "r",
        "in",
    ]
    assert list(plan_of((6,), Dense(6, name="first")).parameters) == ["first.weight", "first.bias"]


def test_repeated_layers_have_names_and_parameters_of_their_own() -> None:
    plan = plan_of((4, 6), Dense(6) * 3, Dense(6, name="deep") * 3, Flatten())
    layers = ["dense_1", "dense_2", "dense_3", "deep", "deep_2", "deep_3"]
    assert [
        name for name, _ in plan.layers if not name.startswith(("repeat", "layer", "flatten"))
    ] == (layers)
    assert list(plan.parameters) == [f"{n}.{kind}" for n in layers for kind in ("weight", "bias")]


def test_a_number_that_somebody_took_is_left_out() -> None:
    assert names(Dense(6, name="dense_1"), Dense(6), Dense(6, name="dense_3"), Dense(6)) == [
        "dense_1",
        "dense_2",
        "dense_3",
        "dense_4",
    ]


@pytest.mark.parametrize(
    "layers",
    [
        (Dense(6, name="same"), Dense(6, name="same")),
        (Dense(6, name="same"), LayerNormalization(name="same")),
        (Dense(6, name="same"), Residual((Dense(6, name="same"),))),
        (Residual((Dense(6),), name="same"), Dense(6, name="same")),
    ],
    ids=["twice", "of two kinds", "inside a block", "as a block"],
)
def test_one_name_for_two_layers(layers: tuple[Layer, ...]) -> None:
    with pytest.raises(ArgumentError) as caught:
        plan_of((4, 6), *layers, Flatten())
    assert str(caught.value) == "Two layers are named 'same'. Give each a name of its own."
    assert caught.value.argument == "name"


def test_the_name_that_another_layer_was_given() -> None:
    with pytest.raises(ArgumentError, match="Two layers are named 'dense_1'"):
        plan_of((6,), Dense(6), Dense(6, name="dense_1"))


def test_parameters_of_two_layers_never_get_one_name() -> None:
    """`attention_1.query` is what attention calls a part of itself."""
    layers = MultiHeadAttention(2), Dense(6, name="attention_1.query"), Flatten()
    try:
        plan = plan_of((4, 6), *layers)
    except ArgumentError as error:
        assert "attention_1.query" in str(error)
        return
    used = [name for op in plan.operations for name in op.parameters.values()]
    assert len(used) == len(set(used)), "two layers share a parameter that nobody tied"


# What is refused.


def test_heads_that_do_not_divide() -> None:
    assert refused((4, 6), MultiHeadAttention(4), Flatten()) == (
        "MultiHeadAttention (attention_1) expects a width that 4 heads divide evenly. "
        "It is given (4, 6), from 'input'. Change num_heads, or say key_dim."
    )
    plan_of((4, 6), MultiHeadAttention(4, key_dim=2), Flatten())


@pytest.mark.parametrize(
    ("shape", "size", "told"),
    [
        ((28, 28), 5, "5×5"),
        ((28, 30), 4, "4×4"),
        ((4, 6, 3), (2, 4), "2×4"),
        ((4, 6), (5, 2), "5×2"),
    ],
)
def test_patches_that_do_not_divide(shape: Shape, size: int | tuple[int, int], told: str) -> None:
    assert refused(shape, Patches(size), Flatten()) == (
        f"Patches (patches_1) expects a picture that {told} patches divide evenly. "
        f"It is given {show_shape(shape)}, from 'input'. Choose another size."
    )


@pytest.mark.parametrize("shape", [(7,), (2, 4, 6, 3), (None, 6)], ids=str)
def test_patches_of_no_picture(shape: Shape) -> None:
    assert refused(shape, Patches(2), Flatten()) == (
        "Patches (patches_1) expects a picture, shape (height, width) or "
        f"(height, width, channels). It is given {show_shape(shape)}, from 'input'."
    )


@pytest.mark.parametrize(
    ("layer", "who"),
    [
        (MultiHeadAttention(1), "MultiHeadAttention (attention_1)"),
        (LearnedPositions(), "LearnedPositions (positions_1)"),
        (SinusoidalPositions(), "SinusoidalPositions (positions_1)"),
        (GlobalAveragePooling1D(), "GlobalAveragePooling1D (pooling_1)"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_sequence_is_expected(layer: Layer, who: str) -> None:
    wants = f"{who} expects a sequence, shape (tokens, features). It is given"
    assert refused((7,), layer, Output(2)) == f"{wants} (7,), from 'input'."
    assert refused((7,), Dense(6), layer, Output(2)) == f"{wants} (6,), from 'dense_1'."
    assert refused((4, 6, 3), layer, Output(2)) == (
        f"{wants} (4, 6, 3), from 'input'. Patches(size) cuts an image into a sequence."
    )


@pytest.mark.parametrize(
    ("loss", "last", "taken_over"),
    [
        ("sparse_categorical_crossentropy", "softmax", True),
        ("categorical_crossentropy", "softmax", True),
        ("binary_crossentropy", "sigmoid", True),
        ("binary_crossentropy", "softmax", False),
        ("mse", "softmax", False),
        ("mse", "sigmoid", False),
    ],
)
def test_the_loss_takes_over_the_last_activation(loss: str, last: str, taken_over: bool) -> None:
    """Where it turns logits into what the loss is of, the loss is computed from the logits."""

    @dataclass(frozen=True)
    class Last(Layer):
        def lower(self, builder: Builder, x: Value) -> Value:
            return builder.activation(x, last)

    try:
        plan = Network(input=(4,), layers=(Dense(3), Last()), loss=loss).plan()  # type: ignore[arg-type]
    finally:
        del Layer.members["Last"]
    assert ("activation" not in [op.kind for op in plan.operations]) is taken_over
    assert plan.output.name in plan.values
    assert (plan.output.name == "dense_1") is taken_over


@pytest.mark.parametrize(
    ("layers", "shapes"),
    [
        ((Residual((Dense(5),)),), ("(4, 6)", "(4, 5)")),
        ((Residual((GlobalAveragePooling1D(),)),), ("(4, 6)", "(6,)")),
        ((Residual((Flatten(),)),), ("(4, 6)", "(24,)")),
        (
            (Residual((MultiHeadAttention(1, key_dim=5, output_projection=False),)),),
            ("(4, 6)", "(4, 5)"),
        ),
    ],
    ids=["width", "rank", "flattened", "heads"],
)
def test_a_block_that_changes_the_shape(layers: tuple[Layer, ...], shapes: tuple[str, str]) -> None:
    before, after = shapes
    assert refused((4, 6), *layers, Flatten()) == (
        f"Residual (residual_1) adds what goes in, {before}, to what its layers give, {after}: "
        "the shapes must be the same."
    )


def test_the_inner_block_is_the_one_that_is_named() -> None:
    inner = Residual((Dense(5),), name="inner")
    text = refused((4, 6), Residual((inner,)), Flatten())
    assert text.startswith("Residual (inner) adds what goes in, (4, 6)")


def test_learned_positions_want_a_length() -> None:
    assert refused((None, 6), LearnedPositions(), GlobalAveragePooling1D()) == (
        "LearnedPositions (positions_1) expects a sequence of fixed length (it learns one row for "
        "each position). It is given (None, 6), from 'input'. "
        "Use SinusoidalPositions() for sequences of any length."
    )


def test_flatten_wants_a_fixed_shape() -> None:
    assert refused((None, 6), Flatten(), Output(2)) == (
        "Flatten (flatten_1) expects a fixed shape. It is given (None, 6), from 'input'. "
        "Pool a sequence of any length instead."
    )


def test_a_batch_is_no_axis_of_a_sample() -> None:
    expected = "If None stands for the batch, leave it out: 'input' is that of one sample."
    assert refused((None, 8, 8, 1), Flatten(), Output(2)).endswith(expected)
    assert refused((None, 8, 8, 1), Conv2D(4, 3)).endswith(expected)


@pytest.mark.parametrize(
    ("shape", "layer", "told"),
    [
        ((100, 10**30), Conv1D(4, 3), "a picture of fewer than 2,147,483,648 numbers"),
        ((40_000, 40_000, 1), Conv2D(4, 3), "windows with at most 268,435,456 places together"),
        ((40_000, 40_000, 1), MaxPooling2D(3, 1), "at most 268,435,456 places together"),
        ((100, 100, 1), Conv2D(4, 10**9, padding="same"), "at most 268,435,456 places together"),
        ((16, 10**30), SinusoidalPositions(), "fewer than 2,147,483,648 numbers, to add pos"),
    ],
)
def test_tables_that_no_machine_would_hold(shape: Shape, layer: Layer, told: str) -> None:
    assert told in refused(shape, layer)


@pytest.mark.parametrize("loss", ["binary_crossentropy", "mse"])
def test_an_output_that_says_yes_or_no(loss: str) -> None:
    """Left to the loss that is of it, and applied before any other."""
    plans = [
        Network(input=(4,), layers=(layer,), loss=loss).plan()  # type: ignore[arg-type]
        for layer in (Output(1, activation="sigmoid"), Dense(1, activation="sigmoid"))
    ]
    kinds = [[op.kind for op in plan.operations] for plan in plans]
    expected = ["linear"] if loss == "binary_crossentropy" else ["linear", "activation"]
    assert kinds == [expected, expected]


def test_linear_is_no_activation() -> None:
    for layer in (Dense(3, activation="linear"), Conv1D(3, 1, activation="linear")):
        plan = Network(input=(4, 2), layers=(layer,)).plan()
        assert "activation" not in [op.kind for op in plan.operations]


def test_a_layer_with_a_name_of_its_own_is_refused_by_it() -> None:
    text = refused((4, 6), MultiHeadAttention(4, name="mixer"), Flatten())
    assert text.startswith("MultiHeadAttention (mixer) expects a width")
