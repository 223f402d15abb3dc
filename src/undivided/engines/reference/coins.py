"""What the coins of dropout fall by, for some samples of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

    def arguments(self, op: Operation, shape: tuple[int, ...]) -> dict[str, Any]:
        rate, number = op.attributes["rate"], op.attributes["number"]
        kept = kept_numbers(shape, rate, self.seed, self.step, self.places, number)
        return {"rate": rate, "kept": kept}
