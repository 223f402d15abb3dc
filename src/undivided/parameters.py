"""The arrays that training changes, as a model shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from undivided.errors import ArgumentError, suggest
from undivided.plan.plan import show_shape

__all__ = ["Parameters", "Substituted"]


class Parameters(Mapping[str, np.ndarray]):
    """Name → live, writable array: what is written into it, the next call uses.

    `model.parameters[name] = values` writes into the array as well; names cannot be added.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = arrays

    def __getitem__(self, name: str) -> np.ndarray:
        try:
            return self._arrays[name]
        except KeyError:
            known = suggest(str(name), self._arrays)
            raise KeyError(f"The model has no parameter {name!r}.{known}") from None

    def __setitem__(self, name: str, values: Any) -> None:
        array = self[name]
        if np.shape(values) != array.shape:
            raise ArgumentError(
                f"The parameter {name!r} has the shape {show_shape(array.shape)}. "
                f"Got {show_shape(np.shape(values))}.",
                argument=name,
            )
        array[...] = values

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {show_shape(array.shape)}" for name, array in self.items())
        return f"Parameters({shapes})"


class Substituted:
    """Other weights in place of a model's own, for as long as this context lasts."""

    def __init__(self, live: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
        self._changed = {
            name: values for name, values in wanted.items() if (live[name] != values).any()
        }
        self._live = live

    def __enter__(self) -> None:
        self._kept = {name: self._live[name].copy() for name in self._changed}
        for name, values in self._changed.items():
            self._live[name][...] = values

    def __exit__(self, *error: object) -> None:
        for name, values in self._kept.items():
            self._live[name][...] = values
