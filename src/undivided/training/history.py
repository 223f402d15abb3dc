"""What training leaves behind: one entry an epoch, and the state from which it goes on."""

from __future__ import annotations

from collections.abc import Mapping
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
    (the shuffle included, the test not). After a test, `test_loss` is its loss, `metrics` what
    the network's metrics say, by name, and `test_accuracy` a fraction where it is one of them.
    """

    epoch: int
    loss: float
    seconds: float
    test_accuracy: float | None = None
    test_loss: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"Epoch {self.epoch} | loss={self.loss:.6f} | time={self.seconds:.3f}s"
        if self.test_accuracy is not None:
            text += f" | test_acc={percent(self.test_accuracy)}"
        others = {name: value for name, value in self.metrics.items() if name != "accuracy"}
        return text + shown(others)


@dataclass(frozen=True)
class Evaluation:
    """How a model does on samples whose targets are known.

    `metrics` are the network's, by name; `accuracy` is a fraction where it is one of them.
    """

    loss: float
    accuracy: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"loss={self.loss:.6f}"
        if self.accuracy is not None:
            text += f" | test_acc={percent(self.accuracy)}"
        return text + shown({k: v for k, v in self.metrics.items() if k != "accuracy"})


def percent(share: float) -> str:
    """A fraction as people read it: `97.50%`."""
    return f"{100 * share:.2f}%"


def shown(metrics: Mapping[str, float]) -> str:
    """` | test_mae=0.1234`: metrics at the end of a line."""
    return "".join(
        f" | test_{name}={percent(value) if is_share(name) else f'{value:.6g}'}"
        for name, value in metrics.items()
    )


def is_share(metric: str) -> bool:
    """Whether a metric of this name is a fraction, which people read as percent."""
    return metric == "accuracy" or metric.startswith("top_")


@dataclass
class TrainingState:
    """What a further `fit` needs, besides the engine's own arrays, to go on where one stopped.

    `order` is permuted again and again: an epoch shuffles what the epoch before left.
    `optimizer_steps` is Adam's t; it differs from `steps` in a model that was loaded, whose
    optimizer starts its averages anew while its schedule of learning rates and dropout's coins go
    on. `end` is the
    number of steps after which the fit that is running, or the last one, ends.
    """

    generator: Generator
    order: np.ndarray = field(default_factory=lambda: np.arange(0, dtype=np.uint32))
    steps: int = 0
    optimizer_steps: int = 0
    end: int | None = None
    epochs: int = 0
    history: list[Epoch] = field(default_factory=list)

    def order_of(self, count: int) -> np.ndarray:
        """The order of `count` samples as the last epoch left it, or the first one."""
        if len(self.order) != count:
            self.order = np.arange(count, dtype=np.uint32)
        return self.order
