"""What the readers share: opening only plain files, and filling an array without a second copy."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Protocol

import numpy as np

from undivided.errors import DataError

__all__ = [
    "DEFLATE_LIMIT",
    "check_memory",
    "describe_start",
    "empty_array",
    "fill",
    "memory_limit",
    "plain_file",
    "reason",
]

# Deflate spends at least two bits on a copy of at most 258 bytes: no honest stream expands more.
DEFLATE_LIMIT = 1032

_BLOCK = 1 << 18  # bytes read at a time; streams take some three times that besides the array
_WITHOUT_SYSCONF = 8 << 30  # physical memory to assume where the system cannot be asked


class Stream(Protocol):
    """The part of a binary file that is used here."""

    def read(self, size: int, /) -> bytes: ...

    def readinto(self, buffer: memoryview, /) -> int | None: ...


def plain_file(path: str | os.PathLike[str], what: str) -> tuple[Path, int]:
    """The path, with `~` expanded, and the size in bytes of the plain, non-empty file there.

    Asked before opening, because opening a pipe would wait for ever and a device never ends.
    """
    file = Path(os.path.expanduser(path))
    try:
        status = file.stat()
    except FileNotFoundError:
        raise DataError(f"{file}: expected {what}; there is no such file.") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise DataError(f"{str(file)!r}: expected {what}; {reason(error)}.") from error
    if not S_ISREG(status.st_mode):
        found = "a folder" if S_ISDIR(status.st_mode) else "not a plain file"
        raise DataError(f"{file}: expected {what}; this is {found}. Name the file itself.")
    if status.st_size == 0:
        raise DataError(f"{file}: expected {what}; the file is empty (0 bytes).")
    return file, status.st_size


def reason(error: BaseException) -> str:
    """The system's own words for what went wrong, without its number and path."""
    return str(getattr(error, "strerror", None) or error).rstrip(".")


def describe_start(start: bytes) -> str:
    """The first bytes of a file that is not what it should be, with a guess at what it is."""
    guess = ""
    if start.lstrip()[:1] == b"<":
        guess = " (a web page, saved in place of the file?)"
    elif start.startswith(b"\x93NUMPY"):
        guess = " (a single NumPy array, .npy)"
    elif start.startswith(b"\x1f\x8b"):
        guess = " (gzip)"
    elif start.startswith(b"PK"):
        guess = " (a zip archive)"
    elif start and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in start):
        guess = " (text)"
    return f"{start!r}{guess}"


def memory_limit() -> int:
    """The most bytes that one file may fill: half of the machine's memory."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        physical = 0
    return (physical if physical > 0 else _WITHOUT_SYSCONF) // 2


def check_memory(size: int, where: str) -> None:
    """Refuse `size` bytes of data that this machine could not hold and train on."""
    limit = memory_limit()
    if size > limit:
        raise DataError(
            f"{where}: the file declares {size} bytes of data; at most {limit}, half of this "
            "machine's memory, are read. Make a file with fewer samples."
        )


def empty_array(count: int, dtype: np.dtype, where: str) -> np.ndarray:
    """`count` values not yet written; call only after the size has been checked."""
    try:
        return np.empty(count, dtype)
    except MemoryError:
        raise DataError(
            f"{where}: not enough free memory for {count * dtype.itemsize} bytes of data."
        ) from None


def fill(stream: Stream, array: np.ndarray) -> int:
    """Read into the one-dimensional `array` until it is full or the stream ends; bytes read.

    Block by block, because gzip and zip streams make a copy of whatever is asked of them at once.
    """
    view = array.view(np.uint8).data
    done = 0
    while done < len(view):
        count = stream.readinto(view[done : done + _BLOCK])
        if not count:
            break
        done += count
    return done
