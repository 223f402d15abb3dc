"""undivided as its users run it: `Model.fit`, and a wall clock around the call."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from peers.system import Task

__all__ = ["Undivided"]


class Undivided:
    def __init__(self) -> None:
        self.loss = float("nan")

    def prepare(self, task: Task, parameters: Sequence[np.ndarray]) -> None:
        import undivided

        network = undivided.recipe(task.recipe)
        self.train = undivided.datasets.mnist().train.take(task.samples)
        self.batch_size = task.batch_size
        self.learning_rate = task.learning_rate
        self.model = undivided.Model(network, seed=task.seed, threads=task.threads)
        for mine, given in zip(self.model.parameters.values(), parameters, strict=True):
            if not np.array_equal(mine, given):
                raise ValueError("the model's parameters are not those that the peers are given")

    def epoch(self, order: np.ndarray) -> float:
        """`fit` shuffles for itself, within the time; the order it makes is the one given here."""
        samples = self.train.take(len(order))
        started = perf_counter()
        (entry,) = self.model.fit(
            samples,
            epochs=1,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            log=False,
        )
        seconds = perf_counter() - started
        self.loss = entry.loss
        return seconds
