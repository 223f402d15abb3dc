"""Iris and the generated tasks: the same numbers everywhere, and what they are said to be."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from undivided import Dense, Model, Network
from undivided.data import (
    characters_of,
    copy,
    flowers,
    induction,
    iris,
    max_row,
    recall,
    reverse,
    sines,
    sort,
    text,
)
from undivided.errors import ArgumentError, DataError
from undivided.layers import Embedding
from undivided.training.losses import Loss


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


def test_copy_reverse_and_sort() -> None:
    for make, expected in [
        (copy, lambda x: x),
        (reverse, lambda x: x[::-1]),
        (sort, lambda x: sorted(x)),
    ]:
        data = make(length=6, symbols=5, count=30, test=3)
        assert data.train.x.shape == data.train.y.shape == (30, 6)
        assert data.train.x.min() == 1 and data.train.x.max() == 5
        for x, y in zip(data.train.x.tolist(), data.train.y.tolist(), strict=True):
            assert y == list(expected(x))


def test_induction_has_one_answer() -> None:
    data = induction(length=7, symbols=4, count=200, test=3)
    for x, y in zip(data.train.x.tolist(), data.train.y.tolist(), strict=True):
        places = [i for i in range(6) if x[i] == x[6]]
        assert len(places) == 1 and places[0] < 5
        assert y == x[places[0] + 1] and min(x) >= 1 and max(x) <= 4
    with pytest.raises(ArgumentError, match="needs a length ≥ 3 and 2 symbols"):
        induction(length=2)


def test_recall_has_one_answer() -> None:
    data = recall(pairs=3, symbols=5, count=200, test=3)
    assert data.train.x.shape == (200, 7)
    for x, y in zip(data.train.x.tolist(), data.train.y.tolist(), strict=True):
        table = dict(zip(x[0:6:2], x[1:6:2], strict=True))
        assert len(table) == 3 and table[x[6]] == y
        assert max(table) <= 5 < min(table.values()) and max(table.values()) <= 10
    with pytest.raises(ArgumentError, match=r"needs a symbol for each of 9 pairs\. Got 8\."):
        recall(pairs=9, symbols=8)


def test_text(tmp_path: Path) -> None:
    file = tmp_path / "some.txt"
    written = "abcdefghi äöü " * 10
    file.write_text(written, encoding="utf-8")
    data = text(file, length=16)
    raw = written.encode()
    assert data.train.x.dtype == np.int32
    assert bytes(data.train.x.ravel().tolist()) == raw[: data.train.x.size]
    assert bytes(data.train.y.ravel().tolist()) == raw[1 : data.train.y.size + 1]
    by_character = text(file, length=10, unit="characters")
    known = characters_of(file)
    assert known == "".join(sorted(set(written)))
    assert "".join(known[i] for i in by_character.train.x.ravel()) == written[: 10 * 13 - 10]
    with pytest.raises(DataError, match=r"expected at least 401 bytes, two windows of 200"):
        text(file, length=200)
    file.write_bytes(b"\xff" * 100)
    with pytest.raises(DataError, match=r"expected a text in UTF-8; byte 0 is not"):
        text(file, length=4, unit="characters")
    with pytest.raises(DataError, match=r"there is no such file"):
        text(tmp_path / "none.txt")


@pytest.mark.parametrize("loss", Loss.members)
def test_example_batches_have_the_networks_shapes(loss: str) -> None:
    networks = [
        Network(input=(3, 4), layers=(Dense(5),), loss=Loss.members[loss]()),  # type: ignore[arg-type]
        Network(input=(None, 4), layers=(Dense(2),), loss=Loss.members[loss]()),  # type: ignore[arg-type]
        Network(input=(7,), layers=(Embedding(9, 4), Dense(3)), loss=Loss.members[loss]()),  # type: ignore[arg-type]
    ]
    for network in networks:
        model = Model(network)
        x, y = model.example_batch(6, seed=3)
        assert np.isfinite(model.fit((x, y), epochs=1)[0].loss)
        again = model.example_batch(6, seed=3)
        np.testing.assert_array_equal(x, again[0])
        np.testing.assert_array_equal(y, again[1])
