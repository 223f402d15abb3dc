"""Samples run together in groups of one shape, and their results back in the samples' order.

Where an input of the plan is ragged, samples differ in length: those of equal lengths form groups,
so that no primitive has to know about padding.
"""

# B samples in a group, N samples in all

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from undivided.engines.engine import Samples, Several, inputs_of
from undivided.errors import ShapeError
from undivided.plan.plan import Input, Plan, Ragged, Shape, show_shape

__all__ = ["Samples", "gather", "groups", "take"]

LARGEST_GROUP = 256
"""How many samples run together at most, so that memory stays bounded."""


def groups(
    plan: Plan, x: Samples, dtype: np.dtype, inputs: Sequence[Input] | None = None
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """(the numbers of B samples, these samples as one array [B, …] for each input of the plan).

    `inputs` are those that x brings, where these are not all.
    """
    parts, inputs = inputs_of(x), plan.inputs if inputs is None else inputs
    if len(parts) != len(inputs):
        raise ShapeError(
            f"{plan.name} expects {len(inputs)} inputs, "
            f"{', '.join(repr(each.name) for each in inputs)}. Got {len(parts)}."
        )
    alike: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    if all(isinstance(part, np.ndarray) and part.dtype != object for part in parts):
        alike[tuple(part.shape[1:] for part in parts)] = list(range(len(x)))
    else:
        for number, sample in enumerate(zip(*parts, strict=True)):
            alike.setdefault(tuple(map(np.shape, sample)), []).append(number)
    for shapes, numbers in alike.items():
        for entry, shape in zip(inputs, shapes, strict=True):
            _expect(plan, entry, shape)
        for start in range(0, len(numbers), LARGEST_GROUP):
            rows = np.array(numbers[start : start + LARGEST_GROUP])
            yield (
                rows,
                {
                    entry.name: _stack(take(part, rows), dtype, entry)
                    for entry, part in zip(inputs, parts, strict=True)
                },
            )


def take(x: Samples, rows: np.ndarray) -> Samples:
    """The samples of these numbers."""
    if isinstance(x, Several):
        return Several(*(take(part, rows) for part in x.parts))
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


def _stack(taken: Any, dtype: np.dtype, entry: Input) -> np.ndarray:
    dtype = dtype if entry.vocabulary is None else np.dtype(np.int64)
    if isinstance(taken, np.ndarray) and taken.dtype != object:
        return taken.astype(dtype, copy=False)
    return np.stack([np.asarray(sample, dtype) for sample in taken])


def _expect(plan: Plan, entry: Input, shape: tuple[int, ...]) -> None:
    wanted = entry.shape
    fits = len(shape) == len(wanted) and all(
        isinstance(want, Ragged) or want == extent
        for want, extent in zip(wanted, shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"{plan.name} expects samples of shape {show_shape(wanted)}"
            f"{f' for {entry.name!r}' if len(plan.inputs) > 1 else ''}. Got {show_shape(shape)}."
        )
