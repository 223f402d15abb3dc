"""Metrics: how well a model does, in numbers for people.

A metric is a few sums over rows and a function of them, so that samples can be looked at in
pieces and what comes out does not tell the pieces. Weighted rows count as in the loss.
"""

# R rows, C numbers in a row; output [R, C], targets [R] classes or [R, C] numbers, weights [R]

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from undivided.description import Description, argument
from undivided.training.losses import Loss, TargetKind

__all__ = [
    "MAE",
    "MSE",
    "R2",
    "Accuracy",
    "BitsPerCharacter",
    "Metric",
    "Perplexity",
    "TopK",
    "metrics_for",
]

_CLASSES: tuple[TargetKind, ...] = ("classes", "distributions")


@dataclass(frozen=True)
class Metric(Description, family=True):
    """A number that says how well outputs meet their targets."""

    wants: ClassVar[tuple[TargetKind, ...]] = ("values",)
    """The kinds of targets that it can be told from."""

    @property
    def label(self) -> str:
        """The name under which the number is kept, printed and logged."""
        return self.short or self.keyword

    def sums(
        self, kind: TargetKind, output: np.ndarray, targets: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        """What of these rows has to be known, to be added to that of others."""
        raise NotImplementedError

    def value(self, sums: np.ndarray) -> float:
        """The metric, from the sums over all rows."""
        return float(sums[0] / sums[1]) if sums[1] else math.nan


@dataclass(frozen=True)
class Accuracy(Metric, short=("accuracy", "acc")):
    """The share of rows whose highest score, the first of equals, is that of their class.

    Where each output is a yes or no of its own, the share of those that are right.
    """

    wants: ClassVar[tuple[TargetKind, ...]] = (*_CLASSES, "shares")

    def sums(
        self, kind: TargetKind, output: np.ndarray, targets: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        if kind == "shares":
            right = ((output > 0) == (targets > 0.5)).mean(axis=1)
        else:
            right = output.argmax(axis=1) == _classes(targets)
        return np.array([(right * weights).sum(), weights.sum()])


@dataclass(frozen=True)
class TopK(Metric, short=("top_k",)):
    """The share of rows whose class is among the k highest scores."""

    wants: ClassVar[tuple[TargetKind, ...]] = _CLASSES

    k: int = argument(5, doc="how many scores", at_least=1)

    @property
    def label(self) -> str:
        return f"top_{self.k}"

    def sums(
        self, kind: TargetKind, output: np.ndarray, targets: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        classes = _classes(targets)
        own = output[np.arange(len(output)), classes]
        # As argmax takes the first of equals, equal scores of lower numbers come before.
        before = output > own[:, None]
        before |= (output == own[:, None]) & (np.arange(output.shape[1]) < classes[:, None])
        right = before.sum(axis=1) < self.k
        return np.array([(right * weights).sum(), weights.sum()])


@dataclass(frozen=True)
class MAE(Metric, short=("mae",)):
    """The mean of |output − target|."""

    def sums(
        self, kind: TargetKind, output: np.ndarray, targets: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        errors = np.abs(output - targets).mean(axis=1)
        return np.array([(errors * weights).sum(), weights.sum()])


@dataclass(frozen=True)
class MSE(Metric, short=("mse",)):
    """The mean of (output − target)²."""

    def sums(
        self, kind: TargetKind, output: np.ndarray, targets: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        errors = ((output - targets) ** 2).mean(axis=1)
        return np.array([(errors * weights).sum(), weights.sum()])


@dataclass(frozen=True)
class R2(Metric, short=("r2",)):
    """1 − Σ(target − output)²/Σ(target − mean)² for each number of a row; the mean of these.

    1 is perfect, 0 is what the mean of the targets would reach. A number whose target is always
    the same counts 1 if it is met everywhere, else 0.
    """

    def sums(
        self, kind: TargetKind, output: np.ndarray, targets: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        w = weights[:, None]
        errors = (w * (targets - output) ** 2).sum(axis=0)
        counts = np.full(output.shape[1], weights.sum())
        return np.stack([errors, counts, (w * targets).sum(axis=0), (w * targets**2).sum(axis=0)])

    def value(self, sums: np.ndarray) -> float:
        errors, count, total, squares = sums
        if not count.all():
            return math.nan
        spread = squares - total**2 / count
        varies = spread > 1e-12 * squares
        share = np.where(varies, 1 - errors / np.where(varies, spread, 1.0), errors == 0)
        return float(share.mean())


@dataclass(frozen=True)
class Perplexity(Metric, short=("perplexity",)):
    """e to the mean cross-entropy: among how many classes a model still hesitates."""

    wants: ClassVar[tuple[TargetKind, ...]] = _CLASSES

    def sums(
        self, kind: TargetKind, output: np.ndarray, targets: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        from undivided.engines.reference import cross_entropy

        return np.array([(cross_entropy.forward(output, targets) * weights).sum(), weights.sum()])

    def value(self, sums: np.ndarray) -> float:
        mean = super().value(sums)
        return math.exp(mean) if mean < 700 else math.inf


@dataclass(frozen=True)
class BitsPerCharacter(Perplexity, short=("bits_per_character", "bpc")):
    """The mean cross-entropy in bits: what one more character of a text takes."""

    def value(self, sums: np.ndarray) -> float:
        return Metric.value(self, sums) / math.log(2)


def metrics_for(loss: Loss) -> tuple[Metric, ...]:
    """What is looked at unless a network says otherwise."""
    return (MAE(), R2()) if loss.targets == "values" else (Accuracy(),)


def _classes(targets: np.ndarray) -> np.ndarray:
    return targets if targets.ndim == 1 else targets.argmax(axis=1)
