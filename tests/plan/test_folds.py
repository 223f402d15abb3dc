"""Folds: when two linear layers around a head become one, and that nothing comes out different."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import agrees, batch_for

from undivided.engines.native import NativeEngine
from undivided.layers import (
    Activation,
    Dense,
    GlobalAveragePooling1D,
    Layer,
    MultiHeadAttention,
    Output,
    Residual,
)
from undivided.network import Network
from undivided.plan.schedule import schedule
from undivided.plan.schedule.graph import Graph, graph_of
from undivided.plan.schedule.rewrites import Folded, fold_scores, fold_values
from undivided.training.optimizers import SGD, Adam, AdamW, Optimizer

WIDE, NARROW = 36, 12


def network(*layers: Layer, width: int = WIDE, optimizer: Optimizer | None = None) -> Network:
    ends = (GlobalAveragePooling1D(), Output(4))
    return Network(
        input=(9, width), layers=(*layers, *ends), optimizer=optimizer or SGD(momentum=0.5)
    )


def attention(**arguments: object) -> MultiHeadAttention:
    return MultiHeadAttention(1, output_projection=False, **arguments)


def folds(graph: Graph) -> list[Folded]:
    return [op.attributes["fold"] for op in graph.operations if "fold" in op.attributes]


# Something follows the second linear layer each time, or the mean would move in between.
BOTH = {
    "biases everywhere": (attention(), Dense(20, activation="relu")),
    "no biases": (attention(bias=False), Dense(20, bias=False, activation="relu")),
    "a bias after values without": (attention(bias=False), Dense(20, activation="gelu")),
    "the output projection": (MultiHeadAttention(1), Activation("relu")),
    "behind a relu": (Dense(WIDE, activation="relu"), attention(), Dense(20, activation="relu")),
    "heads wider than the tokens": (attention(key_dim=50), Dense(20, activation="relu")),
    "inside a residual": (Dense(WIDE), Residual((MultiHeadAttention(1),))),
    "twice": (Dense(WIDE), MultiHeadAttention(1), MultiHeadAttention(1), Activation("relu")),
}


@pytest.mark.parametrize("name", BOTH)
def test_what_is_folded_agrees_with_the_reference(name: str) -> None:
    described = network(*BOTH[name])
    plan = described.plan()
    heads = sum(op.kind == "attention" for op in plan.operations)
    found = folds(schedule(plan).graph)
    assert sorted(fold.turned for fold in found) == [False] * heads + [True] * heads
    agrees(described, batch_for(plan, 11, seed=1)).verify()


@pytest.mark.parametrize("optimizer", [SGD(), SGD(momentum=0.9), Adam(), AdamW(weight_decay=0.1)])
def test_training_goes_the_same_way_as_unfolded_gradients(optimizer: Optimizer) -> None:
    """Steps in the engine, and the same steps by hand along `loss_and_gradients`."""
    described = network(*BOTH["biases everywhere"], optimizer=optimizer)
    plan = described.plan()
    engine, by_hand = NativeEngine(plan, 2), NativeEngine(plan, 1)
    random = np.random.default_rng(0)
    for name, values in engine.parameters.items():
        values[...] = by_hand.parameters[name][...] = random.normal(0, 0.2, values.shape)
    x = random.normal(size=(64, 9, WIDE)).astype(np.float32)
    y = random.integers(0, 4, 64)
    engine.train(x, y, np.arange(64, dtype=np.uint32), 8, 0, np.full(8, 0.01))
    for step in range(8):
        batch = slice(8 * step, 8 * step + 8)
        _, gradients = by_hand.loss_and_gradients(x[batch], y[batch])
        for name, gradient in gradients.items():
            slots = {slot: arrays[name] for slot, arrays in by_hand.slots.items()}
            decays = plan.parameters[name].decays
            optimizer.update(by_hand.parameters[name], gradient, slots, step + 1, 0.01, decays)
    for name, values in engine.parameters.items():
        np.testing.assert_allclose(values, by_hand.parameters[name], rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "layers",
    [
        (MultiHeadAttention(2), Dense(20)),
        (attention(key_dim=10), Dense(20)),
    ],
    ids=["several heads", "heads narrower than the tokens"],
)
def test_what_would_not_be_less_work_is_left(layers: tuple[Layer, ...]) -> None:
    assert not folds(schedule(network(*layers).plan()).graph)


def test_values_are_folded_into_a_linear_layer_only() -> None:
    for between in (Activation("relu"), Residual((Dense(WIDE),))):
        graph = graph_of(network(attention(), between).plan())
        assert len(folds(fold_scores(graph))) == 1
        assert not folds(fold_values(graph))


def test_a_bias_of_the_values_needs_one_behind() -> None:
    graph = graph_of(network(attention(), Dense(20, bias=False)).plan())
    assert not folds(fold_values(graph))


def test_narrow_values_stay_as_described() -> None:
    graph = graph_of(network(attention(), Dense(20), width=NARROW).plan())
    assert len(folds(fold_scores(graph))) == 1
    assert not folds(fold_values(graph))


def test_folds_give_the_samples_gradients_too() -> None:
    """Keys and values are the samples themselves here, and nothing above them learns."""
    described = network(*BOTH["biases everywhere"])
    agrees(described, batch_for(described.plan(), 3, seed=2)).verify()


def test_the_key_bias_has_no_gradient_and_stays() -> None:
    """It adds the same to all scores of a query: a softmax does not see it."""
    plan = network(*BOTH["biases everywhere"]).plan()
    engine = NativeEngine(plan, 1)
    for values in engine.parameters.values():
        values[...] = 0.1
    bias = engine.parameters["attention_1.key.bias"]
    x, y = np.ones((8, 9, WIDE), np.float32), np.zeros(8, np.int32)
    engine.train(x, y, np.arange(8, dtype=np.uint32), 8, 0, np.full(1, 0.1))
    assert (bias == np.float32(0.1)).all()
    _, gradients = engine.loss_and_gradients(x, y)
    assert not gradients["attention_1.key.bias"].any()
