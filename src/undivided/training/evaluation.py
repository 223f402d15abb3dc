"""What a model says of samples, computed a bounded number of samples at a time.

A sample's result does not depend on the others, so how many go together is a matter of memory
and of how soon a Ctrl-C is noticed, not of what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from undivided.engines.engine import Engine
from undivided.plan.plan import Plan, Shape
from undivided.samples import Samples, longest_sample
from undivided.training.history import Evaluation

__all__ = ["evaluate", "predict", "probabilities", "samples_at_once"]

# N samples, C classes; logits are [N, C].

_VALUES_AT_ONCE = 1 << 24  # 64 MiB of float32, for an engine that keeps every value of a plan
_MOST_SAMPLES = 1024


def samples_at_once(plan: Plan, length: int) -> int:
    """How many samples, at most of that length, to hand to an engine together."""

    def size(shape: Shape) -> int:
        return math.prod(extent if isinstance(extent, int) else length for extent in shape)

    values = sum(size(value.shape) for value in plan.values.values())
    scores = sum(
        operation.attributes["heads"] * size(plan.values[operation.inputs[0]].shape[:1]) ** 2
        for operation in plan.operations
        if operation.kind == "attention"
    )
    return max(1, min(_MOST_SAMPLES, _VALUES_AT_ONCE // max(1, values + scores)))


def predict(engine: Engine, x: Samples, check: Callable[[], None] | None = None) -> np.ndarray:
    """The plan's output for each sample; `check` may end it between two pieces."""
    pieces = []
    for rows in _slices(engine.plan, x):
        if check is not None:
            check()
        pieces.append(engine.predict(x[rows]))
    return np.concatenate(pieces)


def evaluate(
    engine: Engine, x: Samples, y: np.ndarray, check: Callable[[], None] | None = None
) -> Evaluation:
    """Mean loss and share of samples whose highest score, the first of equals, is their class."""
    logits = predict(engine, x, check)
    right = np.count_nonzero(logits.argmax(axis=1) == y)
    return Evaluation(float(_losses(logits, y).mean()), float(right / len(x)))


def probabilities(logits: np.ndarray) -> np.ndarray:
    """softmax(logits) over the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _losses(logits: np.ndarray, y: np.ndarray) -> np.ndarray:
    """−ln softmax(logits)[y] of each sample, by log-sum-exp: [N] float64."""
    scores = logits.astype(np.float64)
    highest = scores.max(axis=1)
    lse = highest + np.log(np.exp(scores - highest[:, None]).sum(axis=1))
    return lse - scores[np.arange(len(y)), y]


def _slices(plan: Plan, x: Samples) -> Iterator[slice]:
    step = samples_at_once(plan, longest_sample(x))
    for start in range(0, len(x), step):
        yield slice(start, start + step)
