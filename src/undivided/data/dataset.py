"""Samples with their targets, and the one check that every source of them passes through.

Training trusts what it is given: a NaN in one pixel would show only as a loss that is NaN an epoch
later. So everything is checked here, once, and an error names the array and the first bad index.
Bytes stay bytes (MNIST is 47 MB, as float32 it would be 188 MB); the network rescales them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, Union

import numpy as np

from undivided.errors import ArgumentError, DataError

__all__ = ["Dataset", "Split", "check_split"]

MAX_RANK = 16  # far above any real sample; keeps below every limit that NumPy itself has
LARGEST_LABEL = 2**31 - 1  # labels are stored as int32: half the memory of NumPy's default
_BLOCK = 1 << 20  # values checked at a time: the check's own memory stays in the cache

Part = TypeVar("Part")
Other = TypeVar("Other")
PerInput = Union[Part, dict[str, Part]]  # noqa: UP007 - a variable of types takes no |
"""What there is for x, or where a network has several inputs for each of them by its name."""


@dataclass(frozen=True, eq=False, repr=False)
class Split:
    """N samples `x` `[N, ...]` (uint8 or float32) and their targets `y`.

    For a network with several inputs `x`, and `mask` where there is one, are dicts by the names
    of the inputs. `y` is `[N, ...]`: int32 for classes, of a sample or of each of its positions,
    or float32 for values to be met. `weights`, if there are any, are `[N]` or `[N, ...]` float32:
    how much each sample, or each position of it, counts.
    """

    x: PerInput[np.ndarray]
    y: np.ndarray
    weights: np.ndarray | None = None
    mask: PerInput[np.ndarray] | None = None
    """`[N, S]` bool, true for the tokens of x that count and do not only fill samples up."""

    def __len__(self) -> int:
        return len(next(iter(self.x.values())) if isinstance(self.x, dict) else self.x)

    def __getitem__(self, rows: slice) -> Split:
        """The samples `rows`, without a copy."""
        if not isinstance(rows, slice):
            raise TypeError(
                f"a Split is cut by a slice, such as split[:100]; got {type(rows).__name__}. "
                "For single samples use split.x[i] and split.y[i]."
            )
        weights = None if self.weights is None else self.weights[rows]
        mask = None if self.mask is None else _each(self.mask, lambda part: part[rows])
        return Split(_each(self.x, lambda part: part[rows]), self.y[rows], weights, mask)

    def __repr__(self) -> str:
        shown = _each(self.x, lambda part: f"{_extents(part)} {part.dtype}")
        if isinstance(shown, dict):
            shown = " and ".join(f"{name} {part}" for name, part in shown.items())
        return f"Split({len(self)} samples of {shown}, targets {self.y.dtype})"

    @property
    def sample_shape(self) -> PerInput[tuple[int, ...]]:
        """The shape of one sample."""
        return _each(self.x, lambda part: part.shape[1:])

    def take(self, n: int) -> Split:
        """The first `n` samples, without a copy."""
        if not 1 <= n <= len(self):
            raise ArgumentError(
                f"take: n must be from 1 to {len(self)}, the number of samples; got {n}.",
                argument="n",
            )
        return self[:n]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training split, perhaps a test split of the same kind, and a name for people.

    `class_names` are what the classes are called, `vocabulary` what the ids of x are.
    """

    train: Split
    test: Split | None
    name: str
    class_names: tuple[str, ...] | None = None
    vocabulary: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.class_names is not None and (self.classes or 0) > len(self.class_names):
            raise DataError(
                f"{self.name}: there are {len(self.class_names)} names of classes, and targets up "
                f"to {(self.classes or 0) - 1}. Name every class, in the order of their numbers."
            )
        if self.test is None:
            return
        train, test = (_kinds(split) for split in (self.train, self.test))
        for array in train:
            if train[array] != test.get(array):
                raise DataError(
                    f"{self.name}: {array} of the test split must be like {array} of the training "
                    f"split, {train[array]} per sample; it is {test.get(array, 'missing')}. "
                    "Prepare both in the same way."
                )

    @property
    def classes(self) -> int | None:
        """The number of classes, which is the largest label + 1; None if targets are floats."""
        if self.train.y.dtype.kind not in "iu":
            return None
        splits = [self.train] if self.test is None else [self.train, self.test]
        return 1 + max(int(split.y.max()) for split in splits)


def check_split(
    x: PerInput[np.ndarray],
    y: np.ndarray,
    where: str,
    *,
    names: tuple[str, str] = ("x", "y"),
    weights: np.ndarray | None = None,
    mask: PerInput[np.ndarray] | None = None,
    lengths: PerInput[np.ndarray] | None = None,
) -> Split:
    """`x` and `y` as a `Split` that can be trained on, or a `DataError` that says why not.

    `where` (a file, say) and `names` (of the two arrays) appear in errors. `x` may be uint8, a
    float of 16, 32 or 64 bits, which becomes float32, or other integers, which are ids and become
    int32. `y` may be any integers, which become int32, or such floats. Arrays that already are
    what is needed are taken as they are, without a copy. `mask` (0 or 1 for each token) or
    `lengths` say which tokens of x only fill samples up. Where x is a dict, so are they.
    """
    y = np.asarray(y)
    x_name, y_name = names
    parts = x if isinstance(x, dict) else {x_name: x}
    masks, counts = (_by_name(given, x_name) for given in (mask, lengths))
    found: dict[str, np.ndarray] = {}
    real: dict[str, np.ndarray] = {}
    for name, given in parts.items():
        part = np.asarray(given)
        check_declared(part.dtype, part.shape, y.dtype, y.shape, where, (name, y_name))
        found[name] = _as_samples(part, where, name)
        tokens = _as_mask(found[name], masks.get(name), counts.get(name), f"{where}: {name}")
        if tokens is not None:
            real[name] = tokens
    is_float = y.dtype.kind == "f"
    checked_y = _as_float32(y, where, y_name) if is_float else _as_labels(y, where, y_name)
    counted = None if weights is None else _as_weights(np.asarray(weights), checked_y, where)
    if isinstance(x, dict):
        return Split(found, checked_y, counted, real or None)
    return Split(found[x_name], checked_y, counted, real.get(x_name))


def check_declared(
    x_type: np.dtype,
    x_shape: tuple[int, ...],
    y_type: np.dtype,
    y_shape: tuple[int, ...],
    where: str,
    names: tuple[str, str] = ("x", "y"),
) -> None:
    """What `check_split` can tell from types and shapes: a file's header is enough for it."""
    x_name, y_name = names
    _check_x_type(x_type, f"{where}: {x_name}")
    _check_y_type(y_type, f"{where}: {y_name}")
    if len(x_shape) < 2:
        raise DataError(
            f"{where}: {x_name} must have an axis of samples and at least one more; its shape is "
            f"{x_shape}. For one number per sample use {x_name}.reshape(-1, 1)."
        )
    for name, shape in ((x_name, x_shape), (y_name, y_shape)):
        if len(shape) > MAX_RANK:
            raise DataError(
                f"{where}: {name} must have at most {MAX_RANK} axes; it has {len(shape)}."
            )
        if math.prod(shape) == 0:
            raise DataError(f"{where}: {name} is empty: its shape is {shape}.")
    if len(y_shape) == 0 or x_shape[0] != y_shape[0]:
        raise DataError(
            f"{where}: {x_name} and {y_name} must have one entry per sample, in the same order; "
            f"their shapes are {x_shape} and {y_shape}."
        )


def _check_x_type(dtype: np.dtype, what: str) -> None:
    if dtype.kind in "iu" or _is_float(dtype):
        return
    hint = " Store it with .astype('uint8')." if dtype.kind == "b" else ""
    raise DataError(
        f"{what} must be uint8, float32, float64 or float16, or integers, which are ids; "
        f"it is {dtype}.{hint}",
    )


def _check_y_type(dtype: np.dtype, what: str) -> None:
    if _is_float(dtype):
        return
    if dtype.kind not in "iub":
        hint = ""
        if dtype.kind in "USO":
            hint = " Names become numbers by names, y = numpy.unique(y, return_inverse=True)."
        raise DataError(
            f"{what} must hold integers (the class of each sample) or floats (values to be met); "
            f"it is {dtype}.{hint}"
        )


def _is_float(dtype: np.dtype) -> bool:
    # Not kind alone: a long double has more digits than float32 could be said to keep.
    return dtype.kind == "f" and dtype.itemsize <= 8


def _as_float32(array: np.ndarray, where: str, name: str) -> np.ndarray:
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is found below
        values = np.ascontiguousarray(array, dtype=np.float32)
    flat = values.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        finite = np.isfinite(flat[start : start + _BLOCK])
        if not finite.all():
            index = np.unravel_index(start + int(finite.argmin()), values.shape)
            found = float(array[index])
            problem = "does not fit into float32" if math.isfinite(found) else "is not finite"
            raise DataError(
                f"{where}: {_place(name, index)} is {found}, which {problem}. "
                "Repair that sample or leave it out."
            )
    return values


def _as_samples(x: np.ndarray, where: str, name: str) -> np.ndarray:
    """Bytes as they are, other integers as ids, int32, all else float32."""
    if x.dtype == np.uint8:
        return np.ascontiguousarray(x)
    if x.dtype.kind not in "iu":
        return _as_float32(x, where, name)
    outside = x > LARGEST_LABEL
    if x.dtype.kind == "i":
        outside |= x < 0
    if outside.any():
        index = np.unravel_index(int(outside.argmax()), x.shape)
        raise DataError(
            f"{where}: {_place(name, index)} is {int(x[index])}; integers in {name} are ids, from "
            f"0 to {LARGEST_LABEL}. Numbers: store them with .astype('float32')."
        )
    return np.ascontiguousarray(x, dtype=np.int32)


def _as_mask(
    x: np.ndarray, mask: np.ndarray | None, lengths: np.ndarray | None, where: str
) -> np.ndarray | None:
    """Which tokens count, as [N, S] bool."""
    if mask is None and lengths is None:
        return None
    from undivided.padding import real_tokens
    from undivided.plan.plan import Input

    return real_tokens(x, Input("x", x.shape[1:]), mask, lengths, where)


def _as_weights(weights: np.ndarray, y: np.ndarray, where: str) -> np.ndarray:
    """How much samples, or positions of them, count."""
    if weights.dtype.kind not in "iub" and not _is_float(weights.dtype):
        raise DataError(f"{where}: weights must be numbers ≥ 0; they are {weights.dtype}.")
    if weights.shape not in (y.shape[:1], y.shape, y.shape[:-1]):
        raise DataError(
            f"{where}: weights must have one number for each sample, shape {y.shape[:1]}, or for "
            f"each position of y, whose shape is {y.shape}; their shape is {weights.shape}."
        )
    values = _as_float32(weights, where, "weights")
    if (values < 0).any():
        index = np.unravel_index(int((values < 0).argmax()), values.shape)
        raise DataError(
            f"{where}: {_place('weights', index)} is {float(values[index])}; a weight is a number "
            "≥ 0. A sample of weight 0 does not count."
        )
    return values


def _as_labels(array: np.ndarray, where: str, name: str) -> np.ndarray:
    if array.dtype.kind != "b":
        # Positions that do not count may be marked by a number below 0; samples are left out.
        lowest = 0 if array.ndim == 1 else -LARGEST_LABEL
        bad = array > LARGEST_LABEL
        if array.dtype.kind == "i":
            bad |= array < lowest
        if bad.any():
            index = np.unravel_index(int(bad.argmax()), array.shape)
            raise DataError(
                f"{where}: {_place(name, index)} is {int(array[index])}; a label must be a class "
                f"from 0 to {LARGEST_LABEL}. Number the classes from 0, or leave that sample out."
            )
    return np.ascontiguousarray(array, dtype=np.int32)


def _place(name: str, index: tuple[np.intp, ...]) -> str:
    return f"{name}[{', '.join(str(int(i)) for i in index)}]"


def _by_name(given: PerInput[np.ndarray] | None, name: str) -> dict[str, np.ndarray]:
    if given is None:
        return {}
    return given if isinstance(given, dict) else {name: given}


def _each(of: PerInput[Part], function: Callable[[Part], Other]) -> PerInput[Other]:
    """A function of x, or of each input."""
    if isinstance(of, dict):
        return {name: function(part) for name, part in of.items()}
    return function(of)


def _kinds(split: Split) -> dict[str, str]:
    """Array → what it has for a sample."""
    parts = split.x if isinstance(split.x, dict) else {"x": split.x}
    return {name: _kind(array) for name, array in {**parts, "y": split.y}.items()}


def _kind(array: np.ndarray) -> str:
    shape = _extents(array)
    return f"{shape} {array.dtype}" if shape else str(array.dtype)


def _extents(array: np.ndarray) -> str:
    return "x".join(map(str, array.shape[1:]))
