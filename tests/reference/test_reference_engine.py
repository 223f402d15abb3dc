"""The reference engine beyond its gradients: the protocol, ragged samples, training, errors."""

import gzip
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from small_networks import NETWORKS, engine_for, samples

from undivided.engines.reference import ReferenceEngine
from undivided.engines.reference.samples import LARGEST_GROUP
from undivided.errors import ArgumentError, DataError, ShapeError
from undivided.layers import (
    Activation,
    Dense,
    GlobalAveragePooling1D,
    LearnedPositions,
    MultiHeadAttention,
    Output,
    Patches,
    Rescaling,
)
from undivided.network import Network
from undivided.plan.builder import Builder
from undivided.plan.plan import Input, Plan, Ragged
from undivided.training.generators import XorShift64
from undivided.training.initial import initialize
from undivided.training.optimizers import SGD, Adam, AdamW

CLASSIFIER = NETWORKS["as the MNIST classifier"]
RAGGED = NETWORKS["a sequence of any length"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parameters_are_live_and_start_at_0(dtype):
    engine = ReferenceEngine(CLASSIFIER.plan(), dtype)
    assert list(engine.parameters) == list(engine.plan.parameters)
    for name, array in engine.parameters.items():
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        assert array.shape == engine.plan.parameters[name].shape
        assert not array.any()
    x = samples(CLASSIFIER, 2)
    assert not engine.predict(x).any()
    engine.parameters["output_1.bias"][...] = [1, 2, 3]
    np.testing.assert_array_equal(engine.predict(x), [[1, 2, 3], [1, 2, 3]])


@pytest.mark.parametrize(
    ("optimizer", "slots"),
    [(SGD(), []), (SGD(momentum=0.9), ["velocity"]), (AdamW(), ["mean", "square"])],
)
def test_slots_are_those_that_the_optimizer_keeps(optimizer, slots):
    network = Network(input=(2,), layers=(Output(2),), optimizer=optimizer)
    engine = ReferenceEngine(network.plan())
    assert list(engine.slots) == slots
    for arrays in engine.slots.values():
        assert list(arrays) == list(engine.parameters)


def test_bytes_and_floats_give_the_same():
    engine = engine_for(CLASSIFIER, np.float32)
    x = np.arange(2 * 24, dtype=np.uint8).reshape(2, 6, 4)
    np.testing.assert_array_equal(engine.predict(x), engine.predict(x.astype(np.float32)))
    assert engine.predict(x).dtype == np.float32


def test_many_samples_run_in_groups():
    engine = engine_for(CLASSIFIER)
    count = 2 * LARGEST_GROUP + 7
    x, y = samples(CLASSIFIER, count), np.arange(count) % 3
    halves = (slice(0, 300), slice(300, count))
    parts = [engine.predict(x[half]) for half in halves]
    np.testing.assert_allclose(engine.predict(x), np.concatenate(parts), atol=1e-13)

    loss, gradients = engine.loss_and_gradients(x, y)
    parts = [engine.loss_and_gradients(x[half], y[half]) for half in halves]
    shares = [300 / count, 1 - 300 / count]
    assert loss == pytest.approx(sum(s * p[0] for s, p in zip(shares, parts, strict=True)))
    for name, gradient in gradients.items():
        expected = sum(s * p[1][name] for s, p in zip(shares, parts, strict=True))
        np.testing.assert_allclose(gradient, expected, atol=1e-13)


def test_no_samples_give_no_results():
    engine = engine_for(CLASSIFIER)
    assert engine.predict(np.zeros((0, 6, 4))).shape == (0, 3)
    assert engine.attention_weights(np.zeros((0, 6, 4)))["attention_1"].shape == (0, 1, 6, 6)
    dx, gradients = engine.pull_back(np.zeros((0, 6, 4)), np.zeros((0, 3)))
    assert dx.shape == (0, 6, 4)
    assert not any(gradient.any() for gradient in gradients.values())


def test_attention_weights_are_named_by_layer_and_sum_to_1():
    network = NETWORKS["a stack of the same block"]
    weights = engine_for(network).attention_weights(samples(network, 3))
    assert list(weights) == ["attention_1", "attention_2"]
    for p in weights.values():
        assert p.shape == (3, 4, 2, 2)
        np.testing.assert_allclose(p.sum(axis=-1), 1, rtol=1e-14)


def test_with_query_and_key_0_attention_is_even():
    engine = engine_for(CLASSIFIER)
    for name, parameter in engine.parameters.items():
        if "query" in name:
            parameter[...] = 0
    weights = engine.attention_weights(samples(CLASSIFIER, 2))["attention_1"]
    np.testing.assert_array_equal(weights, np.full((2, 1, 6, 6), 1 / 6))


# Ragged samples.


def ragged_samples(lengths):
    return [samples(RAGGED, 1, length, seed=n)[0] for n, length in enumerate(lengths)]


LENGTHS = [3, 1, 3, 0, 5, 1]


@pytest.mark.parametrize("as_objects", [False, True])
def test_ragged_samples_are_each_what_they_are_alone(as_objects):
    engine = engine_for(RAGGED)
    x = ragged_samples(LENGTHS)
    if as_objects:
        array = np.empty(len(x), object)
        array[:] = x
        x = array
    y = np.array([0, 1, 2, 0, 1, 2])
    dy = np.random.default_rng(7).normal(size=(6, 3))
    outputs, weights = engine.predict(x), engine.attention_weights(x)["attention_1"]
    dx, pulled = engine.pull_back(x, dy)
    loss, gradients = engine.loss_and_gradients(x, y)
    assert isinstance(weights, list)
    assert isinstance(dx, list)

    total_loss = 0.0
    total = {name: np.zeros_like(array) for name, array in engine.parameters.items()}
    total_pulled = {name: np.zeros_like(array) for name, array in engine.parameters.items()}
    for n, length in enumerate(LENGTHS):
        alone = x[n][None]
        np.testing.assert_allclose(outputs[n], engine.predict(alone)[0], atol=1e-14)
        assert weights[n].shape == (2, length, length)
        expected = engine.attention_weights(alone)["attention_1"][0]
        np.testing.assert_allclose(weights[n], expected, atol=1e-14)
        dx_alone, pulled_alone = engine.pull_back(alone, dy[n : n + 1])
        assert dx[n].shape == (length, 3)
        np.testing.assert_allclose(dx[n], dx_alone[0], atol=1e-13)
        loss_alone, gradients_alone = engine.loss_and_gradients(alone, y[n : n + 1])
        total_loss += loss_alone / len(x)
        for name in total:
            total[name] += gradients_alone[name] / len(x)
            total_pulled[name] += pulled_alone[name]
    assert loss == pytest.approx(total_loss, rel=1e-13)
    for name in total:
        np.testing.assert_allclose(gradients[name], total[name], atol=1e-13)
        np.testing.assert_allclose(pulled[name], total_pulled[name], atol=1e-13)


def test_an_empty_sequence_gives_what_the_rest_makes_of_0():
    engine = engine_for(RAGGED)
    np.testing.assert_array_equal(
        engine.predict(ragged_samples([0]))[0], engine.parameters["output_1.bias"]
    )


def test_ragged_samples_train():
    engine = engine_for(RAGGED)
    x, y = ragged_samples(LENGTHS), np.array([0, 1, 2, 0, 1, 2])
    order = np.array([5, 0, 3, 1, 2, 4] * 20, np.uint32)
    result = engine.train(x, y, order, 4, 0, np.full(30, 0.05))
    assert not result.failed
    assert result.losses[-3:].sum() < result.losses[:3].sum()


def test_a_ragged_output_is_a_list():
    builder = Builder(Input("input", (Ragged("input"), 2)))
    y = builder.lower(Dense(3), builder.values["input"])
    plan = Plan(
        name="tokens",
        inputs=tuple(builder.inputs),
        output=y,
        values=builder.values,
        operations=tuple(builder.operations),
        parameters=builder.parameters,
        layers=tuple(builder.layers),
        loss="",
        optimizer=SGD(),
    )
    engine = ReferenceEngine(plan, np.float64)
    engine.parameters["dense_1.weight"][...] = [[1, 2, 3], [4, 5, 6]]
    x = [np.ones((2, 2)), np.zeros((0, 2)), np.ones((1, 2))]
    outputs = engine.predict(x)
    assert [output.shape for output in outputs] == [(2, 3), (0, 3), (1, 3)]
    np.testing.assert_array_equal(outputs[2], [[5, 7, 9]])
    dx, gradients = engine.pull_back(x, [np.ones_like(output) for output in outputs])
    np.testing.assert_array_equal(dx[0], [[6, 15], [6, 15]])
    np.testing.assert_array_equal(gradients["dense_1.weight"], np.full((2, 3), 3))
    np.testing.assert_array_equal(gradients["dense_1.bias"], [3, 3, 3])


# Training.


def synthetic(network, count=60):
    """Samples whose class can be read off one number."""
    x = samples(network, count, seed=8)
    y = np.digitize(x.reshape(count, -1)[:, 0], [-0.5, 0.5])
    return x, y


@pytest.mark.parametrize(
    "optimizer",
    [SGD(0.1), SGD(0.05, momentum=0.9), Adam(0.02), AdamW(0.02, epsilon_inside_root=True)],
    ids=str,
)
def test_training_makes_the_loss_small(optimizer):
    network = Network(input=(4,), layers=(Dense(8, activation="gelu"), Output(3)))
    network = Network(network.input, network.layers, optimizer=optimizer)
    engine = ReferenceEngine(network.plan())
    for name, values in initialize(engine.plan, XorShift64(1)).items():
        engine.parameters[name][...] = values
    x, y = synthetic(network)
    order = np.tile(np.arange(60, dtype=np.uint32), 20)
    result = engine.train(x, y, order, 20, 0, np.full(60, optimizer.learning_rate))
    assert not result.failed
    assert result.losses.shape == (60,)
    assert result.losses[-3:].mean() < 0.6 * result.losses[:3].mean()


def train(engine, x, y, order, rates, cuts=()):
    """Training in one call, or in several that continue each other."""
    losses, size = [], 16
    edges = [0, *cuts, len(rates)]
    for start, stop in itertools.pairwise(edges):
        result = engine.train(
            x, y, order[start * size : stop * size], size, start, rates[start:stop]
        )
        losses.extend(result.losses)
    return losses


@pytest.mark.parametrize("optimizer", [SGD(momentum=0.5), AdamW()], ids=str)
def test_training_goes_on_where_it_stopped(optimizer):
    network = Network(CLASSIFIER.input, CLASSIFIER.layers, optimizer=optimizer)
    x, y = synthetic(network)
    order = np.random.default_rng(9).permutation(60).astype(np.uint32)
    rates = np.array([0.01, 0.02, 0.005, 0.01])
    whole, parts = (engine_for(network, np.float32) for _ in range(2))
    assert train(whole, x, y, order, rates) == train(parts, x, y, order, rates, cuts=(1, 3))
    for name in whole.parameters:
        np.testing.assert_array_equal(whole.parameters[name], parts.parameters[name])


def test_a_step_is_the_gradient_of_the_mean_loss_times_the_rate():
    network = Network(CLASSIFIER.input, CLASSIFIER.layers, optimizer=SGD())
    engine, by_hand = engine_for(network), engine_for(network)
    x, y = synthetic(network)
    order = np.arange(60, dtype=np.uint32)[::-1].copy()
    rates = [0.1, 0.2]
    losses = []
    for step, rows in enumerate([order[:40], order[40:]]):  # the last batch is short
        loss, gradients = by_hand.loss_and_gradients(x[rows], y[rows])
        losses.append(loss * len(rows))
        for name, gradient in gradients.items():
            by_hand.parameters[name] -= rates[step] * gradient
    result = engine.train(x, y, order, 40, 0, np.array(rates))
    np.testing.assert_array_equal(result.losses, losses)
    for name, expected in by_hand.parameters.items():
        np.testing.assert_array_equal(engine.parameters[name], expected)


def test_weight_decay_spares_what_does_not_decay():
    network = Network(
        CLASSIFIER.input, CLASSIFIER.layers, optimizer=AdamW(weight_decay=0.5, epsilon=1e30)
    )
    engine = engine_for(network)
    before = {name: array.copy() for name, array in engine.parameters.items()}
    x, y = synthetic(network)
    engine.train(x, y, np.arange(60, dtype=np.uint32), 60, 0, np.array([0.1]))
    for name, array in engine.parameters.items():
        expected = 0.95 if name.endswith("weight") else 1.0
        np.testing.assert_allclose(array, expected * before[name], rtol=1e-12)


def test_a_step_without_a_finite_loss_is_not_taken():
    engine = engine_for(CLASSIFIER, np.float32)
    x, y = synthetic(CLASSIFIER)
    x[20] = np.nan
    order = np.arange(60, dtype=np.uint32)
    result = engine.train(x, y, order, 10, 0, np.full(6, 0.01))
    assert result.failed
    assert len(result.losses) == 2
    expected = engine_for(CLASSIFIER, np.float32)
    expected.train(x, y, order, 10, 0, np.full(2, 0.01))
    for name in engine.parameters:
        np.testing.assert_array_equal(engine.parameters[name], expected.parameters[name])


# What is not finite is named.


def test_diagnose_finds_nothing_where_nothing_is_wrong():
    x, y = synthetic(CLASSIFIER)
    assert engine_for(CLASSIFIER).diagnose(x, y) is None


def test_diagnose_names_a_parameter_before_anything_else():
    engine = engine_for(CLASSIFIER)
    x, y = synthetic(CLASSIFIER)
    x[0] = np.nan
    engine.parameters["attention_1.key.weight"][1, 2] = np.inf
    assert engine.diagnose(x, y) == (
        "layer 'attention_1': its parameter 'attention_1.key.weight' holds infinity at [1, 2]"
    )


def test_diagnose_names_the_sample():
    engine = engine_for(CLASSIFIER)
    x, y = synthetic(CLASSIFIER)
    x[17, 2, 3] = np.nan
    assert engine.diagnose(x, y) == "the input holds NaN at [2, 3] (sample 17)"
    x, y = ragged_samples([1, 2, 1]), np.array([0, 1, 2])
    x[2][0, 1] = np.inf
    assert engine_for(RAGGED).diagnose(x, y) == "the input holds infinity at [0, 1] (sample 2)"


def test_diagnose_names_the_first_operation():
    engine = engine_for(CLASSIFIER, np.float32)
    x, y = synthetic(CLASSIFIER)
    engine.parameters["attention_1.query.weight"][...] = 3e38
    assert engine.diagnose(x, y) == (
        "layer 'attention_1': its linear gives 'attention_1.query' with infinity at [0, 0] "
        "(sample 0)"
    )


def test_diagnose_names_the_loss():
    engine = engine_for(CLASSIFIER, np.float32)
    x, y = synthetic(CLASSIFIER)
    engine.parameters["output_1.weight"][...] = 0
    engine.parameters["output_1.bias"][...] = [3e38, -3e38, 0]
    y[:] = 0
    y[30] = 1
    assert engine.diagnose(x, y) == "the loss holds infinity at [] (sample 30)"


# Errors.


def test_a_dtype_is_float32_or_float64():
    with pytest.raises(ArgumentError, match=r"must be float32 or float64\. Got float16"):
        ReferenceEngine(CLASSIFIER.plan(), np.float16)


def test_samples_have_the_shape_of_the_input():
    engine = engine_for(CLASSIFIER)
    expected = r"network expects samples of shape \(6, 4\)\. Got \(4, 6\)\."
    with pytest.raises(ShapeError, match=expected):
        engine.predict(np.zeros((2, 4, 6)))
    with pytest.raises(ShapeError, match=r"shape \(None, 3\)\. Got \(2, 4\)"):
        engine_for(RAGGED).predict([np.zeros((1, 3)), np.zeros((2, 4))])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1], r"one class for each sample, shape \(3,\); its shape is \(2,\)"),
        ([0.0, 1.0, 2.0], r"y must hold whole class numbers; it is float64"),
        ([0, 3, 1], r"y\[1\] is class 3, but the network has 3 outputs"),
        ([0, 1, -1], r"y\[2\] is class -1"),
    ],
)
def test_labels_are_class_numbers(y, message):
    engine = engine_for(CLASSIFIER)
    with pytest.raises(DataError, match=message):
        engine.loss_and_gradients(samples(CLASSIFIER, 3), np.array(y))


def test_pull_back_wants_a_dy_for_each_output():
    engine = engine_for(CLASSIFIER)
    with pytest.raises(ShapeError, match=r"for each of 3 samples\. Got 2"):
        engine.pull_back(samples(CLASSIFIER, 3), np.zeros((2, 3)))
    with pytest.raises(ShapeError, match=r"shape \(3,\) for each sample\. Got \(4,\)"):
        engine.pull_back(samples(CLASSIFIER, 3), np.zeros((3, 4)))


def test_an_order_fills_its_steps():
    engine = engine_for(CLASSIFIER)
    x, y = synthetic(CLASSIFIER)
    with pytest.raises(ArgumentError, match=r"fills 3 steps of 32\. Got 60 samples"):
        engine.train(x, y, np.arange(60, dtype=np.uint32), 32, 0, np.full(3, 0.1))


@pytest.mark.skipif("UNDIVIDED_DATA" not in os.environ, reason="UNDIVIDED_DATA is not set")
def test_the_first_steps_on_mnist():
    files = {
        path.name.split("-ubyte")[0]: path
        for path in Path(os.environ["UNDIVIDED_DATA"]).rglob("train-*-ubyte*")
    }
    read = {
        name: gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for name, path in files.items()
    }
    x = np.frombuffer(read["train-images-idx3"], np.uint8, offset=16).reshape(-1, 28, 28)
    y = np.frombuffer(read["train-labels-idx1"], np.uint8, offset=8)
    network = Network(
        input=(28, 28),
        layers=(
            Rescaling(1 / 255),
            Patches(4),
            Dense(16),
            LearnedPositions(range=0.1),
            Activation("relu"),
            MultiHeadAttention(num_heads=1, output_projection=False),
            Dense(32, activation="relu"),
            Dense(16),
            GlobalAveragePooling1D(),
            Output(10),
        ),
        optimizer=SGD(0.01),
    )
    curves = []
    for dtype in (np.float32, np.float64):
        engine = ReferenceEngine(network.plan(), dtype)
        assert engine.plan.parameter_count == 3114
        generator = XorShift64(1)
        for name, values in initialize(engine.plan, generator).items():
            engine.parameters[name][...] = values
        order = np.arange(len(x), dtype=np.uint32)
        generator.shuffle(order)
        curves.append(engine.train(x, y, order, 32, 0, np.full(40, 0.01)).losses / 32)
    np.testing.assert_allclose(curves[0], curves[1], atol=1e-5)
    assert 2.2 < curves[0].mean() < 2.4
