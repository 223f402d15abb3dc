"""What the coins of dropout fall by, for some samples of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from undivided.engines.reference.dropout import kept_numbers
from undivided.plan.plan import Operation

__all__ = ["Coins"]


@dataclass(frozen=True)
class Coins:
    """The same coins whenever they are asked for: a seed, a step, and places in its batch."""

    seed: int
    step: int
    places: np.ndarray

    def kept(self, op: Operation, rate: float, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """True where a number is kept: of the input, or of an attention's weights [B, H, S, T]."""
        shape = inputs[0].shape
        if op.kind == "attention":
            shape = (shape[0], op.attributes["heads"], shape[1], inputs[1].shape[1])
        number = op.attributes["number"]
        return kept_numbers(shape, rate, self.seed, self.step, self.places, number)
