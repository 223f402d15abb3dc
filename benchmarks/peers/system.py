"""What every system offers, and what they are all given: the same task, parameters and order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

__all__ = ["System", "Task", "mnist_patches", "patches"]

# N images, B in a batch, S = 49 tokens, C = 16 pixels of a patch, D model width, F feed-forward
# width. The parameters come as a list, weights [in, out], in this order:
#   Wp [C, D]  bp [D]  positions [S, D]
#   Wq [D, D]  bq [D]  Wk [D, D]  bk [D]  Wv [D, D]  bv [D]
#   W1 [D, F]  b1 [F]  W2 [F, D]  b2 [D]  Wc [D, 10]  bc [10]

PATCH = 4


@dataclass(frozen=True)
class Task:
    """What is trained: a recipe, with the settings that the comparison may change."""

    recipe: str
    seed: int
    samples: int
    """How many of the training images, from the first, make an epoch."""
    batch_size: int
    learning_rate: float
    threads: int


class System(Protocol):
    """A library that trains the classifier."""

    loss: float
    """The mean loss of the last epoch, each sample's as it was met."""

    def prepare(self, task: Task, parameters: Sequence[np.ndarray]) -> None:
        """Import, convert the data, compile; afterwards an epoch is only training."""
        ...

    def epoch(self, order: np.ndarray) -> float:
        """Take every image that `order` names once, in batches, updating; the seconds it took.

        What has to be compiled for an order of another length is compiled before the clock
        starts.
        """
        ...


def patches(images: np.ndarray) -> np.ndarray:
    """Bytes [N, H, W] → float32 [N, S, C] from 0 to 1; token by row, pixel in a patch by row."""
    count, height, width = images.shape
    down, across = height // PATCH, width // PATCH
    cut = images.reshape(count, down, PATCH, across, PATCH).transpose(0, 1, 3, 2, 4)
    return cut.reshape(count, down * across, PATCH * PATCH).astype(np.float32) / np.float32(255)


def mnist_patches(samples: int) -> tuple[np.ndarray, np.ndarray]:
    """The task's images as patches, and their classes int32: ready-made for the peers."""
    from undivided.data import mnist

    train = mnist().train.take(samples)
    return patches(train.x), train.y
