"""What a model says of samples, computed a bounded number of samples at a time.

A sample's result does not depend on the others, so how many go together is a matter of memory
and of how soon a Ctrl-C is noticed, not of what comes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from undivided.engines.engine import Engine, Results
from undivided.engines.reference import LOSSES
from undivided.plan.plan import Plan, Shape
from undivided.samples import Samples, longest_sample
from undivided.targets import as_targets
from undivided.training.history import Evaluation
from undivided.training.metrics import Metric, metrics_for

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


def predict(engine: Engine, x: Samples, check: Callable[[], None] | None = None) -> Results:
    """The plan's output for each sample; `check` may end it between two pieces."""
    if len(x) == 1:  # which goes alone, and should cost little more than its arithmetic
        return engine.predict(x)
    pieces = []
    for rows in _slices(engine.plan, x):
        if check is not None:
            check()
        pieces.append(engine.predict(x[rows]))
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    return [result for piece in pieces for result in piece]


def evaluate(
    engine: Engine,
    x: Samples,
    y: Any,
    metrics: Sequence[Metric] | None = None,
    check: Callable[[], None] | None = None,
) -> Evaluation:
    """The mean loss of the samples and what the metrics say of them, a piece at a time."""
    loss, targets = engine.plan.loss, as_targets(engine.plan, y, len(x))
    metrics = metrics_for(loss) if metrics is None else metrics
    losses, sums = 0.0, [np.zeros(()) for _ in metrics]
    for rows in _slices(engine.plan, x):
        if check is not None:
            check()
        output = engine.predict(x[rows])
        wanted = targets.take(np.arange(len(x))[rows])
        width = engine.plan.output.width
        flat = _rows(output, width)
        weights = np.ones(len(flat)) if wanted.weights is None else wanted.weights
        at_once = max(1, _VALUES_AT_ONCE // width)
        for start in range(0, len(flat), at_once):  # in float64, which a vocabulary's scores feel
            piece = slice(start, start + at_once)
            scores, met, weight = flat[piece], wanted.values[piece], weights[piece]
            scores, weight = scores.astype(np.float64), weight.astype(np.float64)
            met = met if met.ndim == 1 else met.astype(np.float64)
            each = LOSSES[loss.primitive].forward(scores, met, **loss.attributes())
            losses += float((each * weight).sum())
            sums = [
                known + metric.sums(loss.targets, scores, met, weight)
                for known, metric in zip(sums, metrics, strict=True)
            ]
    found = {m.label: m.value(s) for m, s in zip(metrics, sums, strict=True)}
    return Evaluation(losses / targets.weight_of(), found.get("accuracy"), found)


def _rows(output: Results, width: int) -> np.ndarray:
    """The rows of all samples end to end."""
    if isinstance(output, np.ndarray):
        return output.reshape(-1, width)
    return np.concatenate([each.reshape(-1, width) for each in output])


def probabilities(logits: np.ndarray, link: str = "softmax") -> np.ndarray:
    """softmax(logits) over the last axis, or the sigmoid of each."""
    if link == "sigmoid":
        e = np.exp(-np.abs(logits))
        return np.where(logits < 0, e, 1) / (1 + e)
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _slices(plan: Plan, x: Samples) -> Iterator[slice]:
    step = samples_at_once(plan, longest_sample(x))
    for start in range(0, len(x), step):
        yield slice(start, start + step)
