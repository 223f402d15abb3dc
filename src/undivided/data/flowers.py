"""Iris: 150 flowers, which come with the package.

Origin, licence and how the split was made: `iris/README.md`.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from undivided.data.dataset import Dataset, Split

__all__ = ["iris"]

_FILE = Path(__file__).with_name("iris") / "iris.csv"
_KINDS = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")
# fmt: off
_HELD_OUT = (
    122, 125, 109, 23, 94, 133, 114, 79, 113, 15, 0, 127, 72, 95, 59,
    139, 32, 37, 119, 55, 128, 77, 140, 143, 112, 71, 57, 123, 67, 73,
)
# fmt: on


def iris() -> Dataset:
    """120 + 30 flowers, four measurements each, scaled to mean 0 and deviation 1; three kinds.

    The split is stored, not drawn.
    """
    with _FILE.open(encoding="ascii", newline="") as file:
        rows = list(csv.reader(file))[1:]
    x = np.array([[float(cell) for cell in row[:4]] for row in rows])
    y = np.array([_KINDS.index(row[4]) for row in rows], np.int32)
    x = ((x - x.mean(axis=0)) / x.std(axis=0, ddof=1)).astype(np.float32)
    held = np.array(_HELD_OUT)
    kept = np.setdiff1d(np.arange(len(rows)), held)
    train, test = Split(x[kept], y[kept]), Split(x[held], y[held])
    return Dataset(train, test, "iris", class_names=_KINDS)
