"""What this machine offers, and what the user wants of it: instruction sets and threads."""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path
from typing import Any

from undivided import _native
from undivided.errors import ArgumentError

__all__ = ["available_threads", "instruction_set", "thread_count"]

MOST_THREADS = 1024


def instruction_set() -> str:
    """The widest set that the machine has, or the one that UNDIVIDED_ISA names."""
    return _chosen(os.environ.get("UNDIVIDED_ISA"))


@functools.cache
def _chosen(wanted: str | None) -> str:
    sets = _native.instruction_sets()
    if wanted and wanted not in sets:
        raise ArgumentError(
            f"UNDIVIDED_ISA must be one of the instruction sets of this machine: "
            f"{', '.join(sets)}. Got {wanted!r}."
        )
    return wanted or sets[0]


def thread_count(threads: int | None) -> int:
    """`threads`, else UNDIVIDED_THREADS, else what affinity and the container's quota allow."""
    if threads is not None:
        return _checked(threads, "'threads'")
    wanted = os.environ.get("UNDIVIDED_THREADS")
    if wanted:
        try:
            return _checked(int(wanted), "UNDIVIDED_THREADS")
        except ValueError:
            raise ArgumentError(
                f"UNDIVIDED_THREADS must be a whole number from 1 to {MOST_THREADS}. "
                f"Got {wanted!r}."
            ) from None
    return available_threads()


def _checked(threads: Any, name: str) -> int:
    whole = hasattr(threads, "__index__") and not isinstance(threads, bool)
    if not whole or not 1 <= threads <= MOST_THREADS:
        raise ArgumentError(
            f"{name} must be a whole number from 1 to {MOST_THREADS}. Got {threads!r}.",
            argument="threads",
        )
    return int(threads)


def available_threads() -> int:
    """The cores this process may use: its affinity, and no more than its quota of time."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not every system has affinity
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, granted_cores())))


@functools.cache
def granted_cores() -> float:
    """How many cores' time the container grants: cgroup version 2, then 1, else no limit.

    Asked once: short calls of the operator would spend most of their time reading it again.
    """
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        folder = Path("/sys/fs/cgroup/cpu")
        quota_us = int((folder / "cpu.cfs_quota_us").read_text())
        period_us = int((folder / "cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf
