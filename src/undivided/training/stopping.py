"""Early stopping: no more epochs where the test has long stopped getting better."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from undivided.description import Description, argument
from undivided.engines.engine import Engine
from undivided.errors import ArgumentError
from undivided.training.history import Epoch

__all__ = ["EarlyStopping", "Patience"]

_LESS_IS_BETTER = ("loss", "mae", "mse", "perplexity", "bits_per_character")


@dataclass(frozen=True)
class EarlyStopping(Description, family=True, keyword="EarlyStopping"):
    """Training ends after so many epochs without a better one, with the best one's parameters.

    What is looked at is the test's loss, or one of its metrics by name: "accuracy" or "r2", of
    which more is better, "mae", of which less is. Only parameters go back to what they were; how
    many epochs were trained, and what the optimizer keeps, stay.
    """

    patience: int = argument(5, doc="epochs without a better one", at_least=1)
    metric: str = argument("loss", doc="what is to get better in the test")
    least: float = argument(0.0, doc="by how much, to count as better", at_least=0.0)
    restore_best: bool = argument(True, doc="whether the parameters of the best epoch come back")


class Patience:
    """What a stopping knows of one `fit`."""

    def __init__(self, stopping: EarlyStopping, engine: Engine) -> None:
        self.stopping, self.engine = stopping, engine
        self.best = math.inf
        self.waited = 0
        self.kept: dict[str, np.ndarray] = {}

    def is_over(self, entry: Epoch) -> bool:
        """Take note of an epoch; true when there were enough without a better one."""
        value = self._value(entry)
        if value < self.best - (self.stopping.least if math.isfinite(self.best) else 0.0):
            self.best, self.waited = value, 0
            if self.stopping.restore_best:
                self.kept = {name: v.copy() for name, v in self.engine.parameters.items()}
            return False
        self.waited += 1
        return self.waited >= self.stopping.patience

    def restore(self) -> None:
        """Bring back the best epoch's parameters."""
        for name, values in self.kept.items():
            self.engine.parameters[name][...] = values

    def _value(self, entry: Epoch) -> float:
        """What is looked at, turned so that less is better."""
        name = self.stopping.metric
        known = {**entry.metrics, "loss": entry.test_loss}
        value = known.get(name)
        if value is None:
            raise ArgumentError(
                f"EarlyStopping looks at {name!r} of the test, and there is none. "
                f"There are: {', '.join(k for k, v in known.items() if v is not None) or 'none'}. "
                "It needs test samples: give some, or say validation_split.",
                argument="metric",
            )
        return value if name in _LESS_IS_BETTER else -value
