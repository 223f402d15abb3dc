"""The log of a training run: a CSV file with one line an epoch, there as soon as it is over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from undivided.errors import ArgumentError
from undivided.training.history import Epoch, is_share
from undivided.training.progress import Progress

__all__ = ["Log"]


class Log(Progress):
    """`epoch,loss,time,test_accuracy`: a column for each metric, empty without a test.

    Accuracies are in percent.

    The folder is made. Opening happens at once, so that a path that cannot be written is an
    error before training and not after it. `continued` adds to a log that is there already.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        continued: bool = False,
        metrics: Sequence[str] = ("accuracy",),
    ) -> None:
        self.path = Path(os.path.expanduser(path))
        self.metrics = tuple(metrics)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = self.path.open("a" if continued else "w", encoding="utf-8")
            if self._file.tell() == 0:
                self._write(",".join(["epoch,loss,time", *(f"test_{m}" for m in self.metrics)]))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ArgumentError(
                f"The log {str(self.path)!r} cannot be written: {reason}. Name another file.",
                argument="log",
            ) from error

    def finished(self, entry: Epoch) -> None:
        start = f"{entry.epoch},{entry.loss:.6f},{entry.seconds:.3f}"
        self._write(",".join([start, *(self._cell(entry, name) for name in self.metrics)]))

    def _cell(self, entry: Epoch, name: str) -> str:
        value = entry.test_accuracy if name == "accuracy" else entry.metrics.get(name)
        if value is None:
            return ""
        return f"{100 * value:.2f}" if is_share(name) else f"{value:.6g}"

    def _write(self, line: str) -> None:
        self._file.write(line + "\n")
        self._file.flush()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
