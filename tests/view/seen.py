"""What the tests of the page share: how one is opened, and what its numbers should be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from chromium import Tab

import undivided
from undivided.engines.reference import ReferenceEngine

__all__ = ["Open", "reference"]

Open = Callable[..., Tab]


def reference(model: undivided.Model) -> ReferenceEngine:
    """The definition, with the model's parameters."""
    engine = ReferenceEngine(model.plan, np.float64)
    for name, values in model.parameters.items():
        engine.parameters[name][...] = values
    return engine
