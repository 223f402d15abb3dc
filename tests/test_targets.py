"""Targets of every kind: what the losses take, what is refused in which words, and what counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undivided
from undivided import Dense, Model, Network, Output
from undivided.errors import ArgumentError, DataError
from undivided.targets import checked_targets
from undivided.training.losses import Loss, SparseCategoricalCrossentropy

SAMPLE, TOKENS, RAGGED = (4,), (5, 4), (None, 4)


def network(loss: Any, width: int = 3, shape: tuple[int | None, ...] = SAMPLE) -> Network:
    return Network(input=shape, layers=(Dense(width),), loss=loss)


def refusal(loss: Any, y: Any, *, shape: Any = SAMPLE, count: int = 3, **given: Any) -> str:
    with pytest.raises(DataError) as caught:
        checked_targets(y, network(loss, shape=shape).plan(), count, "train.y", **given)
    return str(caught.value)


SPARSE, DENSE, BINARY = (
    "sparse_categorical_crossentropy",
    "categorical_crossentropy",
    "binary_crossentropy",
)


class TestRefusals:
    def test_classes(self) -> None:
        assert refusal(SPARSE, np.zeros((3, 5)), shape=TOKENS) == (
            "train.y must hold whole class numbers; it is float64. Class numbers: .astype('int32')."
        )
        assert refusal(SPARSE, np.zeros(3, int), shape=TOKENS) == (
            "train.y must have one class for each position, shape (3, 5); its shape is (3,). "
            "For one target a sample, put GlobalAveragePooling1D() or Flatten() before the last "
            "layer."
        )
        assert "train.y[2, 4] is class 3, but" in refusal(
            SPARSE, np.where(np.arange(15).reshape(3, 5) == 14, 3, 0), shape=TOKENS
        )
        assert "the loss 'categorical_crossentropy' takes them" in refusal(
            SPARSE, np.eye(3, dtype=int)
        )

    def test_distributions(self) -> None:
        assert refusal(DENSE, np.arange(3)) == (
            "train.y must have the probabilities of the 3 classes for each sample (one-hot rows, "
            "say), shape (3, 3); its shape is (3,). Class numbers become one-hot rows by "
            "numpy.eye(3)[y], or the loss 'sparse_categorical_crossentropy' takes them."
        )
        y = np.eye(3)
        y[1] = [1, 1, 0]
        assert refusal(DENSE, y).startswith("train.y[1] adds up to 2; the probabilities of")
        assert "train.y[1] holds -1; the targets of cat" in refusal(
            DENSE, [[1, 0, 0], [-1, 1, 1]] * 2, count=4
        )

    def test_shares_and_values(self) -> None:
        assert "train.y[0] holds 2; the targets of binary_crossentropy are from 0 to 1" in refusal(
            BINARY, np.full((3, 3), 2)
        )
        assert refusal("mse", np.zeros((3, 2))) == (
            "train.y must have a number for each output, shape (3, 3); its shape is (3, 2)."
        )
        assert "train.y[2] holds a number that is not finite" in refusal(
            "mae", np.where(np.arange(9).reshape(3, 3) == 7, np.nan, 0)
        )
        assert refusal("huber", np.array(["a"] * 3)) == "train.y must hold numbers; it is <U1."

    def test_samples_of_different_lengths(self) -> None:
        y = [np.zeros(2, int), np.zeros(4, int)]
        assert refusal(SPARSE, y, shape=RAGGED, count=2, lengths=[2, 3]) == (
            "train.y[1] must have a target for each of the sample's 3 positions; it has 4."
        )
        assert "train.y[0] must have the shape (None, 3)" in refusal(
            "mse", [np.zeros((2, 2))], shape=RAGGED, count=1
        )
        assert "its length is 2." in refusal(SPARSE, y, shape=RAGGED)
        y[1][3] = 9
        assert "train.y[1, 3] is class 9" in refusal(SPARSE, y, shape=RAGGED, count=2)

    def test_weights(self) -> None:
        def wrong(weights: Any) -> str:
            return refusal(SPARSE, np.zeros((3, 5), int), shape=TOKENS, weights=weights)

        assert wrong(np.ones((3, 4))) == (
            "the weights of train.y must be a number for each of 3 samples, shape (3,), or one "
            "for each position; their shape is (3, 4)."
        )
        assert "must be finite numbers ≥ 0" in wrong([1, -1, 1])
        assert "must be finite numbers ≥ 0" in wrong([1, np.nan, 1])
        assert "must be numbers; they are <U1" in wrong(np.array(["a", "b", "c"]))
        assert "must be finite numbers ≥ 0" in wrong([1, 1e300, 1])
        assert "No target of train.y counts" in wrong([1e-300, 1e-40, 0])
        assert wrong(np.zeros(3)) == (
            "No target of train.y counts: all are ignored or have the weight 0."
        )

    def test_a_metric_that_the_targets_cannot_tell(self) -> None:
        with pytest.raises(ArgumentError, match=r"'accuracy' of network is for .* are values"):
            Network(input=SAMPLE, layers=(Dense(1),), loss="mse", metrics=("accuracy",))  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["native", "reference"])
class TestWhatCounts:
    """Weighted losses are weighted means, in loss, gradients, training and metrics."""

    @pytest.mark.parametrize("shape", [SAMPLE, TOKENS])
    def test_a_weight_of_two_is_the_sample_twice(self, engine: Any, shape: Any) -> None:
        model = Model(network(SPARSE, shape=shape), engine=engine)
        random = np.random.default_rng(0)
        x = random.normal(size=(4, *shape)).astype(np.float32)
        y = random.integers(0, 3, (4, *shape[:-1]))
        weights = np.array([1.0, 2.0, 0.0, 1.0])
        rows = np.array([0, 1, 1, 3])
        weighted = model._engine.loss_and_gradients(
            x, checked_targets(y, model.plan, 4, weights=weights)
        )
        repeated = model.loss_and_gradients(x[rows], y[rows])
        assert weighted[0] == pytest.approx(repeated[0], rel=1e-6)
        for name, gradient in repeated[1].items():
            np.testing.assert_allclose(weighted[1][name], gradient, rtol=1e-5, atol=1e-7)
        found, expected = model.evaluate((x, y, weights)), model.evaluate((x[rows], y[rows]))
        assert found.loss == pytest.approx(expected.loss, rel=1e-6)
        assert found.accuracy == pytest.approx(expected.accuracy)

    def test_ignored_targets_are_as_if_they_were_not_there(self, engine: Any) -> None:
        loss = SparseCategoricalCrossentropy(ignore=-100)
        ignoring = Model(network(loss, shape=TOKENS), engine=engine)
        x = np.random.default_rng(1).normal(size=(6, *TOKENS)).astype(np.float32)
        y = np.random.default_rng(2).integers(0, 3, (6, 5))
        y[:, 3:] = -100
        y[2] = -100
        kept = np.arange(6) != 2
        short = Model(network(SPARSE, shape=(3, 4)), engine=engine)
        for name, values in ignoring.parameters.items():
            short.parameters[name] = values
        found = ignoring.loss_and_gradients(x, y)
        expected = short.loss_and_gradients(x[kept, :3], y[kept, :3])
        assert found[0] == pytest.approx(expected[0], rel=1e-6)
        for name, gradient in expected[1].items():
            np.testing.assert_allclose(found[1][name], gradient, rtol=1e-5, atol=1e-7)
        history = ignoring.fit((x, y), epochs=3, batch_size=2)
        assert np.isfinite([entry.loss for entry in history]).all()

    def test_a_batch_in_which_nothing_counts_changes_nothing(self, engine: Any) -> None:
        net = Network(input=SAMPLE, layers=(Dense(2),), loss="mse", optimizer=undivided.SGD(0.1))
        model = Model(net, engine=engine)
        before = {name: values.copy() for name, values in model.parameters.items()}
        x, y = np.ones((2, 4), np.float32), np.zeros((2, 2))
        weights = np.array([1.0, 0.0])
        targets = checked_targets(y, model.plan, 2, weights=weights)
        result = model._engine.train(x, targets, np.array([1, 1]), 1, 0, np.full(2, 0.1))
        assert not result.failed
        assert list(result.losses) == [0, 0]
        for name, values in model.parameters.items():
            np.testing.assert_array_equal(values, before[name])

    def test_rows_of_weight_0_may_hold_anything(self, engine: Any) -> None:
        model = Model(network("mse", width=1), engine=engine)
        x = np.array([[1e30, 1e30, 1e30, 1e30], [1, 2, 3, 4]], np.float32)
        weights = np.array([0.0, 1.0])
        loss, gradients = model._engine.loss_and_gradients(
            x, checked_targets(np.zeros(2), model.plan, 2, weights=weights)
        )
        assert np.isfinite(loss)
        assert all(np.isfinite(g).all() for g in gradients.values())


@pytest.mark.parametrize("engine", ["native", "reference"])
class TestPredictions:
    def test_values(self, engine: Any) -> None:
        net = Network(input=(2,), layers=(Dense(1),), loss="mse", optimizer=undivided.SGD(0.1))
        model = Model(net, engine=engine)
        x = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
        y = 3 * x[:, 0] - x[:, 1] + 0.5
        history = model.fit((x, y), test=(x, y), epochs=20)
        last = history[-1]
        assert last.test_accuracy is None
        assert last.test_loss < 1e-6  # type: ignore[operator]
        assert last.metrics["r2"] > 0.999999
        assert str(last).endswith(f" | test_mae={last.metrics['mae']:.6g} | test_r2=1")
        assert model.predict(x).shape == (200, 1)
        np.testing.assert_allclose(model.predict(x)[:, 0], y, atol=1e-3)
        with pytest.raises(ArgumentError, match=r"predict_proba is for classes\. .* 'mse'|mse"):
            model.predict_proba(x)

    def test_yes_or_no(self, engine: Any) -> None:
        net = Network(input=(2,), layers=(Dense(2),), loss=BINARY, optimizer=undivided.Adam(0.1))
        model = Model(net, engine=engine)
        x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
        y = (x > 0).astype(int)
        model.fit((x, y), epochs=100)
        assert (model.predict(x) == y).mean() > 0.97
        shares = model.predict_proba(x)
        np.testing.assert_array_equal(shares > 0.5, model.predict(x))
        assert shares.min() >= 0
        assert shares.max() <= 1
        assert model.evaluate((x, y)).accuracy == (model.predict(x) == y).mean()

    def test_classes_of_positions_and_lengths(self, engine: Any) -> None:
        for shape in (TOKENS, RAGGED):
            net = Network(input=shape, layers=(Output(4),), optimizer=undivided.Adam(0.05))
            model = Model(net, engine=engine)
            random = np.random.default_rng(3)
            lengths = [5] * 40 if shape == TOKENS else [1 + n % 7 for n in range(40)]
            x: Any = [random.normal(size=(n, 4)).astype(np.float32) for n in lengths]
            y: Any = [each.argmax(axis=1) for each in x]
            if shape == TOKENS:
                x, y = np.stack(x), np.stack(y)
            model.fit((x, y), epochs=40)
            found = np.concatenate(list(model.predict(x)))
            right = (found == np.concatenate(list(y))).mean()
            assert right > 0.9
            assert model.evaluate((x, y)).accuracy == pytest.approx(right)
            assert len(model.predict_proba(x)[2]) == lengths[2]


def test_short_names_and_calls_are_the_same() -> None:
    for name, loss in Loss.shorts.items():
        assert network(name).loss == loss()
        text = f'network {{ input: (4) layers: Dense(3) loss: "{name}" }}'
        assert undivided.parse(text).loss == loss()
        assert undivided.parse(text.replace(f'"{name}"', f"{loss.keyword}()")).loss == loss()
    assert 'loss: "mse"' in network("mean_squared_error").to_text()
    assert "loss: Huber(delta=0.5)" in network(undivided.Huber(0.5)).to_text()
