"""What training leaves behind: one entry an epoch, and the state from which it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from undivided.training.generators import Generator

__all__ = ["Epoch", "Evaluation", "TrainingState"]


@dataclass(frozen=True)
class Epoch:
    """One pass over all samples.

    `loss` is the mean over the samples as each was met, `seconds` the time of training alone
    (the shuffle included, the test not), `test_accuracy` a fraction, or None without a test.
    """

    epoch: int
    loss: float
    seconds: float
    test_accuracy: float | None = None

    def __str__(self) -> str:
        text = f"Epoch {self.epoch} | loss={self.loss:.6f} | time={self.seconds:.3f}s"
        if self.test_accuracy is not None:
            text += f" | test_acc={100 * self.test_accuracy:.2f}%"
        return text


@dataclass(frozen=True)
class Evaluation:
    """How a model does on samples whose classes are known; `accuracy` is a fraction."""

    loss: float
    accuracy: float


@dataclass
class TrainingState:
    """What a further `fit` needs, besides the engine's own arrays, to go on where one stopped.

    `order` is permuted again and again: an epoch shuffles what the epoch before left.
    `optimizer_steps` is Adam's t; it differs from `steps` in a model that was loaded, whose
    optimizer starts its averages anew while its schedule of learning rates goes on.
    """

    generator: Generator
    order: np.ndarray = field(default_factory=lambda: np.arange(0, dtype=np.uint32))
    steps: int = 0
    optimizer_steps: int = 0
    epochs: int = 0
    history: list[Epoch] = field(default_factory=list)

    def order_of(self, count: int) -> np.ndarray:
        """The order of `count` samples as the last epoch left it, or the first one."""
        if len(self.order) != count:
            self.order = np.arange(count, dtype=np.uint32)
        return self.order
