"""What every system does with a case: its ways to compute it are tried, the fastest is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from peers.apart import keep_to_cores, watched
from peers.attention.case import Case

__all__ = ["Calls", "Form", "Forms", "sample"]

Form = Callable[[], Sequence[Any]]
"""One call: out, and the gradients of query, key, value and a learned bias if asked for."""

TRIAL_SECONDS = 0.05
"""How long each way is tried, at least once after a first call."""


class Forms(Protocol):
    """A library: what it has to be told first, and its ways to compute a case."""

    def __init__(self, threads: int) -> None: ...

    def forms(self, case: Case) -> dict[str, Form]:
        """By name; every call ends when its results are there."""
        ...


class Calls:
    """A system in its own process."""

    def __init__(self, make: Callable[[int], Forms], threads: int) -> None:
        keep_to_cores(threads)
        self.library = make(threads)
        self.form: Form | None = None

    def prepare(self, case: Case) -> tuple[str, list[np.ndarray]] | None:
        """Which way is the fastest, and some numbers of its results; None if there is no way."""
        best = np.inf
        self.form, name = None, ""
        for each, form in self.library.forms(case).items():
            form()  # compiled, memory taken
            seconds = min(self._times(form, TRIAL_SECONDS))
            if seconds < best:
                best, self.form, name = seconds, form, each
        if self.form is None:
            return None
        return name, [sample(result) for result in self.form()]

    def time(self, seconds: float) -> tuple[list[float], float]:
        """Seconds of each call over about so long, after one more; the share others had."""
        form = self.form
        assert form is not None
        form()
        return watched(lambda: self._times(form, seconds))

    @staticmethod
    def _times(form: Form, seconds: float) -> list[float]:
        times = []
        end = perf_counter() + seconds
        while True:
            started = perf_counter()
            form()
            ended = perf_counter()
            times.append(ended - started)
            if ended >= end:
                return times


def sample(result: Any, count: int = 512) -> np.ndarray:
    """Numbers spread over an array, enough to tell another computation from this one."""
    flat = np.asarray(result).reshape(-1)
    return flat[np.linspace(0, flat.size - 1, min(count, flat.size)).astype(np.int64)]
