"""The types of the C++ module; `native/binding.cpp` is its source."""

from collections.abc import Sequence
from typing import Any

import numpy as np

def instruction_sets() -> list[str]: ...
def lanes(set: str) -> int: ...
def measure_peak(set: str, threads: int, seconds: float) -> float: ...
def xorshift64_fill(state: int, out: np.ndarray) -> int: ...
def xorshift64_shuffle(state: int, order: np.ndarray) -> int: ...

UNBOUNDED: int

def attend_float32(
    set: str,
    phase: int,
    threads: int,
    queries: int,
    keys: int,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    out: np.ndarray | None = None,
    lse: np.ndarray | None = None,
    probabilities: np.ndarray | None = None,
    **rest: Any,
) -> None: ...
def attend_float64(
    set: str,
    phase: int,
    threads: int,
    queries: int,
    keys: int,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    out: np.ndarray | None = None,
    lse: np.ndarray | None = None,
    probabilities: np.ndarray | None = None,
    **rest: Any,
) -> None: ...
def attend_short(
    set: str,
    phase: int,
    threads: int,
    sizes: tuple[int, int, int, int, int, int, int],
    scale: float,
    causal: bool,
    /,
    *places: int,
) -> None: ...
def address(array: np.ndarray, /) -> int: ...
def recycled(shape: tuple[int, ...], /) -> np.ndarray: ...

class Samples:
    def __init__(self, x: list[np.ndarray], first_row: list[np.ndarray | None]) -> None: ...
    @property
    def count(self) -> int: ...

class Targets:
    def __init__(
        self,
        classes: np.ndarray | None,
        values: np.ndarray | None,
        start: np.ndarray | None,
        rows: int,
        weights: np.ndarray | None,
        totals: np.ndarray | None,
    ) -> None: ...

class Session:
    def __init__(
        self,
        instructions: list[Any],
        buffers: list[Any],
        blocks: list[Any],
        folds: list[Any],
        axes: list[Any],
        arena_floats: int,
        group: int,
        parameter_floats: int,
        gradient_floats: int,
        derived: np.ndarray,
        patterns: list[Any],
        instruction_set: str,
    ) -> None: ...
    def bytes(self) -> list[int]: ...
    def run(
        self,
        parameters: np.ndarray,
        samples: Samples,
        outputs: Sequence[np.ndarray],
        starts: Sequence[np.ndarray],
        threads: int,
    ) -> None: ...
    def go_on(
        self,
        parameters: np.ndarray,
        samples: Samples,
        outputs: Sequence[np.ndarray],
        keys: Sequence[np.ndarray],
        values: Sequence[np.ndarray],
        rows: Sequence[int],
        sequences: np.ndarray,
        positions: np.ndarray,
        threads: int,
        same_parameters: bool,
    ) -> None: ...
    def gradients(
        self,
        parameters: np.ndarray,
        samples: Samples,
        targets: Targets | None,
        slice: int,
        total: np.ndarray,
        output_gradient: np.ndarray | None,
        gradient_start: np.ndarray,
        outputs: Sequence[np.ndarray],
        starts: Sequence[np.ndarray],
        threads: int,
        seed: int = 0,
        step: int = -1,
    ) -> float: ...
    def train(
        self,
        parameters: np.ndarray,
        slots: Sequence[np.ndarray],
        samples: Samples,
        targets: Targets,
        order: np.ndarray,
        batch: int,
        slice: int,
        rule: object,
        first_step: int,
        optimizer_steps: int,
        learning_rates: np.ndarray,
        threads: int,
        seed: int = 0,
    ) -> tuple[list[float], bool]: ...
