"""Who watches a training run: subclasses of `Progress` show it, write it down, or stop it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from undivided.training.history import Epoch

__all__ = ["Calling", "Interruption", "Lines", "Progress", "StopTraining"]


class Progress:
    """What `fit` tells while it goes on. This one does nothing with it; subclasses do.

    An exception raised here ends the run; the model keeps what it has learned.
    """

    def advanced(self, epoch: int, done: int, samples: int, loss: float) -> None:
        """`done` of the epoch's `samples` were seen; `loss` is their mean loss."""

    def finished(self, entry: Epoch) -> None:
        """An epoch is over, and tested."""


class StopTraining(Exception):
    """Raised by a callback to end the training after this epoch; `fit` returns as usual."""


class Calling(Progress):
    """A function that is called with every epoch's entry."""

    def __init__(self, function: Callable[[Epoch], object]) -> None:
        self._function = function

    def finished(self, entry: Epoch) -> None:
        self._function(entry)


class Lines(Progress):
    """One printed line an epoch."""

    def finished(self, entry: Epoch) -> None:
        print(entry, flush=True)


class Interruption:
    """Ctrl-C between two steps, never inside one.

    An interrupt in the middle of an update would leave half of the weights changed. So while
    this context lasts the first Ctrl-C is only noted, and `check` raises it where all is
    consistent; a second one is raised at once. Handlers that are not Python's own stay.
    """

    def __init__(self) -> None:
        self._requested = False
        self._installed = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was a Ctrl-C."""
        if self._requested:
            raise KeyboardInterrupt

    def __enter__(self) -> Interruption:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            signal.signal(signal.SIGINT, self._note)
            self._installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind is None:
            self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._requested:
            raise KeyboardInterrupt
        self._requested = True
