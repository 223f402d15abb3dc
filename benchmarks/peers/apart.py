"""A system in a process of its own, which waits without using a core until it is asked."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, process_time
from types import TracebackType
from typing import Any, Self

import numpy as np

from peers.registry import SYSTEMS, Entry, make
from peers.system import System

__all__ = ["Apart", "Process", "keep_to_cores", "watched"]


class Process:
    """An object of another process: `ask` calls its methods there."""

    def __init__(self, name: str, make: Callable[..., Any], *arguments: Any) -> None:
        self.name = name
        # Spawned and not forked: a fork would inherit this process's threads half dead.
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, make, *arguments), daemon=False)
        self._process.start()
        other.close()

    def ask(self, method: str, *arguments: Any) -> Any:
        self._connection.send((method, arguments))
        try:
            answered, answer = self._connection.recv()
        except EOFError:
            raise RuntimeError(f"The process of {self.name} ended.") from None
        if not answered:
            raise RuntimeError(f"{self.name} failed:\n{answer}")
        return answer

    def close(self) -> None:
        """End the process, at once if it does not end by itself."""
        self._connection.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.terminate()
        self.close()


class Apart(Process):
    """The interface of `System`, answered by another process."""

    def __init__(self, name: str, systems: Mapping[str, Entry] = SYSTEMS) -> None:
        super().__init__(name, _Training, systems[name])
        self.loss = float("nan")
        self.ready_seconds = float("nan")
        """How long `prepare` took: imports, data, compilation."""
        self.others = float("nan")
        """The share of all cores that other processes had during the last epoch."""

    def prepare(self, task: Any, parameters: Sequence[np.ndarray]) -> None:
        started = perf_counter()
        self.ask("prepare", task, list(parameters))
        self.ready_seconds = perf_counter() - started

    def epoch(self, order: np.ndarray) -> float:
        seconds, self.loss, self.others = self.ask("epoch", order)
        return seconds


class _Training:
    """A system, in the process that is its own."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.system: System | None = None

    def prepare(self, task: Any, parameters: Sequence[np.ndarray]) -> None:
        keep_to_cores(task.threads)
        self.system = make(self.entry)
        self.system.prepare(task, parameters)

    def epoch(self, order: np.ndarray) -> tuple[float, float, float]:
        system = self.system
        assert system is not None
        seconds, others = watched(lambda: system.epoch(order))
        return seconds, system.loss, others


def keep_to_cores(threads: int) -> None:
    """Use as many cores as there are threads: XLA starts a thread for each it may use."""
    if hasattr(os, "sched_setaffinity"):  # not every system has affinity
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def watched(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` gives, and the share of all cores that others had meanwhile."""
    started, own, all_work = perf_counter(), process_time(), _work_of_all()
    result = work()
    others = (_work_of_all() - all_work) - (process_time() - own)
    passed = (perf_counter() - started) * (os.cpu_count() or 1)
    return result, min(1.0, max(0.0, others / passed))


def _work_of_all() -> float:
    """Seconds that the cores of the machine have worked so far; NaN where it does not say."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0]
    except OSError:
        return float("nan")
    # user nice system idle iowait irq softirq steal, in ticks
    ticks = [int(field) for field in first.split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _serve(connection: Connection, make: Callable[..., Any], *arguments: Any) -> None:
    """The other process: answer requests until nobody is there to ask."""
    served: Any = None
    while True:
        try:
            method, given = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            if served is None:
                served = make(*arguments)
            connection.send((True, getattr(served, method)(*given)))
        except KeyboardInterrupt:
            return
        except Exception:
            connection.send((False, traceback.format_exc()))
