"""Samples as the native side reads them: an array an input, end to end where lengths differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from undivided import _native
from undivided.engines.engine import Packed, Results, Samples, inputs_of
from undivided.plan.plan import Input, Ragged

__all__ = ["NOWHERE", "Batch", "end_to_end", "readable", "starts_of"]

NOWHERE = np.zeros(0, np.int64)


class Batch:
    """Samples as the native side wants them: an array an input, and row starts where lengths
    differ."""

    def __init__(self, inputs: Sequence[Input], x: Samples) -> None:
        self.count = len(x)
        self.longest = 1
        """The most rows of a sample with a length of its own."""
        self.x: list[np.ndarray] = []
        self.lengths: dict[str, np.ndarray] = {}
        """Of each ragged axis, by its name."""
        self.first_rows: list[np.ndarray | None] = []
        for entry, part in zip(inputs, inputs_of(x), strict=True):
            axis = entry.shape[0]
            if not isinstance(axis, Ragged):
                self.x.append(readable(np.asarray(part), entry))
                self.first_rows.append(None)
                continue
            rows, lengths = end_to_end(part, entry)
            self.longest = max(self.longest, int(lengths.max(initial=1)))
            self.lengths[axis.name] = lengths
            self.first_rows.append(starts_of(lengths))
            self.x.append(readable(rows, entry))

    def samples(self) -> _native.Samples:
        return _native.Samples(self.x, self.first_rows)

    def _sizes(self, shape: tuple[int | Ragged, ...]) -> np.ndarray | int:
        """Numbers in each sample's part of an output: an array where lengths differ."""
        size: np.ndarray | int = 1
        for extent in shape:
            size = size * (self.lengths[extent.name] if isinstance(extent, Ragged) else extent)
        return size

    def starts(self, shape: tuple[int | Ragged, ...]) -> np.ndarray:
        """Where each sample begins in an output; nothing where all have the same size."""
        sizes = self._sizes(shape)
        return starts_of(sizes) if isinstance(sizes, np.ndarray) else NOWHERE

    def room(
        self, shapes: Sequence[tuple[int | Ragged, ...]]
    ) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Empty outputs of these shapes a sample, and where each sample begins in them."""
        arrays, starts = [], []
        for shape in shapes:
            sizes = self._sizes(shape)
            if isinstance(sizes, np.ndarray):
                arrays.append(np.empty(int(sizes.sum()), np.float32))
            else:
                fixed = [n for n in shape if isinstance(n, int)]
                arrays.append(np.empty((self.count, *fixed), np.float32))
            starts.append(self.starts(shape))
        return arrays, arrays, starts

    def split(
        self, arrays: list[np.ndarray], shapes: Sequence[tuple[int | Ragged, ...]]
    ) -> list[Results]:
        """Outputs as the caller wants them: an array, or a list where samples differ in length."""
        results: list[Results] = []
        for array, shape in zip(arrays, shapes, strict=True):
            sizes = self._sizes(shape)
            if not isinstance(sizes, np.ndarray):
                results.append(array)
                continue
            pieces = np.split(array, np.cumsum(sizes)[:-1]) if self.count else []
            results.append([piece.reshape(self._shape(i, shape)) for i, piece in enumerate(pieces)])
        return results

    def _shape(self, sample: int, shape: tuple[int | Ragged, ...]) -> list[int]:
        """The shape of one sample's part of an output."""
        return [int(self.lengths[e.name][sample]) if isinstance(e, Ragged) else e for e in shape]

    def joined(self, dy: Samples) -> np.ndarray:
        """The gradient of the output, sample after sample."""
        if isinstance(dy, np.ndarray) and dy.dtype != object:
            return np.ascontiguousarray(dy, np.float32)
        return np.concatenate([np.asarray(d, np.float32).ravel() for d in dy])


def end_to_end(part: Any, entry: Input) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all samples, one sample after the other, and how many each has."""
    if isinstance(part, Packed):
        return part.rows, part.lengths
    if isinstance(part, np.ndarray) and part.dtype != object:
        rows = part.reshape(part.shape[0] * part.shape[1], *part.shape[2:])
        return rows, np.full(len(part), part.shape[1], np.int64)
    lengths = np.array([len(sample) for sample in part], np.int64)
    if not len(part):
        return np.zeros((0, *(n for n in entry.shape[1:] if isinstance(n, int)))), lengths
    return np.concatenate([readable(np.asarray(sample), entry) for sample in part]), lengths


def readable(x: np.ndarray, entry: Input) -> np.ndarray:
    """Bytes stay bytes; ids become int32, every other number float32."""
    other = np.float32 if entry.vocabulary is None else np.int32
    return np.ascontiguousarray(x, np.uint8 if x.dtype == np.uint8 else other)


def starts_of(sizes: np.ndarray) -> np.ndarray:
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts
