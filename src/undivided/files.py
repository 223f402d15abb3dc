"""Model files: safetensors, with the network's text in the metadata. Data, never code.

    8 bytes   length of the header, little-endian
    header    JSON: {"__metadata__": {"network": text, …}, name: {dtype, shape, offsets}, …}
    tensors   float32, in the order of their names; what the optimizer keeps, where a file has it,
              as "optimizer/mean/NAME"

A file is written beside its place, brought to the disk and renamed: whatever happens meanwhile,
the place holds the old file or the new one. What is read is distrusted: everything is compared
with what the network needs before any memory is taken for it.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undivided.errors import ModelFileError, UndividedError
from undivided.network import Network
from undivided.plan.plan import Plan, show_shape

__all__ = ["ModelFile", "check_target", "read_model", "write_beside", "write_model"]

FORMAT = "1"
"""Counts up when a file of the new kind could not be read by the old code."""

_LONGEST_HEADER = 1 << 26
_LARGEST_COUNT = 2**63
_AGAIN = "Copy or save the file again."


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds."""

    network: Network
    seed: int
    epochs: int
    steps: int
    generator: tuple[int, ...]
    """The state of the generator, from which the next epoch's shuffle is drawn."""
    parameters: dict[str, np.ndarray]
    optimizer_steps: int | None = None
    """How many steps the optimizer has taken, where its averages are in the file."""
    slots: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    """What the optimizer keeps of each parameter: its averages by name."""
    class_names: tuple[str, ...] | None = None
    """What the classes are called, where that is known."""


# Writing.


def write_model(path: str | os.PathLike[str], model: ModelFile) -> None:
    """Write a model file; until it is whole, `path` keeps what it was."""
    from undivided import __version__

    metadata = {
        "format": f"undivided {FORMAT}",
        "version": __version__,
        "network": model.network.to_text(),
        "seed": str(model.seed),
        "epochs": str(model.epochs),
        "steps": str(model.steps),
        "generator": " ".join(map(str, model.generator)),
    }
    arrays = dict(model.parameters)
    if model.optimizer_steps is not None:
        metadata["optimizer_steps"] = str(model.optimizer_steps)
        for slot, kept in model.slots.items():
            arrays |= {_slot_name(slot, name): values for name, values in kept.items()}
    if model.class_names is not None:
        metadata["classes"] = json.dumps(model.class_names)
    tensors = {name: np.ascontiguousarray(a, "<f4") for name, a in arrays.items()}
    data = [tensors[name].data for name in sorted(tensors)]
    write_beside(path, [_header(metadata, tensors), *data])


def _slot_name(slot: str, parameter: str) -> str:
    return f"optimizer/{slot}/{parameter}"


def _header(metadata: Mapping[str, str], tensors: Mapping[str, np.ndarray]) -> bytes:
    # The safetensors package puts metadata in another order every time; written here, the same
    # model is the same file.
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in sorted(tensors):
        start, end = end, end + tensors[name].nbytes
        shape = list(tensors[name].shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_beside(path: str | os.PathLike[str], pieces: Iterable[bytes | memoryview]) -> None:
    """Write a file under another name, bring it to the disk, then give it its own name."""
    target = check_target(path)
    beside = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        with open(beside, "xb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error
    finally:
        beside.unlink(missing_ok=True)


def check_target(path: str | os.PathLike[str]) -> Path:
    """The real place of a file that is going to be written, or an error that says why not.

    Called before training too: an hour of it should not end at a folder that is not there.
    """
    try:
        target = Path(os.path.realpath(os.path.expanduser(path)))
        kind = _kind(target)
        if kind not in ("nothing", "a file"):
            raise _unwritable(path, f"it is {kind}")
        if _kind(target.parent) != "a folder":
            raise _unwritable(path, f"there is no folder {str(target.parent)!r}")
        trial = target.with_name(f".{secrets.token_hex(6)}.part")
        trial.touch(exist_ok=False)
        trial.unlink()
    except (OSError, ValueError) as error:
        if isinstance(error, UndividedError):
            raise
        raise _unwritable(path, getattr(error, "strerror", None) or str(error)) from error
    return target


def _unwritable(path: str | os.PathLike[str], reason: str) -> ModelFileError:
    return ModelFileError(
        f"{os.fspath(path)!r} cannot be written: {reason}. Name a file in a folder that is "
        "there and can be written to."
    )


def _kind(path: Path) -> str:
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    if stat.S_ISREG(mode):
        return "a file"
    return "a folder" if stat.S_ISDIR(mode) else "a device or pipe"


def _sync_folder(folder: Path) -> None:
    """Bring the new name to the disk as well, where the system lets a folder be opened."""
    try:
        number = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(number)
    finally:
        os.close(number)


# Reading.


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """The content of a model file, or a ModelFileError that says what is wrong with it."""
    file = Path(os.path.expanduser(path))
    _check_header_length(file)
    try:
        return _read(file)
    except UndividedError:
        raise
    except MemoryError as error:
        raise _refuse(file, "it needs more memory than there is") from error
    except Exception as error:  # whatever the safetensors package raises on a damaged file
        raise _refuse(file, f"expected a whole safetensors file, found: {error}") from error


def _check_header_length(file: Path) -> None:
    try:
        kind = _kind(file)
        if kind == "nothing":
            raise _refuse(file, "there is no such file.", "")
        if kind != "a file":
            raise _refuse(file, f"expected a model file, found {kind}.", "")
        size = file.stat().st_size
        with file.open("rb") as opened:
            start = opened.read(9)
    except UndividedError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refuse(file, f"it cannot be read: {reason}.", "") from error
    length = int.from_bytes(start[:8], "little")
    if len(start) < 9 or not start.endswith(b"{") or length > min(size - 8, _LONGEST_HEADER):
        found = f"{size} bytes that start with {start!r}" if start else "an empty file"
        raise _refuse(file, f"expected a whole safetensors file, found {found}")


def _read(file: Path) -> ModelFile:
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as opened:
        metadata = opened.metadata() or {}
        network = _network(file, metadata)
        plan = _plan(file, network)
        found = {}
        for name in opened.keys():  # noqa: SIM118 - a handle of safetensors, not a dict
            tensor = opened.get_slice(name)
            found[name] = (tensor.get_dtype(), tuple(tensor.get_shape()))
        slots = plan.optimizer.kept() if "optimizer_steps" in metadata else ()
        _check_tensors(file, plan, slots, found)
        arrays = {name: opened.get_tensor(name) for name in found}
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise _refuse(file, f"expected finite numbers, found others in the tensor {name!r}")
    return ModelFile(
        network,
        _count(file, metadata, "seed", 2**64),
        _count(file, metadata, "epochs"),
        _count(file, metadata, "steps"),
        _generator(file, metadata),
        {name: arrays[name] for name in plan.parameters},
        _count(file, metadata, "optimizer_steps") if "optimizer_steps" in metadata else None,
        {slot: {n: arrays[_slot_name(slot, n)] for n in plan.parameters} for slot in slots},
        _class_names(file, metadata),
    )


def _network(file: Path, metadata: Mapping[str, str]) -> Network:
    from undivided.language import parse

    kind = metadata.get("format", "")
    if not kind.startswith("undivided "):
        raise _refuse(
            file,
            "it is a safetensors file, but its metadata does not say that undivided wrote it",
            "A model file comes from model.save(path) or `undivided train`.",
        )
    if kind != f"undivided {FORMAT}":
        raise _refuse(
            file,
            f"expected format 'undivided {FORMAT}', found {kind[:40]!r}",
            "A newer undivided reads it.",
        )
    if "network" not in metadata:
        raise _refuse(file, "expected the network's text in the metadata, found none")
    try:
        return parse(metadata["network"], file=f"{file} (its network)")
    except UndividedError as error:
        if names := getattr(error, "unknown", ()):
            raise _refuse(
                file,
                f"its network has {' and '.join(names)}, which undivided does not know",
                "If that is a layer of your own, give the file that registers it: `--use FILE.py`, "
                "or in Python undivided.use('FILE.py') before undivided.load.",
            ) from error
        raise _refuse(file, f"the network in its metadata is not one:\n{error}", "") from error


def _plan(file: Path, network: Network) -> Plan:
    try:
        return network.plan()
    except UndividedError as error:
        raise _refuse(file, f"the network in its metadata has no plan: {error}", "") from error


def _check_tensors(
    file: Path,
    plan: Plan,
    slots: Iterable[str],
    found: Mapping[str, tuple[str, tuple[int, ...]]],
) -> None:
    wanted = {name: parameter.shape for name, parameter in plan.parameters.items()}
    for slot in slots:
        wanted |= {_slot_name(slot, name): p.shape for name, p in plan.parameters.items()}
    missing = [name for name in wanted if name not in found]
    extra = [name for name in found if name not in wanted]
    if missing or extra:
        parts = []
        for kind, names in (("missing", missing), ("not of this network", extra)):
            if names:
                more = ", …" if len(names) > 5 else ""
                parts.append(f"{kind}: {', '.join(repr(n[:80]) for n in names[:5])}{more}")
        raise _refuse(
            file,
            f"expected the {len(wanted)} tensors of its network, found {len(found)}; "
            + "; ".join(parts),
        )
    for name, expected in wanted.items():
        dtype, shape = found[name]
        if (dtype, shape) != ("F32", expected):
            raise _refuse(
                file,
                f"expected the tensor {name!r} as F32 {show_shape(expected)}, "
                f"found {dtype} {show_shape(shape)}",
            )


def _count(file: Path, metadata: Mapping[str, str], name: str, below: int = _LARGEST_COUNT) -> int:
    return _whole(file, metadata.get(name, ""), name, below)


def _generator(file: Path, metadata: Mapping[str, str]) -> tuple[int, ...]:
    words = metadata.get("generator", "").split(" ")
    return tuple(_whole(file, word, "generator", 2**64) for word in words[:16])


def _class_names(file: Path, metadata: Mapping[str, str]) -> tuple[str, ...] | None:
    text = metadata.get("classes")
    if text is None:
        return None
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _refuse(file, f"expected a list of names as 'classes', found {text[:40]!r}")
    return tuple(names)


def _whole(file: Path, text: str, name: str, below: int) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < below:
        return int(text)
    raise _refuse(file, f"expected a whole number as {name!r} in the metadata, found {text[:40]!r}")


def _refuse(file: Path, problem: str, advice: str = _AGAIN) -> ModelFileError:
    """The error: file, what was expected and found, and a next step where there is one."""
    return ModelFileError(f"{file}: {problem}. {advice}" if advice else f"{file}: {problem}")
