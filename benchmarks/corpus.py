"""A text to learn: the source of the machine's own Python library.

Files come in the order of a digest of their names, so that what is held out at the end is of the
same kind as what is learned, and nothing but the Python version decides what the text is.
"""

from __future__ import annotations

import hashlib
import sysconfig
from pathlib import Path

__all__ = ["library_source", "text_file"]

APART = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
"""Folders that are not the library itself, or that some systems leave out."""


def library_source(size: int) -> bytes:
    """The first `size` bytes of the library, a new line between two files."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [path.relative_to(root) for path in root.rglob("*.py")]
    files = [path for path in files if not APART.intersection(path.parts)]
    files.sort(key=lambda path: hashlib.sha256(path.as_posix().encode()).digest())
    text, parts = 0, []
    for path in files:
        parts.append((root / path).read_bytes() + b"\n")
        text += len(parts[-1])
        if text >= size:
            return b"".join(parts)[:size]
    raise ValueError(f"The library's source has {text:,} bytes, fewer than {size:,}.")


def text_file(folder: Path, size: int) -> Path:
    """The source as a file of that folder."""
    file = folder / "library.txt"
    file.write_bytes(library_source(size))
    return file
