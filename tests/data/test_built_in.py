"""Iris and the generated tasks: the same numbers everywhere, and what they are said to be."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from undivided.data import flowers, iris, max_row, sines


def measurements() -> np.ndarray:
    file = Path(flowers.__file__).with_name("iris") / "iris.csv"
    with file.open(newline="") as opened:
        return np.array([[float(cell) for cell in row[:4]] for row in list(csv.reader(opened))[1:]])


def test_iris_is_the_repositorys_file() -> None:
    x = measurements()
    assert x.shape == (150, 4)
    np.testing.assert_allclose(x.mean(axis=0), [5.843333, 3.054, 3.758667, 1.198667], atol=5e-7)
    deviations = [0.828066, 0.433594, 1.764420, 0.763161]
    np.testing.assert_allclose(x.std(axis=0, ddof=1), deviations, atol=5e-7)
    for row in (34, 37):  # where scikit-learn and R follow Fisher's article
        np.testing.assert_array_equal(x[row], [4.9, 3.1, 1.5, 0.1])


def test_iris_split_and_scale() -> None:
    data = iris()
    assert (len(data.train), len(data.test or ()), data.classes) == (120, 30, 3)
    assert data.test is not None
    assert np.bincount(data.test.y).tolist() == [5, 11, 14]
    assert np.bincount(data.train.y).tolist() == [45, 39, 36]
    both = np.concatenate([data.train.x, data.test.x])
    np.testing.assert_allclose(both.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(both.std(axis=0, ddof=1), 1, rtol=1e-6)
    first = (measurements()[122] - [5.843333, 3.054, 3.758667, 1.198667]) / [
        0.828066,
        0.433594,
        1.764420,
        0.763161,
    ]
    np.testing.assert_allclose(data.test.x[0], first, atol=1e-5)


def test_max_row() -> None:
    data = max_row(rows=5, features=3, count=20, test=4)
    assert data.train.x.shape == data.train.y.shape == (20, 5, 3)
    assert data.test is not None and len(data.test) == 4
    for x, y in zip(data.train.x, data.train.y, strict=True):
        best = max(range(5), key=lambda row: x[row, 0])
        for row in range(5):
            np.testing.assert_array_equal(y[row], x[best])
    assert -5 <= data.train.x.min() < -4 and 9 < data.train.x.max() < 10
    again = max_row(rows=5, features=3, count=20, test=4)
    np.testing.assert_array_equal(data.train.x, again.train.x)
    other = max_row(rows=5, features=3, count=20, test=4, seed=2)
    assert not (data.train.x == other.train.x).any()


def test_sines_go_on() -> None:
    data = sines(length=40, ahead=3, count=6, test=2, noise=0.0)
    assert data.train.x.shape == (6, 40, 1)
    assert data.train.y.shape == (6, 3)
    # A sum of two sines satisfies a recurrence of order four with constant coefficients.
    for x, y in zip(data.train.x[..., 0], data.train.y, strict=True):
        series = np.concatenate([x, y]).astype(np.float64)
        rows = np.stack([series[i : i + 40 - 4] for i in range(4)], axis=1)
        coefficients, *_ = np.linalg.lstsq(rows, series[4:40], rcond=None)
        for i in range(40, 43):
            assert abs(series[i - 4 : i] @ coefficients - series[i]) < 1e-3
    noisy = sines(length=40, ahead=3, count=6, test=2, noise=0.1)
    np.testing.assert_array_equal(noisy.train.y, data.train.y)
    assert 0.05 < (noisy.train.x - data.train.x).std() < 0.15
