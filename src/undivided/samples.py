"""What a model is handed — samples, seeds of gradients — checked where it comes in.

Engines trust their arrays. So every method of a model asks here first, and whoever hands it a
single picture, token ids or a NaN reads what was expected and what came, not a shape of BLAS.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from undivided.engines.engine import Packed, Samples, Several
from undivided.errors import DataError
from undivided.plan.plan import Input, Ragged, show_shape

__all__ = [
    "Samples",
    "checked_gradient",
    "checked_samples",
    "longest_sample",
    "pair_of",
    "taken",
]

# N samples; x is [N, *shape of the network's input]. Where the input has an axis of no fixed
# length, x may also be a list of N arrays, each of its own length. Targets: `targets.py`.

_BLOCK = 1 << 20  # values looked at a time, so that the check's own memory stays in the cache


def pair_of(data: Any, name: str) -> tuple[Any, Any, Any]:
    """The x, y and weights (or None) of a Split, of a pair or of three."""
    if hasattr(data, "x") and hasattr(data, "y"):
        return data.x, data.y, getattr(data, "weights", None)
    if isinstance(data, (tuple, list)) and len(data) in (2, 3):
        return (*data, None) if len(data) == 2 else tuple(data)
    hint = ""
    if hasattr(data, "train"):
        hint = f" A data set has two: {name} is its .train or its .test."
    raise DataError(
        f"{name} must be a split with .x and .y, a pair (x, y), or (x, y, weights). "
        f"Got {type(data).__name__}.{hint}"
    )


def checked_samples(
    x: Any, entry: Input, dtype: np.dtype, where: str = "x"
) -> np.ndarray | list[np.ndarray]:
    """`x` as an engine wants it: contiguous, of that shape, and either bytes or numbers of `dtype`,
    finite, or ids that the input knows."""
    ragged = any(isinstance(extent, Ragged) for extent in entry.shape)
    if ragged and (isinstance(x, (list, tuple)) or getattr(x, "dtype", None) == np.object_):
        return _checked_list(x, entry, dtype, where)
    array = _as_array(x, where)
    _check_type(array, entry, where)
    _check_shape(array.shape, entry, where)
    return _converted(array, entry, dtype, where)


def _checked_list(x: Sequence[Any], entry: Input, dtype: np.dtype, where: str) -> list[np.ndarray]:
    """Samples that differ in length, one array each."""
    arrays = [_as_array(sample, f"{where}[{i}]") for i, sample in enumerate(x)]
    for i, array in enumerate(arrays):
        _check_type(array, entry, f"{where}[{i}]")
        if not _fits(array.shape, entry.shape):
            raise DataError(
                f"{where}[{i}] must have the shape {show_shape(entry.shape)}, with at least one "
                f"row{_at_most(entry)}. Its shape is {show_shape(array.shape)}."
            )
    if any(array.dtype != np.uint8 for array in arrays) and entry.vocabulary is None:
        # One type for all.
        arrays = [array.astype(dtype) if array.dtype == np.uint8 else array for array in arrays]
    if not arrays:
        return []
    try:  # all at once, which is several times as fast as one after the other
        together = _converted(np.concatenate(arrays), entry, dtype, where)
    except DataError:
        for i, array in enumerate(arrays):  # the same again, to say in which it is
            _converted(array, entry, dtype, f"{where}[{i}]")
        raise
    return Packed.of_rows(together, np.array([len(array) for array in arrays]))


def _at_most(entry: Input) -> str:
    axis = entry.shape[0]
    return f", at most {axis.most}" if isinstance(axis, Ragged) and axis.most else ""


def _checked_ids(array: np.ndarray, vocabulary: int, where: str) -> np.ndarray:
    outside = array >= vocabulary
    if array.dtype.kind == "i":
        outside |= array < 0
    if outside.any():
        index = np.unravel_index(int(outside.argmax()), array.shape)
        place = ", ".join(str(int(i)) for i in index)
        raise DataError(
            f"{where}[{place}] is {int(array[index])}, and the network's ids are 0 to "
            f"{vocabulary - 1}. Make the input_dim of its Embedding larger, or correct the data."
        )
    return np.ascontiguousarray(array, dtype=np.int32)


def _converted(array: np.ndarray, entry: Input, dtype: np.dtype, where: str) -> np.ndarray:
    if entry.vocabulary is not None:
        return _checked_ids(array, entry.vocabulary, where)
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is found below
        values = np.ascontiguousarray(array, dtype=dtype)
    _check_finite(values, array, where)
    return values


def taken(x: Samples, rows: np.ndarray) -> Samples:
    """The samples of those numbers."""
    if isinstance(x, Several):
        return Several(*(taken(part, rows) for part in x.parts))
    return x[rows] if isinstance(x, np.ndarray) else [x[int(row)] for row in rows]


def longest_sample(x: Samples) -> int:
    """The extent of the first axis of the longest sample."""
    if isinstance(x, Several):
        return max(longest_sample(part) for part in x.parts)
    if isinstance(x, np.ndarray):
        return x.shape[1] if x.ndim > 1 else 1
    return max((len(sample) for sample in x), default=1)


def checked_gradient(dy: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """`dy` as an engine wants it: the shape of the output that it belongs to."""
    array = _as_array(dy, "dy")
    if array.dtype.kind not in "fiu":
        raise DataError(f"dy must hold numbers; it is {array.dtype}.")
    if array.shape != shape:
        raise DataError(
            f"dy must have the shape of the output that it is the gradient of, "
            f"{show_shape(shape)}; its shape is {show_shape(array.shape)}."
        )
    return np.ascontiguousarray(array, dtype=dtype)


def _as_array(value: Any, where: str) -> np.ndarray:
    try:
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{where} cannot be read as an array: {error}") from error


def _check_type(array: np.ndarray, entry: Input, where: str) -> None:
    if entry.vocabulary is not None:
        if array.dtype.kind in "iu":
            return
        hint = " Ids that are whole: .astype('int32')." if array.dtype.kind == "f" else ""
        raise DataError(
            f"{where} must hold ids, whole numbers, as the network begins with an Embedding; "
            f"it is {array.dtype}.{hint}"
        )
    if array.dtype == np.uint8 or (array.dtype.kind == "f" and array.dtype.itemsize <= 8):
        return
    hint = ""
    if array.dtype.kind in "iu":
        hint = " Numbers: .astype('float32'). Ids: let the network begin with an Embedding."
    elif array.dtype.kind == "b":
        hint = " Use .astype('uint8')."
    raise DataError(f"{where} must be uint8 or floating point; it is {array.dtype}.{hint}")


def _check_shape(found: tuple[int, ...], entry: Input, where: str) -> None:
    wanted = entry.shape
    if _fits(found[1:], wanted):
        return
    hint = ""
    if _fits(found, wanted):
        hint = " This is one sample without the axis of samples: x[None] adds it."
    elif found and len(found[1:]) != len(wanted) and _size(found[1:]) == _size(wanted):
        hint = " The numbers are as many: reshape them."
    raise DataError(
        f"{where} must have the shape (samples, {', '.join(map(str, wanted))}), as the network's "
        f"input is {show_shape(wanted)}{_at_most(entry)}. Its shape is {show_shape(found)}.{hint}"
    )


def _fits(found: tuple[int, ...], wanted: tuple[int | Ragged, ...]) -> bool:
    return len(found) == len(wanted) and all(
        1 <= n <= (extent.most or n) if isinstance(extent, Ragged) else n == extent
        for n, extent in zip(found, wanted, strict=True)
    )


def _size(shape: tuple[int | Ragged, ...]) -> int:
    return math.prod(n for n in shape if isinstance(n, int))


def _check_finite(values: np.ndarray, original: np.ndarray, where: str) -> None:
    flat = values.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        finite = np.isfinite(flat[start : start + _BLOCK])
        if finite.all():
            continue
        index = np.unravel_index(start + int(finite.argmin()), values.shape)
        found = float(original[index])
        problem = f"does not fit into {values.dtype}" if math.isfinite(found) else "is not finite"
        place = ", ".join(str(int(i)) for i in index)
        raise DataError(
            f"{where}[{place}] is {found}, which {problem}. Repair that sample or leave it out."
        )
