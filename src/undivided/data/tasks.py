"""Generated tasks: data that is made from a seed, the same on every machine.

Each tells something about a network that real data would hide: what it can look up, copy or sort,
and how far it carries on what it has seen.
"""

# N sequences, S rows, F features

from __future__ import annotations

import numpy as np

from undivided.data.dataset import Dataset, Split

__all__ = ["max_row", "sines"]


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


def _random(seed: int) -> np.random.Generator:
    """NumPy's own Philox, which counts: the same numbers on every machine."""
    return np.random.Generator(np.random.Philox(key=seed))


def _split(x: np.ndarray, y: np.ndarray, test: int, name: str) -> Dataset:
    """The last `test` samples are for testing."""
    kept = len(x) - test
    return Dataset(Split(x[:kept], y[:kept]), Split(x[kept:], y[kept:]), name)
