"""Time series in the text form of the UEA and UCR archives, `.ts`.

    # what it is, for people
    @problemName JapaneseVowels
    @univariate false
    @classLabel true one two
    @data
    1.8,1.9,1.7:-0.2,-0.1,-0.3:one          one sample: its dimensions, then its class
    1.3,1.2:0.4,0.5:two                     another, which is shorter

A set is two such files, NAME_TRAIN.ts and NAME_TEST.ts. What a file says of itself is compared with
what is in it, and every complaint names the line.
"""

# N samples, S steps of the longest, D dimensions

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from undivided.data.dataset import Dataset, Split, check_split
from undivided.data.reading import check_memory, plain_file, reason
from undivided.errors import DataError, suggest

__all__ = ["aeon", "read_ts"]

_FOR_EACH_BYTE = 32
"""Bytes of memory that a byte of text may take while its line is read."""

_TRAIN = "_TRAIN.ts"
_MOST_CLASSES = 1 << 16
_LARGEST = float(np.finfo(np.float32).max)


@dataclass
class _Part:
    """What one file holds: samples [S, D], each of its own length, and their targets."""

    file: Path
    samples: list[np.ndarray] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    classes: tuple[str, ...] | None = None
    """What the header says; None where the targets are values."""

    @property
    def dimensions(self) -> int:
        return self.samples[0].shape[1]


def read_ts(path: str | os.PathLike[str], normalize: bool = False) -> Dataset:
    """The series of NAME_TRAIN.ts and, beside it, NAME_TEST.ts; or of one file of another name.

    x is [N, S, D] float32; where lengths differ a mask says which steps are real, and 0 stands
    behind the end. y are classes, which keep their names, or the values that the file says.
    `normalize` brings each dimension to mean 0 and deviation 1 over the steps of the training
    part; the test part goes along.
    """
    file, _ = plain_file(path, "time series, a .ts file")
    parts = [_read(file)]
    name = file.name.removesuffix(_TRAIN)
    beside = file.with_name(name + "_TEST.ts")
    if name != file.name and beside.exists():
        parts.append(_read(beside))
        _check_alike(*parts)
    longest = max(len(sample) for part in parts for sample in part.samples)
    for part in parts:
        size = 4 * len(part.samples) * longest * part.dimensions
        check_memory(size, f"{part.file}: filled up to {longest} steps")
    if normalize:
        _normalize(parts)
    names = parts[0].classes
    splits = [_split(part, longest, names) for part in parts]
    test = splits[1] if len(splits) > 1 else None
    return Dataset(splits[0], test, name.removesuffix(".ts"), class_names=names)


def aeon(name: str, normalize: bool = False) -> Dataset:
    """A set of series that ships inside the package aeon, such as JapaneseVowels.

    Only its files are read; aeon itself is not imported.
    """
    found = importlib.util.find_spec("aeon")
    if found is None or not found.submodule_search_locations:
        raise DataError(
            f"The series {name!r} come with the package aeon, which is not installed. "
            "`pip install aeon` installs it."
        )
    folder = Path(found.submodule_search_locations[0], "datasets", "data")
    files = {file.name.removesuffix(_TRAIN): file for file in folder.glob(f"*/*{_TRAIN}")}
    if name not in files:
        known = ", ".join(sorted(files)) or "none"
        raise DataError(
            f"aeon has no series named {name!r}.{suggest(name, files)} In {folder}: {known}."
        )
    return read_ts(files[name], normalize)


def _read(file: Path) -> _Part:
    _, size = plain_file(file, "time series, a .ts file")
    check_memory(_FOR_EACH_BYTE * size, str(file))
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return _Reader(file).read(opened)
    except OSError as error:
        raise DataError(f"{file}: it cannot be read: {reason(error)}.") from error


class _Reader:
    """One file, line by line."""

    def __init__(self, file: Path) -> None:
        self.part = _Part(file)
        self.number = 0
        self.said: dict[str, list[str]] = {}
        self.known: frozenset[str] = frozenset()

    def read(self, lines: Iterator[str]) -> _Part:
        for line in self._counted(lines):
            if not line.startswith("@"):
                raise self.wrong(f"expected a line that begins with @ or #; got {line[:40]!r}")
            word, *rest = line[1:].split() or [""]
            if word.lower() == "data":
                break
            self.said[word.lower()] = rest
        else:
            raise self.wrong("the file ends without a line @data")
        self._check_header()
        for line in self._counted(lines):
            self._sample(line)
        if not self.part.samples:
            raise self.wrong("there is no sample behind @data")
        return self.part

    def wrong(self, problem: str) -> DataError:
        return DataError(f"{self.part.file}, line {max(self.number, 1)}: {problem}.")

    def _counted(self, lines: Iterator[str]) -> Iterator[str]:
        """What is neither blank nor a comment."""
        for line in lines:
            self.number += 1
            line = line.strip()
            if line and line[0] not in "#%":
                yield line

    def _check_header(self) -> None:
        if self._says("timestamps"):
            raise self.wrong("series with time stamps are not read; write the values alone")
        if self._says("classlabel"):
            names = tuple(self.said["classlabel"][1:])
            if not 1 <= len(names) <= _MOST_CLASSES or len(set(names)) < len(names):
                raise self.wrong("@classLabel true must be followed by the classes, each once")
            self.part.classes, self.known = names, frozenset(names)
        elif not self._says("targetlabel"):
            raise self.wrong(
                "the series have no targets: expected @classLabel true with the classes, or "
                "@targetlabel true"
            )

    def _says(self, word: str) -> bool:
        return self.said.get(word, ["false"])[:1] in (["true"], ["True"])

    def _sample(self, line: str) -> None:
        *dimensions, target = line.split(":")
        if not dimensions:
            raise self.wrong("expected values, a colon and a target; there is no colon")
        columns = [self._values(text, d) for d, text in enumerate(dimensions, 1)]
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise self.wrong(
                "all dimensions of a sample must be as long; they have "
                f"{' and '.join(map(str, sorted(lengths)))} values"
            )
        sample = np.stack(columns, axis=1)
        wanted = self._count("dimensions") or (1 if self._says("univariate") else None)
        if self.part.samples:
            wanted = self.part.dimensions
        if wanted not in (None, sample.shape[1]):
            raise self.wrong(f"expected {wanted} dimensions; there are {sample.shape[1]}")
        declared = self._count("serieslength")
        if self._says("equallength") and declared not in (None, len(sample)):
            raise self.wrong(
                f"@equalLength and @seriesLength say {declared} values; there are {len(sample)}"
            )
        self.part.samples.append(sample)
        self._target(target.strip())

    def _values(self, text: str, dimension: int) -> np.ndarray:
        cells = text.split(",")
        values = np.array([_number(cell) for cell in cells])
        usable = np.abs(values) <= _LARGEST
        if not usable.all():
            place = int(usable.argmin())
            cell = cells[place].strip()
            found = "missing" if cell in ("?", "", "NaN", "nan") else f"{cell[:40]!r}"
            raise self.wrong(
                f"expected a finite number as value {place + 1} of dimension {dimension}; it is "
                f"{found}"
            )
        return values.astype(np.float32)

    def _target(self, text: str) -> None:
        if self.part.classes is None:
            if not abs(_number(text)) <= _LARGEST:
                raise self.wrong(f"expected a finite number as target; got {text[:40]!r}")
            self.part.values.append(_number(text))
            return
        if text not in self.known:
            raise self.wrong(
                f"the class {text[:40]!r} is not one of @classLabel: "
                f"{', '.join(self.part.classes[:20])}"
            )
        self.part.labels.append(text)

    def _count(self, word: str) -> int | None:
        text = "".join(self.said.get(word, []))
        return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def _number(text: str) -> float:
    """A number in decimal digits; NaN for anything else."""
    try:
        return float("nan" if "_" in text else text)
    except ValueError:
        return float("nan")


def _check_alike(train: _Part, test: _Part) -> None:
    if train.dimensions != test.dimensions:
        raise DataError(
            f"{test.file}: expected {train.dimensions} dimensions as in {train.file.name}; there "
            f"are {test.dimensions}."
        )
    if (train.classes is None) != (test.classes is None):
        raise DataError(
            f"{test.file} and {train.file.name} must both have classes or both have values."
        )
    unknown = sorted(set(test.labels) - set(train.classes or ()))
    if unknown:
        raise DataError(f"{test.file}: the class {unknown[0]!r} is not one of {train.file.name}.")


def _normalize(parts: list[_Part]) -> None:
    """Mean 0 and deviation 1 over all steps of the first part; a constant becomes 0."""
    steps = np.concatenate(parts[0].samples).astype(np.float64)
    mean, deviation = steps.mean(axis=0), steps.std(axis=0)
    deviation[deviation == 0] = 1
    for part in parts:
        part.samples = [((each - mean) / deviation).astype(np.float32) for each in part.samples]


def _split(part: _Part, longest: int, names: tuple[str, ...] | None) -> Split:
    lengths = np.array([len(sample) for sample in part.samples])
    x = np.zeros((len(part.samples), longest, part.dimensions), np.float32)
    for row, sample in zip(x, part.samples, strict=True):
        row[: len(sample)] = sample
    if names is None:
        y = np.array(part.values, np.float32)
    else:
        number = {name: i for i, name in enumerate(names)}
        y = np.array([number[label] for label in part.labels], np.int32)
    differ = lengths.min() < longest
    return check_split(x, y, str(part.file), lengths=lengths if differ else None)
