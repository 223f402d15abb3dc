"""MNIST from the four IDX files that everyone has somewhere.

Nothing is downloaded: a library that fetches files behind one's back fails behind firewalls, and
the files are usually on the machine already. So the likely folders are searched, and if none has
them the error lists what was looked at and where to put what.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from undivided.data.dataset import Dataset, Split, check_split
from undivided.data.idx import read_idx
from undivided.errors import DataError

__all__ = ["mnist"]

_IMAGES, _LABELS = "images-idx3-ubyte", "labels-idx1-ubyte"
_NAMES = tuple(f"{part}-{kind}" for part in ("train", "t10k") for kind in (_IMAGES, _LABELS))
_SIDE = 28
_CLASSES = 10
_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"


def mnist(folder: str | os.PathLike[str] | None = None) -> Dataset:
    """MNIST, `[N, 28, 28]` uint8 from 0 to 255 and labels 0 to 9, from its four IDX files.

    They are looked for in `folder` and `folder/mnist` only, if it is given; else in the same way in
    the folder named by the environment variable UNDIVIDED_DATA, in `./data`, and in `undivided`
    in the user's cache. Gzipped or not, spelt `train-images-idx3-ubyte` or
    `train-images.idx3-ubyte`. The first folder with all four wins. Fewer samples than the
    original 60,000 and 10,000 are fine.
    """
    train_images, train_labels, test_images, test_labels = _find(folder)
    train = _read_split(train_images, train_labels)
    return Dataset(train, _read_split(test_images, test_labels), "mnist")


def _find(folder: str | os.PathLike[str] | None) -> list[Path]:
    looked = []
    for candidate in _candidates(folder):
        files = [_find_file(candidate, name) for name in _NAMES]
        present = [file for file in files if file is not None]
        if len(present) == len(_NAMES):
            return present
        if not os.path.isdir(candidate):
            state = "not a folder" if os.path.exists(candidate) else "no such folder"
        elif not present:
            state = "none of the four files"
        else:
            absent = [name for name, file in zip(_NAMES, files, strict=True) if file is None]
            state = f"{', '.join(absent)} missing"
        looked.append(f"  {candidate}: {state}")
    target = "./data/mnist" if folder is None else os.fspath(folder)
    raise DataError(
        "\n".join(
            [
                "MNIST was not found. Looked in:",
                *looked,
                f"Put {', '.join(_NAMES)}, each with or without .gz, into {target}, or name the "
                "folder they are in: mnist(folder=...), --data FOLDER, or the environment "
                f"variable UNDIVIDED_DATA. They can be downloaded from {_MIRROR}",
            ]
        )
    )


def _candidates(folder: str | os.PathLike[str] | None) -> list[str]:
    if folder is not None:
        roots = [os.fspath(folder)]
    else:
        cache = os.environ.get("XDG_CACHE_HOME", "")
        if not os.path.isabs(cache):  # relative ones are to be ignored, says the specification
            cache = "~/.cache"
        roots = [os.path.join(".", "data"), os.path.join(cache, "undivided")]
        if os.environ.get("UNDIVIDED_DATA"):
            roots.insert(0, os.environ["UNDIVIDED_DATA"])
    roots = [os.path.expanduser(root) for root in roots]
    return [place for root in roots for place in (root, os.path.join(root, "mnist"))]


def _find_file(folder: str, name: str) -> Path | None:
    for spelling in (name, name.replace("-idx", ".idx")):
        for suffix in ("", ".gz"):
            file = os.path.join(folder, spelling + suffix)
            if os.path.isfile(file):
                return Path(file)
    return None


def _read_split(images_file: Path, labels_file: Path) -> Split:
    images, labels = read_idx(images_file, rank=3), read_idx(labels_file, rank=1)
    if images.shape[1:] != (_SIDE, _SIDE):
        raise DataError(
            f"{images_file}: expected images of {_SIDE}x{_SIDE} pixels; the header declares "
            f"{images.shape[1]}x{images.shape[2]}. This is not MNIST: save other images as .npz."
        )
    if len(images) != len(labels):
        raise DataError(
            f"{labels_file}: expected {len(images)} labels, one for each image in "
            f"{images_file.name}; there are {len(labels)}. The two are not of the same set."
        )
    wrong = labels >= _CLASSES
    if wrong.any():
        index = int(np.argmax(wrong))
        raise DataError(
            f"{labels_file}: expected labels from 0 to {_CLASSES - 1}; label {index} is "
            f"{labels[index]}. The file is damaged or not MNIST."
        )
    return check_split(images, labels, str(images_file.parent))
