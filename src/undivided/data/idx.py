"""The IDX format of MNIST and its relatives, plain or gzipped.

    0 0 8 rank · one big-endian 32-bit size per axis · the bytes, last axis fastest

The sizes are four bytes that anyone may have written, so they are compared with what the file can
hold before memory is taken: exactly for a plain file, and by deflate's greatest expansion for a
gzipped one. The stream then goes straight into the array, and must end where the array does.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

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

__all__ = ["read_idx"]

_TYPES = {
    0x08: "unsigned bytes",
    0x09: "signed bytes",
    0x0B: "16-bit integers",
    0x0C: "32-bit integers",
    0x0D: "32-bit floats",
    0x0E: "64-bit floats",
}
_BYTES = 0x08
_MAX_RANK = 8
_GZIP = b"\x1f\x8b"


def read_idx(path: str | os.PathLike[str], *, rank: int | None = None) -> np.ndarray:
    """The uint8 array in an IDX file, gzipped or not; with `rank`, of that many axes only.

    Whether it is gzipped is told by its first bytes, not its name. Takes no more memory than the
    array. Raises `DataError` for every file that is not exactly one whole IDX array of bytes.
    """
    file, size = plain_file(path, "an IDX file")
    try:
        with file.open("rb") as raw:
            gzipped = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            return _read_gzip(raw, file, size, rank) if gzipped else _read(raw, file, size, rank)
    except OSError as error:
        raise DataError(f"{file}: the file cannot be read: {reason(error)}.") from error


def _read_gzip(raw: BinaryIO, file: Path, size: int, rank: int | None) -> np.ndarray:
    import gzip
    import zlib

    try:
        with gzip.GzipFile(fileobj=raw) as stream:
            return _read(stream, file, size, rank, gzipped=True)
    except EOFError:
        raise DataError(
            f"{file}: the gzip stream is cut off; the file has {size} bytes. Download it again."
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{file}: the gzip stream is damaged: {reason(error)}. Download it again."
        ) from error


def _read(
    stream: Stream, file: Path, size: int, rank: int | None, *, gzipped: bool = False
) -> np.ndarray:
    shape = _read_shape(stream, file, rank)
    count = math.prod(shape)
    sizes = "x".join(map(str, shape))
    declared = f"{file}: the header declares {sizes} = {count} bytes of data"
    if gzipped:
        if count > DEFLATE_LIMIT * size:
            raise DataError(
                f"{declared}; the {size} bytes of this file cannot hold so much even compressed. "
                "The file is cut off or damaged: download it again."
            )
    else:
        held = size - _header_size(len(shape))
        if held != count:
            raise DataError(
                f"{declared}; the file holds {held}, {_difference(held - count)}. "
                "It is cut off or damaged: download it again."
            )
    check_memory(count, str(file))
    array = empty_array(count, np.dtype(np.uint8), str(file))
    done = fill(stream, array)
    if done < count:
        raise DataError(
            f"{declared}; the stream ends after {done}, {_difference(done - count)}. "
            "It is cut off or damaged: download it again."
        )
    # Also what makes gzip compare its checksum: that stands behind the last byte.
    if stream.read(1):
        raise DataError(
            f"{declared}; the stream goes on after them. It is damaged: download it again."
        )
    return array.reshape(shape)


def _read_shape(stream: Stream, file: Path, rank: int | None) -> tuple[int, ...]:
    magic = stream.read(4)
    if magic[:2] != b"\0\0"[: len(magic)]:
        raise DataError(
            f"{file}: expected an IDX file, which starts with two zero bytes; "
            f"this one starts with {describe_start(magic)}."
        )
    if len(magic) < 4:
        raise _header_cut(file, 4, len(magic))
    kind, axes = magic[2], magic[3]
    if kind != _BYTES:
        found = _TYPES.get(kind, "no type that IDX knows")
        raise DataError(
            f"{file}: expected elements of type 0x08, {_TYPES[_BYTES]}; "
            f"the third byte is 0x{kind:02X}, {found}. Save other data as an .npz file."
        )
    if rank is not None and axes != rank:
        raise DataError(
            f"{file}: expected rank {rank}; the header declares {axes}. "
            "Were images and labels exchanged?"
        )
    if not 1 <= axes <= _MAX_RANK:
        raise DataError(
            f"{file}: expected rank 1 to {_MAX_RANK}; the header declares {axes}. "
            "The file is damaged: download it again."
        )
    sizes = stream.read(4 * axes)
    if len(sizes) < 4 * axes:
        raise _header_cut(file, _header_size(axes), 4 + len(sizes))
    shape = tuple(int.from_bytes(sizes[i : i + 4], "big") for i in range(0, 4 * axes, 4))
    if 0 in shape:
        raise DataError(
            f"{file}: expected at least one element; the header declares the shape {shape}, "
            "which is empty."
        )
    return shape


def _header_size(axes: int) -> int:
    return 4 + 4 * axes


def _header_cut(file: Path, expected: int, found: int) -> DataError:
    return DataError(
        f"{file}: expected an IDX header of {expected} bytes; the file ends after {found}. "
        "Download it again."
    )


def _difference(surplus: int) -> str:
    return f"{abs(surplus)} too {'many' if surplus > 0 else 'few'}"
