"""NumPy's .npz: a zip archive with one .npy member per array.

`numpy.load` believes what the file says of itself, and may be told to run pickled code. Here
nothing is executed, and three statements about size must agree before memory is taken: the shape
in the array's own header, the size in the archive's directory, and what the compressed bytes can
at most expand to. The checksum is verified at the end of each array.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import numpy as np

from undivided.data.dataset import MAX_RANK, Dataset, Split, check_declared, check_split
from undivided.data.reading import (
    DEFLATE_LIMIT,
    Stream,
    check_memory,
    describe_start,
    empty_array,
    fill,
    plain_file,
    reason,
)
from undivided.errors import DataError

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

__all__ = ["read_npz", "read_unlabelled"]

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 4096  # NumPy writes 118 bytes for a plain array; parsing is not to become the work
_ENCRYPTED = 0x1
_CLASSES = "classes"
_SAVE = "numpy.savez_compressed(path, x=x, y=y)"
_TYPE = re.compile(r"[<>|=]?([?biufcSUVO])\d{0,9}")


@dataclass(frozen=True)
class _Header:
    """What a .npy member says of its array, and where the array begins."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran_order: bool
    size: int

    @property
    def data_size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_npz(path: str | os.PathLike[str], inputs: Sequence[str] = ("x",)) -> Dataset:
    """The arrays x and y, and if there are any x_test and y_test, of an .npz file.

    `weights` and `weights_test`, if there are any, say how much each sample counts; `mask` or
    `lengths` (and `mask_test` …) which tokens of x only fill samples up. `classes`, an array of
    strings, says what the classes are called. Other arrays in the file are left alone. The types
    are those of `check_split`. Pickled objects are refused unread. Raises `DataError` for every
    file that cannot be trusted or trained on.

    For a network with several `inputs` these are the names of their arrays, in place of x:
    `source` and `target`, `source_test` …, and `source_mask`, `target_lengths_test` and so on.
    """
    file, size = plain_file(path, f"an .npz file with the arrays {_listed((*inputs, 'y'))}")
    with _damage_reported(file):
        return _read(file, size, tuple(inputs))


def _read(file: Path, size: int, inputs: tuple[str, ...]) -> Dataset:
    with file.open("rb") as raw:
        archive = _open_archive(raw, file)
        members = _arrays_in(archive)
        suffixes = _splits_in(members, inputs, file)
        wanted = [role + suffix for suffix in suffixes for role in _roles(inputs)]
        headers = {
            name: _checked_header(archive, members[name], size, f"{file}: {name}")
            for name in (*wanted, _CLASSES)
            if name in members
        }
        for suffix in suffixes:
            y = headers["y" + suffix]
            for name in (role + suffix for role in inputs):
                x = headers[name]
                where = (name, "y" + suffix)
                check_declared(x.dtype, x.shape, y.dtype, y.shape, str(file), where)
        check_memory(sum(header.data_size for header in headers.values()), str(file))
        arrays = {
            name: _read_array(archive, members[name], header, f"{file}: {name}")
            for name, header in headers.items()
        }
    splits = [_split_of(arrays, inputs, suffix, file) for suffix in suffixes]
    test = splits[1] if len(splits) > 1 else None
    names = _names(arrays[_CLASSES], f"{file}: {_CLASSES}") if _CLASSES in arrays else None
    return Dataset(splits[0], test, file.stem, class_names=names)


def _roles(inputs: tuple[str, ...]) -> list[str]:
    """What a split may consist of, its inputs first."""
    kinds = ("mask", "lengths")
    besides = kinds if inputs == ("x",) else [f"{name}_{kind}" for name in inputs for kind in kinds]
    return [*inputs, "y", "weights", *besides]


def _split_of(
    arrays: dict[str, np.ndarray], inputs: tuple[str, ...], suffix: str, file: Path
) -> Split:
    names = (inputs[0] + suffix, "y" + suffix)
    y, weights = arrays["y" + suffix], arrays.get("weights" + suffix)
    if inputs == ("x",):
        mask, lengths = arrays.get("mask" + suffix), arrays.get("lengths" + suffix)
        x = arrays["x" + suffix]
        return check_split(
            x, y, str(file), names=names, weights=weights, mask=mask, lengths=lengths
        )
    besides = {
        kind: {n: arrays[m] for n in inputs if (m := f"{n}_{kind}{suffix}") in arrays}
        for kind in ("mask", "lengths")
    }
    several = {name: arrays[name + suffix] for name in inputs}
    return check_split(several, y, str(file), names=names, weights=weights, **besides)


def _names(array: np.ndarray, where: str) -> tuple[str, ...]:
    """What the classes are called."""
    if array.ndim != 1 or array.dtype.kind not in "US" or not array.size:
        raise DataError(
            f"{where} must be an array of strings, what each class is called; it is "
            f"{array.dtype} {array.shape}. Save it with classes=numpy.array([…])."
        )
    return tuple(np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array.tolist())


def read_unlabelled(path: str | os.PathLike[str], inputs: Sequence[str] = ("x",)) -> Split | None:
    """The x of an .npz file that has no y, under the same distrust; None for every other file.

    Damaged files are among the others: `read_npz` knows how to refuse them. The targets of what
    comes back are zeros that mean nothing.
    """
    from zipfile import BadZipFile, ZipFile

    inputs = tuple(inputs)
    try:
        with ZipFile(path) as archive:
            names = set(_arrays_in(archive))
    except (OSError, ValueError, BadZipFile, NotImplementedError):
        return None
    if not names.issuperset(inputs) or "y" in names:
        return None
    file, size = plain_file(path, f"an .npz file with {_listed(inputs)}")
    with _damage_reported(file), file.open("rb") as raw:
        archive = _open_archive(raw, file)
        members = _arrays_in(archive)
        headers = {
            name: _checked_header(archive, members[name], size, f"{file}: {name}")
            for name in _roles(inputs)
            if name in members
        }
        check_memory(sum(header.data_size for header in headers.values()), str(file))
        arrays = {
            name: _read_array(archive, members[name], header, f"{file}: {name}")
            for name, header in headers.items()
        }
    first = arrays[inputs[0]]
    count = len(first) if first.ndim else 1
    return _split_of({**arrays, "y": np.zeros(count, np.uint8)}, inputs, "", file)


def _open_archive(raw: IO[bytes], file: Path) -> ZipFile:
    from zipfile import BadZipFile, ZipFile

    start = raw.read(8)
    raw.seek(0)
    try:
        return ZipFile(raw)
    except BadZipFile:
        if start.startswith(b"PK"):  # it was a zip archive once
            raise
        raise DataError(
            f"{file}: expected an .npz file (a zip archive); this one starts with "
            f"{describe_start(start)}. Make one with {_SAVE}."
        ) from None


def _arrays_in(archive: ZipFile) -> dict[str, ZipInfo]:
    """The arrays by their names; of two members of one name the last is meant."""
    infos = archive.infolist()
    return {i.filename.removesuffix(".npy"): i for i in infos if i.filename.endswith(".npy")}


def _splits_in(members: dict[str, ZipInfo], inputs: tuple[str, ...], file: Path) -> list[str]:
    """What the names of a split's arrays end in: nothing, and `_test` where there is one."""
    needed = (*inputs, "y")
    suffixes = [""]
    if any(f"{name}_test" in members for name in needed):
        suffixes.append("_test")
    missing = [name + s for s in suffixes for name in needed if name + s not in members]
    if missing:
        there = ", ".join(list(members)[:20]) + (", …" if len(members) > 20 else "")
        tests = _listed([f"{name}_test" for name in needed])
        several = "all" if len(needed) > 2 else "both"
        saved = _SAVE if inputs == ("x",) else _saving(needed)
        raise DataError(
            f"{file}: expected the arrays {_listed(needed)}, and either {several} or none of "
            f"{tests}; {_listed(missing)} {'is' if len(missing) == 1 else 'are'} missing. "
            f"In the file: {there or 'no array at all'}. Save it with {saved}."
        )
    return suffixes


def _saving(names: Sequence[str]) -> str:
    return f"numpy.savez_compressed(path, {', '.join(f'{name}={name}' for name in names)})"


def _listed(names: Sequence[str]) -> str:
    """`x`, `x and y`, `source, target and y`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _checked_header(archive: ZipFile, info: ZipInfo, file_size: int, where: str) -> _Header:
    """What an array says of itself, which must agree with what the archive says."""
    _check_member(info, file_size, where)
    with archive.open(info) as stream:
        header = _read_header(stream, where)
    _check_sizes(info, header, where)
    return header


def _check_member(info: ZipInfo, file_size: int, where: str) -> None:
    """What the archive's directory says of a member must be possible."""
    from zipfile import ZIP_DEFLATED, ZIP_STORED

    if info.flag_bits & _ENCRYPTED:
        raise DataError(f"{where} is encrypted. Save the file without a password.")
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise DataError(
            f"{where} is compressed by a method NumPy does not use (number {info.compress_type}). "
            f"Save it with {_SAVE}."
        )
    expansion = 1 if info.compress_type == ZIP_STORED else DEFLATE_LIMIT
    held = min(info.compress_size, file_size)
    if info.file_size > expansion * held:
        raise DataError(
            f"{where} is said to have {info.file_size} bytes; {held} bytes in the file cannot "
            "hold so much. The file is damaged or not honest: save it again."
        )


def _read_header(stream: IO[bytes], where: str) -> _Header:
    start = stream.read(8)
    if len(start) < 8 or not start.startswith(_MAGIC):
        raise DataError(
            f"{where} must be a NumPy array, which starts with {_MAGIC!r}; "
            f"it starts with {describe_start(start)}. Save it with {_SAVE}."
        )
    version = start[6]
    # Version 3 is for names of fields outside of Latin-1; an array with fields is refused anyway.
    if version not in (1, 2):
        raise DataError(
            f"{where} has a header of version {version}; 1 and 2 are read. Save it with {_SAVE}."
        )
    width = 2 if version == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > _MAX_HEADER:
        raise DataError(
            f"{where} has a header of {length} bytes; that of a plain array has fewer than "
            f"{_MAX_HEADER}. Save it with {_SAVE}."
        )
    text = stream.read(length)
    if len(text) < length:
        raise DataError(
            f"{where} has a header of {length} bytes that is cut off after {len(text)}. "
            "Copy or save the file again."
        )
    return _parse_header(text.decode("latin-1"), len(start) + width + length, where)


def _parse_header(text: str, size: int, where: str) -> _Header:
    """`{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, as a literal, not as code."""
    import ast

    try:
        fields = ast.literal_eval(text.strip())
        descr, order, shape = fields["descr"], fields["fortran_order"], fields["shape"]
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError):
        raise DataError(
            f"{where} has a header that cannot be read: {text[:60]!r}. Save it with {_SAVE}."
        ) from None
    dtype = _parse_type(descr, where)
    sizes_valid = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if not sizes_valid or type(order) is not bool:
        raise DataError(
            f"{where} has a header that makes no sense: shape {shape!r:.60}, "
            f"fortran_order {order!r:.60}. Save it with {_SAVE}."
        )
    if len(shape) > MAX_RANK:
        raise DataError(f"{where} must have at most {MAX_RANK} axes; it has {len(shape)}.")
    return _Header(dtype, shape, order, size)


def _parse_type(descr: object, where: str) -> np.dtype:
    if isinstance(descr, list):
        raise DataError(
            f"{where} is a structured array (a table with named fields). "
            "Save each field, or numpy.stack of them, as a plain array."
        )
    match = _TYPE.fullmatch(descr) if isinstance(descr, str) else None
    if match is None:
        raise _unknown_type(descr, where)
    if match[1] == "O":
        raise DataError(
            f"{where} is an array of Python objects, stored as a pickle: reading it could run any "
            "code, so it is refused unread. Make it a plain array with numpy.stack, or with "
            ".astype('float32'), and save it again."
        )
    try:
        dtype = np.dtype(match[0])
    except (TypeError, ValueError):  # no such width, such as f3
        raise _unknown_type(descr, where) from None
    if not dtype.itemsize:  # strings of no width, for which NumPy would make room all the same
        raise _unknown_type(descr, where)
    return dtype


def _unknown_type(descr: object, where: str) -> DataError:
    return DataError(
        f"{where} has the element type {descr!r:.60}; only plain numbers are read. "
        "Make it numbers, with .astype('float32'), and save it again."
    )


def _check_sizes(info: ZipInfo, header: _Header, where: str) -> None:
    expected = header.size + header.data_size
    if expected != info.file_size:
        raise DataError(
            f"{where} declares the shape {header.shape} of {header.dtype}, {expected} bytes with "
            f"its header; the archive states {info.file_size}. "
            "The file is damaged or not honest: save it again."
        )


def _read_array(archive: ZipFile, info: ZipInfo, header: _Header, where: str) -> np.ndarray:
    array = empty_array(math.prod(header.shape), header.dtype, where)
    with archive.open(info) as stream:
        stream.read(header.size)
        done = fill(cast(Stream, stream), array)
        stream.read(1)  # the end of the stream is where the checksum is compared
    if done < header.data_size:
        raise DataError(
            f"{where} is cut off: {header.data_size} bytes of data are declared, {done} are there. "
            "Copy or save the file again."
        )
    if header.fortran_order:  # first axis fastest: the reversed shape, seen from the other end
        return array.reshape(header.shape[::-1]).transpose()
    return array.reshape(header.shape)


@contextmanager
def _damage_reported(file: Path) -> Iterator[None]:
    """Everything that the zip reader is known to raise on bad input, as one `DataError`."""
    import struct
    import zlib
    from zipfile import BadZipFile

    try:
        yield
    except DataError:
        raise
    # ValueError: a place before the start of the file; RuntimeError: what NumPy never uses of zip.
    except (BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError) as e:
        raise DataError(
            f"{file}: the .npz file (a zip archive) is cut off, damaged or unreadable: "
            f"{reason(e) or 'it ends early'}. Copy or save it again."
        ) from e
