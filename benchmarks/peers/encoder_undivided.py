"""undivided on the encoder: `Model.fit`, and a wall clock around the call."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from peers.encoder import Encoder, network_of, samples_of

__all__ = ["Undivided"]


class Undivided:
    def __init__(self) -> None:
        self.loss = float("nan")

    def prepare(self, task: Encoder, parameters: Sequence[np.ndarray]) -> None:
        import undivided

        self.batch_size = task.B
        x, y, lengths = samples_of(task)
        self.x: Any = x
        if task.ragged:
            self.x = [row[:length] for row, length in zip(x, lengths, strict=True)]
        self.y = y
        self.model = undivided.Model(network_of(task), seed=task.seed, threads=task.threads)
        for mine, given in zip(self.model.parameters.values(), parameters, strict=True):
            if not np.array_equal(mine, given):
                raise ValueError("the model's parameters are not those that the peers are given")

    def epoch(self, order: np.ndarray) -> float:
        """`fit` shuffles for itself, within the time; the order it makes is the one given here."""
        started = perf_counter()
        (entry,) = self.model.fit((self.x, self.y), epochs=1, batch_size=self.batch_size, log=False)
        seconds = perf_counter() - started
        self.loss = entry.loss
        return seconds
