"""What a person at a terminal sees while a model trains."""

from __future__ import annotations

from time import perf_counter
from types import TracebackType

from undivided.training.history import Epoch
from undivided.training.progress import Progress

__all__ = ["Bar"]


class Bar(Progress):
    """A line an epoch, and below the lines a bar with loss, samples a second and time left.

    It is drawn from the training loop, not by a thread of its own: that would take a core.
    """

    redraws_per_second = 10

    def __init__(self, epochs: int, samples: int) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Drawing

        self._total = epochs * samples
        self._epochs = epochs
        self._drawing = Drawing(
            TextColumn("Epoch {task.fields[epoch]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            auto_refresh=False,
            transient=True,
        )
        self._task = self._drawing.add_task("", total=self._total, epoch="", text="")
        self._first: int | None = None
        self._started = self._drawn = perf_counter()

    def advanced(self, epoch: int, done: int, samples: int, loss: float) -> None:
        now = perf_counter()
        if self._first is None:
            self._first = epoch
        if now - self._drawn < 1 / self.redraws_per_second:
            return
        self._drawn = now
        number = epoch - self._first
        seen = number * samples + done
        speed = seen / (now - self._started)
        text = (
            f"loss={loss:.4f} | {speed:,.0f} samples/s | "
            f"{_duration((self._total - seen) / speed)} left"
        )
        self._drawing.update(
            self._task, completed=seen, epoch=f"{number + 1}/{self._epochs}", text=text
        )
        self._drawing.refresh()

    def finished(self, entry: Epoch) -> None:
        self._drawing.console.print(str(entry), markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Bar:
        self._drawing.start()
        self._started = self._drawn = perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drawing.stop()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
