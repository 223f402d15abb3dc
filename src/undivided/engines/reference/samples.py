"""Samples run together in groups of one shape, and their results back in the samples' order.

Where the plan's input is ragged, samples differ in length: those of equal length form groups,
so that no primitive has to know about padding.
"""

# B samples in a group, N samples in all

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from undivided.engines.engine import Samples
from undivided.errors import ShapeError
from undivided.plan.plan import Plan, Ragged, Shape, show_shape

__all__ = ["Samples", "gather", "groups", "take"]

LARGEST_GROUP = 256
"""How many samples run together at most, so that memory stays bounded."""


def groups(plan: Plan, x: Samples, dtype: np.dtype) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(the numbers of B samples, these samples as one array [B, …] of `dtype`)."""
    alike: dict[tuple[int, ...], list[int]] = {}
    if isinstance(x, np.ndarray) and x.dtype != object:
        alike[x.shape[1:]] = list(range(len(x)))
    else:
        for number, sample in enumerate(x):
            alike.setdefault(np.shape(sample), []).append(number)
    for shape, numbers in alike.items():
        _expect(plan, shape)
        for start in range(0, len(numbers), LARGEST_GROUP):
            rows = np.array(numbers[start : start + LARGEST_GROUP])
            yield rows, _stack(take(x, rows), dtype)


def take(x: Samples, rows: np.ndarray) -> Samples:
    """The samples of these numbers."""
    return x[rows] if isinstance(x, np.ndarray) else [x[int(row)] for row in rows]


def gather(
    count: int,
    shape: Shape,
    results: Iterable[tuple[np.ndarray, np.ndarray]],
    dtype: np.dtype,
) -> np.ndarray | list[np.ndarray]:
    """What groups gave, for `count` samples: [N, *shape], or a list where the shape is ragged."""
    if any(isinstance(extent, Ragged) for extent in shape):
        ordered: list[np.ndarray] = [np.empty(0, dtype)] * count
        for rows, group in results:
            for row, result in zip(rows, group, strict=True):
                ordered[row] = np.array(result)
        return ordered
    whole = np.empty((count, *(n for n in shape if isinstance(n, int))), dtype)
    for rows, group in results:
        whole[rows] = group
    return whole


def _stack(taken: Samples, dtype: np.dtype) -> np.ndarray:
    if isinstance(taken, np.ndarray) and taken.dtype != object:
        return taken.astype(dtype, copy=False)
    return np.stack([np.asarray(sample, dtype) for sample in taken])


def _expect(plan: Plan, shape: tuple[int, ...]) -> None:
    wanted = plan.input.shape
    fits = len(shape) == len(wanted) and all(
        isinstance(want, Ragged) or want == extent
        for want, extent in zip(wanted, shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"{plan.name} expects samples of shape {show_shape(wanted)}. Got {show_shape(shape)}."
        )
