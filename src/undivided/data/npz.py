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
from collections.abc import Iterator
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
_BESIDES = ("weights", "mask", "lengths")  # what may stand beside x and y
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


def read_npz(path: str | os.PathLike[str]) -> Dataset:
    """The arrays x and y, and if there are any x_test and y_test, of an .npz file.

    `weights` and `weights_test`, if there are any, say how much each sample counts; `mask` or
    `lengths` (and `mask_test` …) which tokens of x only fill samples up. Other arrays
    in the file are left alone. The types are those of `check_split`. Pickled objects are refused
    unread. Raises `DataError` for every file that cannot be trusted or trained on.
    """
    file, size = plain_file(path, "an .npz file with the arrays x and y")
    with _damage_reported(file):
        return _read(file, size)


def _read(file: Path, size: int) -> Dataset:
    with file.open("rb") as raw:
        archive = _open_archive(raw, file)
        pairs = _pairs({info.filename: info for info in archive.infolist()}, file)
        headers = {}
        for name, info in (member for pair in pairs for member in pair.items()):
            _check_member(info, size, f"{file}: {name}")
            with archive.open(info) as stream:
                headers[name] = _read_header(stream, f"{file}: {name}")
            _check_sizes(info, headers[name], f"{file}: {name}")
        for x_name, y_name, *_ in pairs:
            x, y = headers[x_name], headers[y_name]
            check_declared(x.dtype, x.shape, y.dtype, y.shape, str(file), (x_name, y_name))
        check_memory(sum(header.data_size for header in headers.values()), str(file))
        splits = [_read_split(archive, pair, headers, file) for pair in pairs]
    return Dataset(splits[0], splits[1] if len(splits) > 1 else None, file.stem)


def read_unlabelled(path: str | os.PathLike[str]) -> np.ndarray | None:
    """The x of an .npz file that has no y, under the same distrust; None for every other file.

    Damaged files are among the others: `read_npz` knows how to refuse them.
    """
    from zipfile import BadZipFile, ZipFile

    try:
        with ZipFile(path) as archive:
            names = set(archive.namelist())
    except (OSError, ValueError, BadZipFile, NotImplementedError):
        return None
    if "x.npy" not in names or "y.npy" in names:
        return None
    file, size = plain_file(path, "an .npz file with the array x")
    where = f"{file}: x"
    with _damage_reported(file), file.open("rb") as raw:
        archive = _open_archive(raw, file)
        info = archive.getinfo("x.npy")
        _check_member(info, size, where)
        with archive.open(info) as stream:
            header = _read_header(stream, where)
        _check_sizes(info, header, where)
        if not header.shape:
            return np.empty(())
        check_memory(header.data_size, str(file))
        x = _read_array(archive, info, header, where)
    return check_split(x, np.zeros(len(x), np.uint8), str(file)).x


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


def _pairs(members: dict[str, ZipInfo], file: Path) -> list[dict[str, ZipInfo]]:
    """The members to read: x, y and what may stand beside them; then x_test … if there are any."""
    arrays = {
        name.removesuffix(".npy"): info for name, info in members.items() if name.endswith(".npy")
    }
    wanted = [("x", "y")]
    if "x_test" in arrays or "y_test" in arrays:
        wanted.append(("x_test", "y_test"))
    missing = [name for pair in wanted for name in pair if name not in arrays]
    if missing:
        there = ", ".join(list(arrays)[:20]) + (", …" if len(arrays) > 20 else "")
        raise DataError(
            f"{file}: expected the arrays x and y, and either both or none of x_test and y_test; "
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing. "
            f"In the file: {there or 'no array at all'}. Save it with {_SAVE}."
        )
    wanted_all = ((*pair, *(pair[0].replace("x", name, 1) for name in _BESIDES)) for pair in wanted)
    return [{name: arrays[name] for name in names if name in arrays} for names in wanted_all]


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
        return np.dtype(match[0])
    except (TypeError, ValueError):  # no such width, such as f3
        raise _unknown_type(descr, where) from None


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


def _read_split(
    archive: ZipFile, pair: dict[str, ZipInfo], headers: dict[str, _Header], file: Path
) -> Split:
    x_name, y_name, *besides = pair
    arrays = {
        name: _read_array(archive, info, headers[name], f"{file}: {name}")
        for name, info in pair.items()
    }
    given = {name.removesuffix("_test"): arrays[name] for name in besides}
    names = (x_name, y_name)
    return check_split(arrays[x_name], arrays[y_name], str(file), names=names, **given)


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
