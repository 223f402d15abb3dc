"""Targets: what outputs are to meet, row by row, and how much each row counts.

The last axis of an output is a row, and a row has one loss (`training/losses.py`). Engines get
the rows of all samples end to end, so that samples of different lengths are nothing special.
"""

# N samples, R rows of all of them, C numbers in a row

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from undivided.errors import ArgumentError, DataError
from undivided.plan.plan import Plan, Ragged, Shape, show_shape

__all__ = ["Targets", "as_targets", "checked_targets", "weighted_by_class"]

SUM_TOLERANCE = 1e-3
"""How far the probabilities of a row may be from adding up to 1."""


@dataclass(frozen=True, eq=False)
class Targets:
    """The targets of N samples.

    `values` are [R] class numbers (int32) or [R, C] numbers (floats), `weights` [R] what each row
    counts, None where each counts 1. Sample i has the rows from `starts[i]` to `starts[i + 1]`,
    or without `starts` `rows` of them.
    """

    values: np.ndarray
    count: int
    rows: int = 1
    starts: np.ndarray | None = None
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return self.count

    @cached_property
    def totals(self) -> np.ndarray | None:
        """[N] what each sample counts, in float64; None where each counts `rows`."""
        if self.weights is None:
            return None if self.starts is None else np.diff(self.starts).astype(np.float64)
        if self.starts is None:
            return self.weights.reshape(self.count, -1).sum(axis=1, dtype=np.float64)
        sums = np.concatenate([[0.0], np.cumsum(self.weights, dtype=np.float64)])
        return sums[self.starts[1:]] - sums[self.starts[:-1]]

    def weight_of(self, samples: np.ndarray | None = None) -> float:
        """What these samples count together, or all."""
        if self.totals is None:
            return float(self.rows * (self.count if samples is None else len(samples)))
        return float((self.totals if samples is None else self.totals[samples]).sum())

    def take(self, samples: np.ndarray) -> Targets:
        """The targets of these samples."""
        samples = np.asarray(samples, np.int64)
        if self.starts is None:
            rows = (samples[:, None] * self.rows + np.arange(self.rows)).ravel()
            starts = None
        else:
            lengths = np.diff(self.starts)[samples]
            starts = np.concatenate([[0], np.cumsum(lengths)])
            rows = np.arange(starts[-1]) + np.repeat(self.starts[samples] - starts[:-1], lengths)
        weights = None if self.weights is None else self.weights[rows]
        return Targets(self.values[rows], len(samples), self.rows, starts, weights)


def weighted_by_class(
    targets: Targets, weights: Mapping[int, float] | Sequence[float], plan: Plan
) -> Targets:
    """Targets of which each counts, besides, as much as its class does."""
    kind, classes = plan.loss.targets, plan.output.width
    if kind not in ("classes", "distributions"):
        raise ArgumentError(
            f"class_weights are for classes; the targets of {plan.loss} are {kind}. "
            "Give weights for samples: fit((x, y, weights)).",
            argument="class_weights",
        )
    if isinstance(weights, Mapping):
        unknown = [key for key in weights if key not in range(classes)]
        each = [weights.get(c, 1.0) for c in range(classes)]
    else:
        unknown, each = [], list(weights)
    by_class = np.asarray(each, np.float32)
    if unknown or by_class.shape != (classes,) or not (by_class >= 0).all():
        raise ArgumentError(
            f"The 'class_weights' of fit must be a number ≥ 0 for each of {classes} classes, or "
            f"for some of them by number. Got {str(weights)[:80]}.",
            argument="class_weights",
        )
    values = targets.values if targets.values.ndim == 1 else targets.values.argmax(axis=1)
    given = by_class[values]
    return replace(targets, weights=given if targets.weights is None else given * targets.weights)


def as_targets(plan: Plan, y: Any, count: int) -> Targets:
    """What an engine is handed as y: Targets as they are, or an array or list of `count`."""
    if isinstance(y, Targets):
        return y
    return checked_targets(y, plan, count, "y")


def checked_targets(
    y: Any,
    plan: Plan,
    count: int,
    where: str = "y",
    weights: Any = None,
    lengths: Sequence[int] | None = None,
) -> Targets:
    """`y` as the targets of `count` samples, or a DataError that says what is expected.

    `lengths` are those of the samples, where outputs have as many rows as they.
    """
    wanted = _Wanted(plan, count, where)
    if wanted.ragged and isinstance(y, (list, tuple)) and count:
        pieces = [np.asarray(piece) for piece in y]
        if len(pieces) != count:
            raise wanted.refuse(f"its length is {len(pieces)}")
        for i, piece in enumerate(pieces):
            wanted.check_type(piece.dtype, f"{where}[{i}]")
        shaped = [wanted.piece(piece, i) for i, piece in enumerate(pieces)]
        found = [len(piece) for piece in shaped]
        values = np.concatenate(shaped)
    else:
        array = _as_array(y, where)
        wanted.check_type(array.dtype, where)
        values, each = wanted.whole(array)
        found = [each] * count
    if lengths is not None:
        _check_lengths(found, lengths, where)
    starts = None
    rows = found[0] if found else 1
    if wanted.ragged:
        starts = np.concatenate([[0], np.cumsum(found)]).astype(np.int64)
        rows = 1
    values, counted = wanted.converted(values, starts, rows)
    given = None if weights is None else _row_weights(weights, count, found, where)
    if counted is not None:
        given = counted.astype(np.float32) if given is None else given * counted
    targets = Targets(values, count, rows, starts, given)
    if count and targets.weight_of() <= 0:
        raise DataError(f"No target of {where} counts: all are ignored or have the weight 0.")
    return targets


class _Wanted:
    """What a plan's loss wants as targets, and the words for it."""

    def __init__(self, plan: Plan, count: int, where: str) -> None:
        self.loss, self.count, self.where = plan.loss, count, where
        self.output = plan.output.shape
        self.width = plan.output.width
        self.by_class = plan.loss.targets == "classes"
        self.shape: Shape = self.output[:-1] if self.by_class else self.output
        self.ragged = any(isinstance(extent, Ragged) for extent in self.output)

    def __str__(self) -> str:
        each = "sample" if len(self.output) == 1 else "position"
        shape = ", ".join(map(str, (self.count, *self.shape)))
        shape = f"({shape}{',' * (not self.shape)})"
        return {
            "classes": f"one class for each {each}, shape {shape}",
            "distributions": f"the probabilities of the {self.width} classes for each {each} "
            f"(one-hot rows, say), shape {shape}",
            "shares": f"a number from 0 to 1 for each output, shape {shape}",
            "values": f"a number for each output, shape {shape}",
        }[self.loss.targets]

    def refuse(self, found: str, hint: str = "") -> DataError:
        return DataError(f"{self.where} must have {self}; {found}.{hint}")

    def check_type(self, dtype: np.dtype, where: str) -> None:
        if self.by_class:
            if dtype.kind in "iub":
                return
            hint = " Class numbers: .astype('int32')." if dtype.kind == "f" else ""
            raise DataError(f"{where} must hold whole class numbers; it is {dtype}.{hint}")
        if dtype.kind in "iubf" and dtype.itemsize <= 8:
            return
        raise DataError(f"{where} must hold numbers; it is {dtype}.")

    def whole(self, array: np.ndarray) -> tuple[np.ndarray, int]:
        """One array for all samples: its rows end to end, and how many a sample has."""
        shape = (self.count, *self.shape)
        if not self.by_class and self.width == 1 and len(array.shape) == len(shape) - 1:
            array = array[..., None]  # a number for each sample, without the axis of one
        fits = len(array.shape) == len(shape) and all(
            isinstance(want, Ragged) or want == n
            for want, n in zip(shape, array.shape, strict=True)
        )
        if not fits:
            raise self.refuse(f"its shape is {show_shape(array.shape)}", self._hint(array))
        rows = math.prod(array.shape[1:] if self.by_class else array.shape[1:-1])
        return self._rows(array), rows

    def piece(self, array: np.ndarray, number: int) -> np.ndarray:
        """The targets of one sample, as rows."""
        if not self.by_class and self.width == 1 and array.ndim == len(self.shape) - 1:
            array = array[..., None]
        fits = array.ndim == len(self.shape) and all(
            isinstance(want, Ragged) or want == n
            for want, n in zip(self.shape, array.shape, strict=True)
        )
        if not fits:
            raise DataError(
                f"{self.where}[{number}] must have the shape {show_shape(self.shape)}; "
                f"its shape is {show_shape(array.shape)}."
            )
        return self._rows(array)

    def _rows(self, array: np.ndarray) -> np.ndarray:
        return array.reshape(-1) if self.by_class else array.reshape(-1, self.width)

    def _hint(self, array: np.ndarray) -> str:
        if self.by_class and array.ndim == len(self.shape) + 2 and array.shape[-1] == self.width:
            return (
                " One-hot rows become classes by .argmax(axis=-1), or the loss "
                "'categorical_crossentropy' takes them."
            )
        if self.loss.targets == "distributions" and array.ndim == len(self.shape):
            return (
                f" Class numbers become one-hot rows by numpy.eye({self.width})[y], or the loss "
                "'sparse_categorical_crossentropy' takes them."
            )
        if array.ndim == 1 and len(self.output) > 1:
            return (
                " For one target a sample, put GlobalAveragePooling1D() or Flatten() before the "
                "last layer."
            )
        return ""

    def converted(
        self, values: np.ndarray, starts: np.ndarray | None, rows: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows as engines take them, and where some do not count, which do."""
        if self.by_class:
            return self._classes(values, starts, rows)
        numbers = np.ascontiguousarray(values, np.float32)
        bad = ~np.isfinite(numbers).all(axis=1)
        if bad.any():
            raise DataError(
                f"{self._place(int(bad.argmax()), starts, rows)} holds a number that is not "
                "finite. Repair that sample or leave it out."
            )
        if self.loss.targets == "values":
            return numbers, None
        outside = (numbers < 0) | (numbers > 1)
        if outside.any():
            row, column = (int(i) for i in np.unravel_index(outside.argmax(), numbers.shape))
            raise DataError(
                f"{self._place(row, starts, rows)} holds {numbers[row, column]:g}; the targets of "
                f"{self.loss} are from 0 to 1."
            )
        if self.loss.targets == "distributions":
            sums = numbers.sum(axis=1, dtype=np.float64)
            wrong = np.abs(sums - 1) > SUM_TOLERANCE
            if wrong.any():
                row = int(wrong.argmax())
                raise DataError(
                    f"{self._place(row, starts, rows)} adds up to {sums[row]:g}; the probabilities "
                    "of the classes add up to 1. For outputs that are each a yes or no of its own "
                    "the loss is 'binary_crossentropy'."
                )
        return numbers, None

    def _classes(
        self, values: np.ndarray, starts: np.ndarray | None, rows: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        ignore = getattr(self.loss, "ignore", None)
        counted = None
        if ignore is not None and (values == ignore).any():
            counted = values != ignore
            values = np.where(counted, values, 0)
        outside = values >= self.width
        if values.dtype.kind == "i":
            outside |= values < 0
        if outside.any():
            row = int(outside.argmax())
            raise DataError(
                f"{self._place(row, starts, rows)} is class {int(values[row])}, but the network "
                f"has {self.width} outputs: classes 0 to {self.width - 1}. Give its last layer as "
                "many as there are classes, or correct the data."
            )
        return np.ascontiguousarray(values, np.int32), counted

    def _place(self, row: int, starts: np.ndarray | None, rows: int) -> str:
        """`y[3]`, or with positions `y[3, 17]`."""
        if len(self.output) == 1:
            return f"{self.where}[{row}]"
        if starts is None:
            extents = [n for n in self.output[:-1] if isinstance(n, int)]
            inside = np.unravel_index(row % rows, extents)
            place = ", ".join(str(int(i)) for i in inside)
            return f"{self.where}[{row // rows}, {place}]"
        sample = int(np.searchsorted(starts, row, side="right")) - 1
        return f"{self.where}[{sample}, {row - int(starts[sample])}]"


def _row_weights(weights: Any, count: int, rows: Sequence[int], where: str) -> np.ndarray:
    """What each row counts, from a number for each sample or one for each row."""
    name = f"the weights of {where}"
    if isinstance(weights, (list, tuple)) and count and np.ndim(weights[0]):
        flat = np.concatenate([np.asarray(piece).reshape(-1) for piece in weights])
        matches = [np.size(piece) for piece in weights] == list(rows)
    else:
        flat = _as_array(weights, name)
        matches = flat.size == sum(rows) and len(flat) == count
        if flat.shape == (count,):
            flat, matches = np.repeat(flat, rows), True
        flat = flat.reshape(-1)
    if not matches:
        shape = "uneven" if isinstance(weights, (list, tuple)) else show_shape(np.shape(weights))
        raise DataError(
            f"{name} must be a number for each of {count} samples, shape ({count},), or one for "
            f"each position; their shape is {shape}."
        )
    if flat.dtype.kind not in "iubf":
        raise DataError(f"{name} must be numbers; they are {flat.dtype}.")
    with np.errstate(over="ignore"):  # what becomes infinite is refused
        flat = np.ascontiguousarray(flat, np.float32)
    if not np.isfinite(flat).all() or (flat < 0).any():
        raise DataError(f"{name} must be finite numbers ≥ 0.")
    return np.where(flat < np.finfo(np.float32).tiny, np.float32(0), flat)  # as engines take them


def _check_lengths(found: Sequence[int], lengths: Sequence[int], where: str) -> None:
    for i, (n, expected) in enumerate(zip(found, lengths, strict=True)):
        if n != expected:
            raise DataError(
                f"{where}[{i}] must have a target for each of the sample's {expected} positions; "
                f"it has {n}."
            )


def _as_array(value: Any, where: str) -> np.ndarray:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{where} cannot be read as an array: {error}") from error
