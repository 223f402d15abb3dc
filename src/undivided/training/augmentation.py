"""Augmentation: samples as they might have been, drawn anew in every epoch.

What a sample becomes depends on the seed, the epoch and the number of the sample alone, so that
neither threads nor chunks nor a stop and a second fit change it.
"""

# B samples of a chunk, H × W pixels, and channels where there are any

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from undivided.description import Description, argument
from undivided.errors import DataError

__all__ = ["Augmentation", "RandomShift"]

_PURPOSE = 2
"""The generators' number for what is drawn here (`generators.py`)."""


@dataclass(frozen=True)
class Augmentation(Description, family=True):
    """What happens to samples before a step of training; never to those of a test."""

    def check_samples(self, shape: tuple[int, ...]) -> None:
        """Refuse samples that it cannot be applied to."""

    def apply(self, x: np.ndarray, seed: int, epoch: int, numbers: np.ndarray) -> np.ndarray:
        """The samples `numbers` (x are these) as this epoch sees them."""
        raise NotImplementedError


@dataclass(frozen=True)
class RandomShift(Augmentation):
    """Pictures moved by up to so many pixels, each way alike; what comes in is 0."""

    pixels: int = argument(2, doc="how far at most, down and across", at_least=1)

    def check_samples(self, shape: tuple[int, ...]) -> None:
        if len(shape) not in (2, 3) or min(shape[:2]) <= self.pixels:
            raise DataError(
                f"RandomShift({self.pixels}) is for pictures, (height, width) or (height, width, "
                f"channels), that are larger than {self.pixels} pixels. The samples are {shape}."
            )

    def apply(self, x: np.ndarray, seed: int, epoch: int, numbers: np.ndarray) -> np.ndarray:
        from undivided.training.generators import philox4x32

        counter = np.zeros((len(numbers), 4), np.uint32)
        counter[:, 0] = numbers
        counter[:, 2] = epoch
        counter[:, 3] = _PURPOSE
        words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))[:, :2].astype(np.uint64)
        places = 2 * self.pixels + 1
        down, across = (words * np.uint64(places) >> np.uint64(32)).astype(np.intp).T
        margin = [(0, 0)] * x.ndim
        margin[1] = margin[2] = (self.pixels, self.pixels)
        wide = np.pad(x, margin)
        height, width = x.shape[1:3]
        # [B, places, places, …, H, W]: every picture at every place, without a copy
        windows = np.lib.stride_tricks.sliding_window_view(wide, (height, width), axis=(1, 2))
        moved = windows[np.arange(len(x)), down, across]
        return np.ascontiguousarray(np.moveaxis(moved, 1, -1) if x.ndim == 4 else moved)
