"""Starting from weights that are there: those of other model files, or arrays by name.

A report says of every parameter whether it was found, and of what was given and not used why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undivided.errors import ArgumentError, ModelFileError, suggest
from undivided.plan.plan import show_shape
from undivided.torch_states import array_of

__all__ = ["Match", "WeightsReport", "load_into", "read_tensors"]

Match = Mapping[str, str] | Callable[[str], str | None]
"""For a parameter of the model the name under which the file has it: a mapping, of which `*` at the
end stands for the same rest on both sides, or a function that may say None."""


@dataclass(frozen=True)
class WeightsReport:
    """What `load_weights` did: `str(report)` is for reading."""

    matched: dict[str, str] = field(default_factory=dict)
    """Parameter → the tensor that it now holds."""
    unmatched: dict[str, str] = field(default_factory=dict)
    """Parameter → why it stayed as it was."""
    unused: tuple[str, ...] = ()
    """Tensors that no parameter asked for."""

    def __str__(self) -> str:
        total = len(self.matched) + len(self.unmatched)
        lines = [f"{len(self.matched)} of {total} parameters were loaded."]
        lines += [f"  {name} stays as it was: {why}" for name, why in self.unmatched.items()]
        if self.unused:
            lines.append(f"Not used: {', '.join(self.unused)}.")
        return "\n".join(lines)


def read_tensors(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """All tensors of a safetensors file, whoever wrote it."""
    from safetensors import deserialize

    file = Path(os.path.expanduser(path))
    if not file.is_file():
        raise ModelFileError(f"{file}: there is no such file.")
    try:
        tensors = deserialize(file.read_bytes())
    except Exception as error:  # whatever the safetensors package raises on a damaged file
        raise ModelFileError(
            f"{file}: expected a whole safetensors file, found: {error}. Copy or save it again."
        ) from error
    ordered = sorted(tensors, key=lambda entry: entry[0])
    return {name: _decoded(tensor, name, file) for name, tensor in ordered}


_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BOOL": "?", "I8": "i1", "U8": "u1"}
_TYPES |= {f"{kind}{bits}": f"<{kind.lower()}{bits // 8}" for kind in "IU" for bits in (16, 32, 64)}


def _decoded(tensor: Mapping[str, Any], name: str, file: Path) -> np.ndarray:
    kind, shape, data = tensor["dtype"], tensor["shape"], bytes(tensor["data"])
    if kind == "BF16":  # the upper half of a float32
        upper = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return upper.view(np.float32).reshape(shape)
    if kind not in _TYPES:
        raise ModelFileError(
            f"{file}: the tensor {name!r} is of the type {kind}, which is not read. Save it as F32."
        )
    return np.frombuffer(data, _TYPES[kind]).reshape(shape)


def load_into(
    parameters: Mapping[str, np.ndarray],
    tensors: Mapping[str, Any],
    match: Match | None = None,
) -> WeightsReport:
    """Copy tensors into the parameters that they match in name and shape."""
    name_of = _names(match, parameters)
    matched: dict[str, str] = {}
    unmatched: dict[str, str] = {}
    values: dict[str, np.ndarray] = {}
    for name, parameter in parameters.items():
        theirs = name_of(name)
        if theirs is None:
            unmatched[name] = "match has no name for it."
        elif theirs not in tensors:
            unmatched[name] = f"there is no tensor {theirs!r}."
        else:
            found = array_of(tensors[theirs])
            if found.shape != parameter.shape:
                unmatched[name] = (
                    f"{theirs!r} has the shape {show_shape(found.shape)}, "
                    f"and it {show_shape(parameter.shape)}."
                )
            elif found.dtype.kind not in "fiu":
                unmatched[name] = f"{theirs!r} holds {found.dtype}, which are no numbers to learn."
            elif not np.isfinite(cast := _cast(found, parameter.dtype)).all():
                unmatched[name] = (
                    f"{theirs!r} holds {found.dtype} that are not all finite as {parameter.dtype}."
                )
            else:
                matched[name], values[name] = theirs, cast
    for name, value in values.items():
        parameters[name][...] = value
    used = set(matched.values())
    return WeightsReport(matched, unmatched, tuple(name for name in tensors if name not in used))


def _cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore"):  # what becomes infinite is refused
        return values.astype(dtype)


def _names(match: Match | None, parameters: Mapping[str, Any]) -> Callable[[str], str | None]:
    if match is None:
        return lambda name: name
    if callable(match):
        return match
    if not isinstance(match, Mapping):
        raise ArgumentError(
            "The 'match' of load_weights must be a mapping from names here to names there, or a "
            f"function. Got {match!r:.80}.",
            argument="match",
        )
    given = dict(match)
    for ours in given:
        beginning = ours[:-1] if ours.endswith("*") else None
        if not any(
            n == ours or (beginning is not None and n.startswith(beginning)) for n in parameters
        ):
            raise ArgumentError(
                f"The name {ours!r} in the 'match' of load_weights is none of a parameter here."
                f"{suggest(ours, parameters)}",
                argument="match",
            )

    def name_of(name: str) -> str | None:
        if name in given:
            return given[name]
        for ours, theirs in given.items():
            if ours.endswith("*") and name.startswith(ours[:-1]):
                rest = name[len(ours) - 1 :]
                return theirs[:-1] + rest if theirs.endswith("*") else theirs
        return None

    return name_of
