"""Padding: what a sample predicts and what is learned from it never depends on it, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undivided
from undivided import DataError, Model, Network
from undivided.layers import (
    Dense,
    Embedding,
    GlobalAveragePooling1D,
    MultiHeadAttention,
    Output,
    TransformerDecoder,
    TransformerEncoder,
)

ENGINES = ("native", "reference")
LENGTHS = (3, 9, 1, 6)


def of_ids(*layers: Any, padding_id: int | None = 0) -> Network:
    ends = layers or (TransformerEncoder(2, dff=16), GlobalAveragePooling1D(), Output(4))
    return Network(input=(9,), layers=(Embedding(20, 8, padding_id=padding_id), *ends))


def of_numbers() -> Network:
    layers = TransformerEncoder(2, dff=16), Dense(6), GlobalAveragePooling1D(), Output(4)
    return Network(input=(9, 8), layers=layers)


def ids(seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.integers(1, 20, length) for length in LENGTHS]


def filled(samples: list[np.ndarray], length: int, *, left: bool = False) -> np.ndarray:
    whole = np.zeros((len(samples), length, *samples[0].shape[1:]), samples[0].dtype)
    for row, sample in zip(whole, samples, strict=True):
        row[length - len(sample) if left else 0 :][: len(sample)] = sample
    return whole


@pytest.mark.parametrize("engine", ENGINES)
def test_where_and_how_much_there_is_does_not_matter(engine: Any) -> None:
    model = Model(of_ids(), seed=1, engine=engine)
    samples = ids()
    alone = np.concatenate([model.logits(each[None]) for each in samples])
    holes = filled(samples, 9)
    holes[0] = [0, samples[0][0], 0, 0, samples[0][1], samples[0][2], 0, 0, 0]
    for name, x in {
        "right": filled(samples, 9),
        "left": filled(samples, 9, left=True),
        "holes": holes,
        "list": samples,
        "padded list": [np.append(each, 0)[:9] for each in samples],
    }.items():
        np.testing.assert_array_equal(model.logits(x), alone, err_msg=name)
    short = model.logits(filled([samples[0], samples[3]], 6))
    np.testing.assert_array_equal(short, alone[[0, 3]])


@pytest.mark.parametrize("engine", ENGINES)
def test_masks_and_lengths_say_the_same(engine: Any) -> None:
    model = Model(of_numbers(), seed=1, engine=engine)
    random = np.random.default_rng(0)
    samples = [random.normal(size=(length, 8)).astype(np.float32) for length in LENGTHS]
    before = {name: values.copy() for name, values in model.parameters.items()}
    whole = random.normal(size=(3, 9, 8)).astype(np.float32)
    expected = model.logits(whole)  # as long as no sample has been shorter
    x = filled(samples, 9)
    x[0, 5] = 1e30  # whatever stands there
    mask = np.arange(9) < np.array(LENGTHS)[:, None]
    alone = np.concatenate([model.logits([each]) for each in samples])
    for kind in (bool, np.uint8, np.float32, np.int64):
        np.testing.assert_array_equal(model.logits(x, mask=mask.astype(kind)), alone)
    np.testing.assert_array_equal(model.logits(x, lengths=LENGTHS), alone)
    np.testing.assert_array_equal(model.predict(x, lengths=LENGTHS), alone.argmax(axis=1))
    np.testing.assert_array_equal(model.logits(whole), expected)
    for name, values in before.items():
        np.testing.assert_array_equal(model.parameters[name], values)


@pytest.mark.parametrize("engine", ENGINES)
def test_learning_does_not_see_it(engine: Any) -> None:
    y = np.array([0, 1, 2, 3])
    first, second = (Model(of_ids(), seed=1, engine=engine) for _ in range(2))
    first.fit((filled(ids(), 9), y), epochs=3, batch_size=2)
    second.fit((filled(ids(), 9, left=True), y), epochs=3, batch_size=2)
    for name, values in first.parameters.items():
        np.testing.assert_array_equal(second.parameters[name], values)


@pytest.mark.parametrize("engine", ENGINES)
def test_targets_of_padding_do_not_count(engine: Any) -> None:
    network = of_ids(TransformerDecoder(2, dff=16), Output(5))
    y = [np.arange(length) % 5 for length in LENGTHS]
    padded = filled(y, 9)
    padded[filled(ids(), 9) == 0] = 3  # any class
    first, second = (Model(network, seed=1, engine=engine) for _ in range(2))
    loss, gradients = first.loss_and_gradients(filled(ids(), 9), padded)
    other, expected = second.loss_and_gradients(ids(), y)
    assert loss == other
    for name, gradient in gradients.items():
        np.testing.assert_array_equal(gradient, expected[name])
    scores = first.logits(filled(ids(), 9))
    assert scores.shape == (4, 9, 5)
    assert not scores[0, 3:].any() and scores[0, :3].any()


def test_attention_weights_are_those_of_real_tokens() -> None:
    model = Model(of_ids(MultiHeadAttention(2), GlobalAveragePooling1D(), Output(3)), seed=1)
    weights = model.attention_weights(filled(ids(), 9))["attention_1"]
    assert [each.shape for each in weights] == [(2, n, n) for n in LENGTHS]
    np.testing.assert_allclose(weights[1].sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("x", "given", "message"),
    [
        (np.zeros((2, 9), int), {}, r"x\[0\] is all padding: no token of it counts. Leave it out."),
        (np.full((1, 9), 20), {}, r"x\[0, 0\] is 20, and the network's ids are 0 to 19. Make the"),
        (np.full((1, 9), -1), {}, r"x\[0, 0\] is -1, and the network's ids are 0 to 19."),
        (np.ones((1, 9)), {}, r"x must hold ids, whole numbers, .* it is float64. Ids that are"),
        (np.ones((1, 10), int), {}, r"the shape \(samples, None\), .* \(None,\), at most 9. Its"),
        (np.ones((2, 9), int), {"lengths": [3]}, r"a whole number for each sample, shape \(2,\)"),
        (np.ones((1, 9), int), {"lengths": [10]}, r"lengths\[0\] is 10; samples have from 1 to 9"),
        (np.ones((1, 9), int), {"mask": np.ones(9)}, r"mask must hold 1 for each token that cou"),
        (np.ones((1, 9), int), {"mask": np.full((1, 9), 0.5)}, r"mask\[0, 0\] is 0.5; a mask hol"),
        ([np.ones(3, int)], {"mask": np.ones((1, 3))}, "A mask or lengths say which tokens of one"),
    ],
)
def test_refusals(x: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Model(of_ids()).predict(x, **given)


def test_a_network_that_cannot_have_lengths_says_so() -> None:
    network = undivided.parse("network N { input: (4, 3) layers: Flatten Output(2) }")
    model = Model(network)
    with pytest.raises(undivided.ShapeError, match=r"Flatten .* expects a fixed shape"):
        model.predict(np.ones((1, 4, 3), np.float32), lengths=[2])
