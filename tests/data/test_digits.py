"""The bundled digits: exactly the samples and the split that their README states."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

import undivided.data
from undivided.data import digits

FOLDER = Path(undivided.data.__file__).parent / "digits"


def test_sizes_and_values():
    dataset = digits()
    assert dataset.name == "digits"
    assert dataset.classes == 10
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test)) == (1437, 360)
    for split in (dataset.train, dataset.test):
        assert split.sample_shape == (8, 8)
        assert split.x.dtype == np.uint8
        assert (split.x.min(), split.x.max()) == (0, 16)


def test_every_digit_is_in_both_parts():
    dataset = digits()
    assert dataset.test is not None
    assert np.bincount(dataset.test.y).tolist() == [36] * 10
    train = np.bincount(dataset.train.y)
    # The counts of the original's test set.
    assert (train + 36).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_no_sample_is_in_both_parts_and_the_sum_is_the_originals():
    dataset = digits()
    assert dataset.test is not None
    every = np.concatenate([dataset.train.x, dataset.test.x])
    assert len({image.tobytes() for image in every}) == 1797
    assert int(every.sum()) == 561_718


def test_the_order_never_changes():
    dataset = digits()
    assert dataset.test is not None
    order = [dataset.train.x, dataset.train.y, dataset.test.x, dataset.test.y]
    content = b"".join(array.astype(np.uint8).tobytes() for array in order)
    assert hashlib.sha256(content).hexdigest() == (
        "f5268f0752081280f51885024c26a077a20ab4c1721c3692b500973e75824655"
    )


def test_the_first_samples_are_a_fair_choice():
    assert np.bincount(digits().train.take(200).y, minlength=10).min() >= 10


def test_each_call_gives_its_own_arrays():
    first, second = digits(), digits()
    assert not np.shares_memory(first.train.x, second.train.x)


def test_the_readme_names_source_and_licence():
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for part in ("10.24432/C50P49", "CC BY 4.0", "Alpaydin", "Kaynak", "scikit-learn", "writer"):
        assert part in text
    assert (FOLDER / "digits.npz").stat().st_size < 100_000
