"""Text files: every character, or every byte, and what comes after it."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np

from undivided.data.dataset import Dataset, Split
from undivided.data.reading import check_memory, plain_file
from undivided.errors import DataError

__all__ = ["characters_of", "text"]

_TEST_SHARE = 10
"""One window in so many, those at the end, is for testing."""


def text(
    path: str | os.PathLike[str],
    length: int = 128,
    unit: Literal["bytes", "characters"] = "bytes",
) -> Dataset:
    """Windows of a text, x [N, length] ids, and y [N, length] the ids that follow each of them.

    Bytes are ids from 0 to 255. Characters are numbered from 0 in the order of their code
    points, those alone that are in the text; `characters_of` gives them. Windows do not overlap;
    the last tenth of them is for testing.
    """
    file, size = plain_file(path, "a text file")
    check_memory(16 * size, str(file))
    if unit == "bytes":
        ids = np.frombuffer(file.read_bytes(), np.uint8).astype(np.int32)
    else:
        points = _points(file.read_bytes(), str(file))
        ids = np.unique(points, return_inverse=True)[1].reshape(-1).astype(np.int32)
    windows = (len(ids) - 1) // length
    if windows < 2:
        raise DataError(
            f"{file}: expected at least {2 * length + 1} {unit}, two windows of {length} and one "
            f"more. It has {len(ids)}. Take a longer text, or a smaller length."
        )
    x = ids[: windows * length].reshape(windows, length)
    y = ids[1 : windows * length + 1].reshape(windows, length)
    kept = windows - max(1, windows // _TEST_SHARE)
    return Dataset(Split(x[:kept], y[:kept]), Split(x[kept:], y[kept:]), file.stem)


def characters_of(path: str | os.PathLike[str]) -> str:
    """The characters of a text, each once, by their ids."""
    file, _ = plain_file(path, "a text file")
    return "".join(map(chr, np.unique(_points(file.read_bytes(), str(file)))))


def _points(raw: bytes, where: str) -> np.ndarray:
    """The code points of UTF-8."""
    try:
        decoded = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: expected a text in UTF-8; byte {error.start} is not. Save it as UTF-8, or "
            'read it as unit="bytes".'
        ) from None
    return np.frombuffer(decoded.encode("utf-32-le"), np.uint32)
