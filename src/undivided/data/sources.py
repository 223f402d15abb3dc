"""What `data:` in a network's text and the flag `--data` can name.

The name of a built-in set or a generated task, an .npz or .ts file, or a folder with MNIST's files.
A built-in name wins over a file or folder of the same name, so that a description means the same
in every folder; write `./mnist` for the folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from undivided.data.dataset import Dataset
from undivided.data.digits import digits
from undivided.data.flowers import iris
from undivided.data.mnist import mnist
from undivided.data.npz import read_npz
from undivided.data.series import read_ts
from undivided.data.tasks import TASKS
from undivided.errors import DataError, suggest

__all__ = ["BUILT_IN", "open_data"]

BUILT_IN: dict[str, Callable[..., Dataset]] = {
    "mnist": mnist,
    "digits": digits,
    "iris": iris,
    **{name.replace("_", "-"): make for name, make in TASKS.items()},
}


def open_data(source: str, folder: str | None = None, inputs: Sequence[str] = ("x",)) -> Dataset:
    """The data that `source` names: a built-in set, a file, or a folder holding MNIST.

    With `folder`, MNIST and relative paths are looked for there and nowhere else. `inputs` are
    the arrays of an .npz file that a network takes.
    """
    source = source.replace("_", "-") if source.replace("_", "-") in BUILT_IN else source
    if source == "mnist":
        return mnist(folder)
    if source in BUILT_IN:
        if folder is not None:
            raise DataError(
                f"{source!r} comes with the package and is not looked for in a folder; got "
                f"{folder!r}. Leave the folder out, or name the data in it."
            )
        return BUILT_IN[source]()
    path = os.path.join(os.path.expanduser(folder or ""), os.path.expanduser(source))
    if source and "\0" not in source:
        if os.path.isdir(path):
            return mnist(path)
        if os.path.exists(path):
            return read_ts(path) if path.endswith(".ts") else read_npz(path, inputs)
    raise DataError(_unknown(source, path))


def _unknown(source: str, path: str) -> str:
    if source.endswith((".npz", ".ts")) or os.path.basename(source) != source:
        problem = f"{path}: there is no such file or folder.{_suggest_file(path)}"
    else:
        problem = f"there is no data named {source!r}.{suggest(source, BUILT_IN)}"
    known = ", ".join(repr(name) for name in BUILT_IN)
    return (
        f"{problem} Data can be {known}, the path of an .npz file with the arrays x and y, of a "
        ".ts file with time series, or a folder with the files of MNIST."
    )


def _suggest_file(path: str) -> str:
    """Another file of data of nearly that name beside it."""
    parent = Path(path).parent
    try:
        near = [file.name for file in parent.iterdir() if file.suffix in (".npz", ".ts")]
    except (OSError, ValueError):
        return ""
    return suggest(os.path.basename(path), near)
