"""A system in a process of its own, which waits without using a core until it is asked."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter, process_time
from types import TracebackType
from typing import Any

import numpy as np

from peers.registry import SYSTEMS, Entry, make
from peers.system import System

__all__ = ["Apart", "keep_to_cores"]


class Apart:
    """The interface of `System`, answered by another process."""

    def __init__(self, name: str, systems: Mapping[str, Entry] = SYSTEMS) -> None:
        self.name = name
        self.loss = float("nan")
        self.ready_seconds = float("nan")
        """How long `prepare` took: imports, data, compilation."""
        self.others = float("nan")
        """The share of all cores that other processes had during the last epoch."""
        # Spawned and not forked: a fork would inherit this process's threads half dead.
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, systems[name]), daemon=False)
        self._process.start()
        other.close()

    def prepare(self, task: Any, parameters: Sequence[np.ndarray]) -> None:
        started = perf_counter()
        self._ask("prepare", task, list(parameters))
        self.ready_seconds = perf_counter() - started

    def epoch(self, order: np.ndarray) -> float:
        seconds, self.loss, self.others = self._ask("epoch", order)
        return seconds

    def _ask(self, *request: Any) -> Any:
        self._connection.send(request)
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

    def __enter__(self) -> Apart:
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


def keep_to_cores(threads: int) -> None:
    """Use as many cores as there are threads: XLA starts a thread for each it may use."""
    if hasattr(os, "sched_setaffinity"):  # not every system has affinity
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def _epoch(system: System, order: np.ndarray) -> tuple[float, float, float]:
    """An epoch's seconds and loss, and the share of all cores that others had meanwhile."""
    started, own, all_work = perf_counter(), process_time(), _work_of_all()
    seconds = system.epoch(order)
    others = (_work_of_all() - all_work) - (process_time() - own)
    passed = (perf_counter() - started) * (os.cpu_count() or 1)
    return seconds, system.loss, max(0.0, others / passed)


def _work_of_all() -> float:
    """Seconds that the cores of the machine have worked so far; NaN where it does not say."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0]
    except OSError:
        return float("nan")
    # user nice system idle iowait irq softirq steal, in ticks
    ticks = [int(field) for field in first.split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _serve(connection: Connection, entry: Entry) -> None:
    """The other process: answer requests until nobody is there to ask."""
    system: Any = None
    while True:
        try:
            request, *arguments = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            if request == "prepare":
                keep_to_cores(arguments[0].threads)
                system = make(entry)
                answer: Any = system.prepare(*arguments)
            else:
                answer = _epoch(system, *arguments)
            connection.send((True, answer))
        except KeyboardInterrupt:
            return
        except Exception:
            connection.send((False, traceback.format_exc()))
