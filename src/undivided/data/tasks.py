"""Generated tasks: data that is made from a seed, the same on every machine.

Each tells something about a network that real data would hide: what it can look up, copy or sort,
and how far it carries on what it has seen.
"""

# N sequences, S rows or tokens, F features; ids are from 1 to `symbols`, 0 is left free

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from undivided.data.agreement import agreement
from undivided.data.dataset import Dataset, Split
from undivided.errors import ArgumentError

__all__ = ["TASKS", "copy", "induction", "max_row", "recall", "reverse", "sines", "sort"]


def max_row(
    rows: int = 16,
    features: int = 8,
    count: int = 65_536,
    test: int = 2_048,
    seed: int = 1,
) -> Dataset:
    """Say the row whose first number is the largest, in all positions.

    x [N, S, F] is uniform from −5 to 10; y [N, S, F] is that row, S times.
    """
    x = _random(seed).random((count + test, rows, features), dtype=np.float32)
    x *= 15
    x -= 5
    best = x[..., 0].argmax(axis=1)
    y = np.repeat(x[np.arange(len(x)), best][:, None, :], rows, axis=1)
    return _split(x, y, test, "max_row")


def sines(
    length: int = 64,
    ahead: int = 8,
    count: int = 8_192,
    test: int = 1_024,
    noise: float = 0.05,
    seed: int = 1,
) -> Dataset:
    """Carry on a sum of two sines: the next values without the noise.

    x [N, S, 1] has periods from 6 to 40 steps, amplitudes from 0.3 to 1, and normal noise;
    y [N, ahead] are the values that follow.
    """
    random = _random(seed)
    total = count + test
    periods = 6 + 34 * random.random((total, 2, 1))
    phases = 2 * np.pi * random.random((total, 2, 1))
    sizes = 0.3 + 0.7 * random.random((total, 2, 1))
    time = np.arange(length + ahead)
    values = (sizes * np.sin(2 * np.pi * time / periods + phases)).sum(axis=1)
    x = values[:, :length] + noise * random.standard_normal((total, length))
    y = values[:, length:].astype(np.float32)
    return _split(x[..., None].astype(np.float32), y, test, "sines")


def copy(
    length: int = 16, symbols: int = 16, count: int = 8_192, test: int = 1_024, seed: int = 1
) -> Dataset:
    """Say the sequence again: x and y [N, S] are the same ids."""
    x = _ids(length, symbols, count + test, seed)
    return _split(x, x.copy(), test, "copy")


def reverse(
    length: int = 16, symbols: int = 16, count: int = 8_192, test: int = 1_024, seed: int = 1
) -> Dataset:
    """Say the sequence backwards: y [N, S] is x from its end."""
    x = _ids(length, symbols, count + test, seed)
    return _split(x, np.ascontiguousarray(x[:, ::-1]), test, "reverse")


def sort(
    length: int = 16, symbols: int = 16, count: int = 8_192, test: int = 1_024, seed: int = 1
) -> Dataset:
    """Say the sequence in order: y [N, S] are the ids of x, smallest first."""
    x = _ids(length, symbols, count + test, seed)
    return _split(x, np.sort(x, axis=1), test, "sort")


def induction(
    length: int = 16, symbols: int = 16, count: int = 8_192, test: int = 1_024, seed: int = 1
) -> Dataset:
    """Say what followed the last token when it was there before: y [N] is that id.

    The last token of x [N, S] is at exactly one other place, which is not the one before it.
    """
    if length < 3 or symbols < 2:
        raise ArgumentError(
            f"The task 'induction' needs a length ≥ 3 and 2 symbols. Got {length} and {symbols}.",
            argument="length",
        )
    total, random = count + test, _random(seed)
    x = random.integers(1, symbols, (total, length)).astype(np.int32)
    asked = random.integers(1, symbols + 1, (total, 1)).astype(np.int32)
    x += x >= asked  # every symbol but the one that is asked for
    place = random.integers(0, length - 2, total)
    rows = np.arange(total)
    x[rows, place] = x[:, -1] = asked[:, 0]
    return _split(x, x[rows, place + 1], test, "induction")


def recall(
    pairs: int = 8, symbols: int = 16, count: int = 8_192, test: int = 1_024, seed: int = 1
) -> Dataset:
    """Say what stood beside a key: y [N] is the value of the last token of x [N, 2·pairs + 1].

    Keys, each there once, are ids from 1 to `symbols`; values those from symbols + 1 to
    2·symbols.
    """
    if pairs > symbols:
        raise ArgumentError(
            f"The task 'recall' needs a symbol for each of {pairs} pairs. Got {symbols}.",
            argument="pairs",
        )
    total, random = count + test, _random(seed)
    keys = random.random((total, symbols)).argsort(axis=1)[:, :pairs] + 1
    values = random.integers(symbols + 1, 2 * symbols + 1, (total, pairs))
    x = np.empty((total, 2 * pairs + 1), np.int32)
    x[:, 0:-1:2], x[:, 1::2] = keys, values
    place, rows = random.integers(0, pairs, total), np.arange(total)
    x[:, -1] = keys[rows, place]
    return _split(x, values[rows, place].astype(np.int32), test, "recall")


def _ids(length: int, symbols: int, total: int, seed: int) -> np.ndarray:
    return _random(seed).integers(1, symbols + 1, (total, length)).astype(np.int32)


def _random(seed: int) -> np.random.Generator:
    """NumPy's own Philox, which counts: the same numbers on every machine."""
    return np.random.Generator(np.random.Philox(key=seed))


def _split(x: np.ndarray, y: np.ndarray, test: int, name: str) -> Dataset:
    """The last `test` samples are for testing."""
    kept = len(x) - test
    return Dataset(Split(x[:kept], y[:kept]), Split(x[kept:], y[kept:]), name)


TASKS: dict[str, Callable[..., Dataset]] = {
    "copy": copy,
    "reverse": reverse,
    "sort": sort,
    "induction": induction,
    "recall": recall,
    "max_row": max_row,
    "sines": sines,
    "agreement": agreement,
}
"""By the names that `data:` takes."""
