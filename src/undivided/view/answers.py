"""What a model says of a sample, beside what is true: for the sample, or for each of its positions.

classes   the highest score is the class, with the probabilities of the highest few
shares    each output is a yes or no of its own
values    the numbers that the last layer gives
"""

# R positions (1 where the output is for the whole sample), C numbers in a row

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from undivided.training.evaluation import probabilities
from undivided.training.losses import Loss

__all__ = ["answer"]

MOST = 5
"""The outputs of a row that are shown: the most probable, or the first values."""

Name = Callable[[int], str]


def answer(loss: Loss, output: np.ndarray, target: np.ndarray | None, name: Name) -> dict[str, Any]:
    """`output` is [C] or [R, C]; `target` holds class numbers [R] or numbers [R, C]."""
    rows = output.reshape(-1, output.shape[-1])
    targets = [None] * len(rows) if target is None else list(target)
    if loss.link is None:
        kind, positions = "values", [_values(*pair) for pair in zip(rows, targets, strict=True)]
    elif loss.link == "sigmoid":
        p = probabilities(rows, "sigmoid")
        kind = "shares"
        positions = [_shares(*pair, name) for pair in zip(p, targets, strict=True)]
    else:
        p = probabilities(rows)
        kind = "classes"
        positions = [_class(*pair, name) for pair in zip(p, targets, strict=True)]
    return {"kind": kind, "each": output.ndim > 1, "positions": positions}


def _class(p: np.ndarray, target: Any, name: Name) -> dict[str, Any]:
    predicted = int(p.argmax())
    found: dict[str, Any] = {"predicted": name(predicted), "label": None, "right": None}
    if target is not None:
        wanted = int(target if np.ndim(target) == 0 else np.argmax(target))
        found |= {"label": name(wanted), "right": wanted == predicted}
    order = np.argsort(-p, kind="stable")[:MOST]
    return found | {"top": [[name(int(c)), float(p[c])] for c in order]}


def _shares(p: np.ndarray, target: np.ndarray | None, name: Name) -> dict[str, Any]:
    def said(yes: np.ndarray) -> str:
        return ", ".join(name(int(c)) for c in np.flatnonzero(yes)[:MOST]) or "none"

    found: dict[str, Any] = {"predicted": said(p > 0.5), "label": None, "right": None}
    if target is not None:
        right = bool(((p > 0.5) == (target > 0.5)).all())
        found |= {"label": said(target > 0.5), "right": right}
    order = np.argsort(-p, kind="stable")[:MOST]
    return found | {"top": [[name(int(c)), float(p[c])] for c in order]}


def _values(y: np.ndarray, target: np.ndarray | None) -> dict[str, Any]:
    """No verdict: how near is near enough is not for a page to say."""
    return {
        "predicted": _written(y),
        "label": None if target is None else _written(target),
        "right": None,
        "top": [],
    }


def _written(values: np.ndarray) -> str:
    more = ", …" if len(values) > MOST else ""
    return ", ".join(f"{value:.4g}".replace("-", "−") for value in values[:MOST]) + more
