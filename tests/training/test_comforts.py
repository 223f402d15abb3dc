"""What `fit` takes over from people: stopping in time, keeping samples back, weighing, shifting."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pytest

import undivided
from undivided import SGD, Dense, EarlyStopping, Flatten, Model, Network, Output, RandomShift, Train
from undivided.errors import ArgumentError, DataError
from undivided.training.augmentation import Augmentation
from undivided.training.history import Epoch
from undivided.training.progress import StopTraining
from undivided.training.stopping import Patience


def network(**train: Any) -> Network:
    return Network(
        input=(4,), layers=(Output(3),), optimizer=SGD(0.1), train=Train(seed=1, **train)
    )


def data(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    return x, x[:, :3].argmax(axis=1)


class TestEarlyStopping:
    def patience(self, values: list[float], **given: Any) -> tuple[int, float]:
        """After how many epochs it ends, and the number that the parameter is left with."""

        class Engine:
            parameters: ClassVar = {"w": np.zeros(1)}

        patience = Patience(EarlyStopping(**given), Engine())  # type: ignore[arg-type]
        for epoch, value in enumerate(values, start=1):
            Engine.parameters["w"][:] = epoch
            metrics = {"accuracy": value, "mae": value}
            if patience.is_over(Epoch(epoch, 1.0, 1.0, value, value, metrics)):
                break
        patience.restore()
        return epoch, float(Engine.parameters["w"][0])

    def test_when_and_with_what(self) -> None:
        falling = [3.0, 2.0, 1.0, 1.5, 1.0, 1.2, 0.5]
        assert self.patience(falling, patience=3) == (6, 3)
        assert self.patience(falling, patience=4) == (7, 7)
        assert self.patience(falling, patience=3, metric="mae") == (6, 3)
        assert self.patience(falling, patience=3, restore_best=False) == (6, 6)
        assert self.patience([3.0, 2.9, 2.8, 2.7], patience=2, least=0.5) == (3, 1)
        assert self.patience([0.1, 0.5, 0.4, 0.3], patience=2, metric="accuracy") == (4, 2)

    def test_in_a_fit(self) -> None:
        stopping = EarlyStopping(patience=2, metric="accuracy")
        model = Model(network(epochs=50, early_stopping=stopping))
        history = model.fit(data(), test=data(20))
        best = max(entry.test_accuracy for entry in history)  # type: ignore[type-var]
        assert len(history) < 50
        assert model.evaluate(data(20)).accuracy == best

    def test_it_needs_a_test(self) -> None:
        model = Model(network(early_stopping=EarlyStopping(metric="r2")))
        with pytest.raises(ArgumentError, match=r"looks at 'r2' of the test, and there is none\."):
            model.fit(data())


def test_validation_split_keeps_the_last_samples() -> None:
    x, y = data()
    split = Model(network(validation_split=0.25))
    history = split.fit((x, y), epochs=3)
    by_hand = Model(network())
    expected = by_hand.fit((x[:45], y[:45]), test=(x[45:], y[45:]), epochs=3)
    assert [(e.loss, e.test_loss) for e in history] == [(e.loss, e.test_loss) for e in expected]
    given = Model(network(validation_split=0.25)).fit((x, y), test=(x, y), epochs=1)
    assert given[0].test_loss != expected[0].test_loss
    with pytest.raises(DataError, match=r"validation_split of 0\.01 of 10 samples leaves none"):
        Model(network(validation_split=0.01)).fit(data(10))


def test_callbacks() -> None:
    seen: list[int] = []

    def stop(entry: Epoch) -> None:
        seen.append(entry.epoch)
        if entry.epoch == 3:
            raise StopTraining

    class Watching(undivided.Progress):
        calls = 0

        def advanced(self, epoch: int, done: int, samples: int, loss: float) -> None:
            self.calls += 1

    watching = Watching()
    model = Model(network())
    history = model.fit(data(), epochs=10, callbacks=[watching, stop])
    assert seen == [1, 2, 3]
    assert len(history) == model.epochs == 3
    assert watching.calls >= 3


def test_class_weights() -> None:
    x, y = data()
    by_class = Model(network())
    by_sample = Model(network())
    weights = np.array([1.0, 2.0, 0.0])
    first = by_class.fit((x, y), epochs=2, class_weights={1: 2.0, 2: 0.0})
    second = by_sample.fit((x, y, weights[y]), epochs=2)
    assert [e.loss for e in first] == [e.loss for e in second]
    third = Model(network()).fit((x, y, weights[y]), epochs=2, class_weights=[1.0, 1.0, 5.0])
    assert [e.loss for e in third] == [e.loss for e in second]
    for wrong in ({3: 1.0}, [1.0, 2.0], {0: -1.0}):
        with pytest.raises(ArgumentError, match=r"'class_weights' of fit must be a number ≥ 0 for"):
            Model(network()).fit((x, y), class_weights=wrong)  # type: ignore[arg-type]
    values = Network(input=(4,), layers=(Dense(1),), loss="mse")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"class_weights are for classes; the targets of mse"):
        Model(values).fit((x, y), class_weights=[1.0])


class TestShifts:
    @pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3)])
    def test_pictures_are_moved(self, shape: tuple[int, ...]) -> None:
        x = np.random.default_rng(0).integers(1, 255, (200, *shape)).astype(np.uint8)
        moved = RandomShift(2).apply(x, 7, 3, np.arange(200))
        assert moved.shape == x.shape and moved.dtype == x.dtype
        found = set()
        for before, after in zip(x, moved, strict=True):
            wide = np.zeros((shape[0] + 4, shape[1] + 4, *shape[2:]), np.uint8)
            wide[2:-2, 2:-2] = before
            places = [
                (down, across)
                for down in range(5)
                for across in range(5)
                if np.array_equal(wide[down : down + shape[0], across : across + shape[1]], after)
            ]
            assert len(places) == 1
            found.add(places[0])
        assert len(found) == 25

    def test_a_sample_is_the_same_wherever_it_is(self) -> None:
        x = np.random.default_rng(0).random((40, 6, 6)).astype(np.float32)
        whole = RandomShift(1).apply(x, 1, 2, np.arange(40))
        np.testing.assert_array_equal(
            whole[7:9], RandomShift(1).apply(x[7:9], 1, 2, np.arange(7, 9))
        )
        assert not np.array_equal(whole, RandomShift(1).apply(x, 1, 3, np.arange(40)))
        assert not np.array_equal(whole, RandomShift(1).apply(x, 2, 2, np.arange(40)))

    def test_in_a_fit_and_only_in_training(self) -> None:
        net = Network(
            input=(6, 6),
            layers=(Flatten(), Output(2)),
            train=Train(augment=RandomShift(1), epochs=4, batch_size=8),
        )
        x = np.random.default_rng(0).random((30, 6, 6)).astype(np.float32)
        y = np.arange(30) % 2
        once, twice, plain = Model(net), Model(net), Model(net)
        plain.network = dataclasses.replace(net, train=dataclasses.replace(net.train, augment=None))
        whole = once.fit((x, y), test=(x, y))
        parts = twice.fit((x, y), test=(x, y), epochs=1) + twice.fit((x, y), test=(x, y), epochs=3)
        assert [(e.loss, e.test_loss) for e in whole] == [(e.loss, e.test_loss) for e in parts]
        assert whole[0].loss != plain.fit((x, y))[0].loss
        assert once.evaluate((x, y)).loss == whole[-1].test_loss

    def test_what_is_no_picture(self) -> None:
        with pytest.raises(
            DataError, match=r"RandomShift\(2\) is for pictures.* The samples are \(4,\)"
        ):
            Model(network(augment=RandomShift(2))).fit(data())
        assert set(Augmentation.members) == {"RandomShift"}


def test_in_text() -> None:
    text = """
        network N {
          input: (8, 8)
          layers: Flatten Output(3)
          train {
            augment: RandomShift(2)
            validation_split: 0.1
            early_stopping: EarlyStopping(patience=3, metric="accuracy")
            initial: "fan_in"
          }
        }
    """
    parsed = undivided.parse(text)
    assert parsed.train.augment == RandomShift(2)
    assert parsed.train.early_stopping == EarlyStopping(patience=3, metric="accuracy")
    assert undivided.parse(parsed.to_text()) == parsed


def test_initial_weights_by_what_comes_in() -> None:
    weight = Model(network(initial="fan_in")).parameters["output_1.weight"]
    assert 0.4 < np.abs(weight).max() <= 0.5  # 1/√4
    assert np.abs(Model(network()).parameters["output_1.weight"]).max() > 0.5  # √(6/7)
