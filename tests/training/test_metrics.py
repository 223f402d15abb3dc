"""Metrics against their definitions, in one piece and in several."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from undivided.training import evaluation
from undivided.training.losses import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    MeanSquaredError,
    SparseCategoricalCrossentropy,
    TargetKind,
)
from undivided.training.metrics import (
    MAE,
    MSE,
    R2,
    Accuracy,
    BitsPerCharacter,
    Metric,
    Perplexity,
    TopK,
    metrics_for,
)

ONES = np.ones(4)
SCORES = np.array([[3.0, 2.0, 1.0], [1.0, 1.0, 0.0], [0.0, 5.0, 5.0], [-1.0, -2.0, -3.0]])
CLASSES = np.array([0, 1, 2, 2])


def found(
    metric: Metric,
    output: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray = ONES,
    kind: TargetKind = "classes",
) -> float:
    whole = metric.value(metric.sums(kind, output, targets, weights))
    pieces = [slice(0, 1), slice(1, 3), slice(3, None)]
    sums = sum(metric.sums(kind, output[p], targets[p], weights[p]) for p in pieces)
    assert metric.value(np.asarray(sums)) == pytest.approx(whole, nan_ok=True)
    return whole


def test_accuracy() -> None:
    assert found(Accuracy(), SCORES, CLASSES) == 0.25  # the first of equals
    assert found(Accuracy(), SCORES, CLASSES, np.array([1.0, 0, 0, 3])) == 0.25
    assert found(Accuracy(), SCORES, np.eye(3)[CLASSES], kind="distributions") == 0.25
    yes = np.array([[1.0, 0, 1], [1, 1, 1], [0, 0, 0], [1, 0, 0]])
    assert found(Accuracy(), SCORES, yes, kind="shares") == pytest.approx((2 + 2 + 1 + 2) / 12)


def test_top_k() -> None:
    assert [found(TopK(k), SCORES, CLASSES) for k in (1, 2, 3)] == [0.25, 0.75, 1.0]
    assert found(TopK(1), SCORES, CLASSES) == found(Accuracy(), SCORES, CLASSES)
    assert TopK().label == "top_5"


def test_deviations() -> None:
    y, t = SCORES, SCORES + np.array([[1.0], [-1.0], [0.0], [4.0]])
    assert found(MAE(), y, t, kind="values") == 1.5
    assert found(MSE(), y, t, kind="values") == 4.5
    assert found(MAE(), y, t, np.array([1.0, 1, 2, 0]), "values") == 0.5


def test_r2_is_that_of_each_column() -> None:
    t = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [4.0, 5.0]])
    assert found(R2(), t, t, kind="values") == 1
    assert found(R2(), np.full_like(t, 2.5) * [[1, 2]], t, kind="values") == 0.5
    assert found(R2(), t + np.array([1, 0]), t, kind="values") == pytest.approx((1 - 4 / 5 + 1) / 2)
    assert found(R2(), t + np.array([0, 1]), t, kind="values") == 0.5  # a constant that is missed


def test_r2_is_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(0)
    t, y, w = random.normal(size=(9, 3)), random.normal(size=(9, 3)), random.random(9)
    expected = metrics.r2_score(t, y, sample_weight=w)
    assert found(R2(), y, t, w, "values") == pytest.approx(expected)


def test_perplexity_and_bits() -> None:
    even = np.zeros((4, 8))
    classes = np.array([1, 7, 0, 3])
    assert found(Perplexity(), even, classes) == pytest.approx(8)
    assert found(BitsPerCharacter(), even, classes) == pytest.approx(3)
    lost = np.array([[1e4, 0.0]] * 4)
    assert found(Perplexity(), lost, np.ones(4, int)) == math.inf


def test_nothing_that_counts_is_no_number() -> None:
    nothing = np.zeros(4)
    assert math.isnan(found(Accuracy(), SCORES, CLASSES, nothing))
    assert math.isnan(found(R2(), SCORES, SCORES, nothing, "values"))


def test_what_is_looked_at_unless_said() -> None:
    assert metrics_for(SparseCategoricalCrossentropy()) == (Accuracy(),)
    assert metrics_for(CategoricalCrossentropy()) == (Accuracy(),)
    assert metrics_for(BinaryCrossentropy()) == (Accuracy(),)
    assert metrics_for(MeanSquaredError()) == (MAE(), R2())


@pytest.mark.parametrize("at_once", [1, 7, 1024])
def test_an_evaluation_does_not_tell_its_pieces(monkeypatch: Any, at_once: int) -> None:
    from undivided import Dense, Model, Network

    monkeypatch.setattr(evaluation, "_MOST_SAMPLES", at_once)
    network = Network(
        input=(3, 4),
        layers=(Dense(6),),
        metrics=("accuracy", "top_k", "perplexity", "bpc"),  # type: ignore[arg-type]
    )
    random = np.random.default_rng(0)
    x, y = random.normal(size=(20, 3, 4)), random.integers(0, 6, (20, 3))
    result = Model(network).evaluate((x, y))
    logits = Model(network).logits(x).astype(np.float64)
    losses = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, y[..., None], -1)[..., 0]
    assert result.loss == pytest.approx(losses.mean())
    assert result.metrics["perplexity"] == pytest.approx(math.exp(losses.mean()))
    assert result.metrics["bits_per_character"] == pytest.approx(losses.mean() / math.log(2))
    assert result.accuracy == result.metrics["accuracy"] == np.mean(logits.argmax(-1) == y)
    assert list(result.metrics) == ["accuracy", "top_5", "perplexity", "bits_per_character"]
