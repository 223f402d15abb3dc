"""Whole trainings beside the same in PyTorch: optimizer, schedule, clipping, groups and loss.

One network in the reference's float64, every step on all samples, so that the order in which they
are drawn does not matter: after each of the steps all parameters are the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undivided
from undivided import (
    SGD,
    Adam,
    AdamW,
    CosineDecay,
    Dense,
    ExponentialDecay,
    Group,
    LayerNormalization,
    Model,
    Network,
    OneCycle,
    Output,
    StepDecay,
    Warmup,
)
from undivided.training.losses import Loss
from undivided.training.optimizers import Optimizer
from undivided.training.schedules import learning_rate_at

torch = pytest.importorskip("torch")
F = torch.nn.functional

STEPS, COUNT, CLASSES = 12, 20, 4
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(COUNT, 5))
Y = RANDOM.integers(0, CLASSES, COUNT)
VALUES = RANDOM.normal(size=(COUNT, CLASSES)).astype(np.float32).astype(float)  # as data are kept
SHARES = RANDOM.integers(0, 17, (COUNT, CLASSES)) / 16
ROWS = np.roll(np.eye(CLASSES)[Y] * 0.5, 1, axis=1) + np.eye(CLASSES)[Y] * 0.5
WEIGHTS = RANDOM.integers(1, 33, COUNT) / 16


def network(optimizer: Optimizer, loss: Any = "sparse_categorical_crossentropy") -> Network:
    layers = (Dense(6, activation="gelu"), LayerNormalization(), Output(CLASSES))
    return Network(input=(5,), layers=layers, loss=loss, optimizer=optimizer)


def forward(values: dict[str, Any], x: Any) -> Any:
    x = F.gelu(x @ values["dense_1.weight"] + values["dense_1.bias"])
    gain, shift = values["normalization_1.gain"], values["normalization_1.shift"]
    x = F.layer_norm(x, (6,), gain, shift, 1e-5)
    return x @ values["output_1.weight"] + values["output_1.bias"]


def started(optimizer: Optimizer, loss: Any = "sparse_categorical_crossentropy") -> Model:
    """A model all of whose parameters have something to lose by decay."""
    model = Model(network(optimizer, loss), engine="reference", dtype="float64", seed=3)
    for name, values in model.parameters.items():
        model.parameters[name] = values + 0.1
    return model


def tensors_of(model: Model) -> dict[str, Any]:
    return {
        name: torch.tensor(np.array(values), requires_grad=True)
        for name, values in model.parameters.items()
    }


def check(
    model: Model,
    theirs: Any,
    values: dict[str, Any],
    *,
    factors: dict[str, float] | None = None,
    clip: Callable[[list[Any]], Any] | None = None,
    rtol: float = 1e-9,
) -> None:
    """Both take their steps; `factors` are of the learning rate, by the beginning of a name."""
    schedule = model.network.optimizer.learning_rate
    before = {name: value.detach().clone() for name, value in values.items()}
    for step in range(STEPS):
        model.fit((X, Y), epochs=1, batch_size=COUNT)
        rate = learning_rate_at(schedule, step)
        for group in theirs.param_groups:
            group["lr"] = rate * group.get("factor", 1.0)
        theirs.zero_grad()
        F.cross_entropy(forward(values, torch.tensor(X)), torch.tensor(Y)).backward()
        if clip:
            clip([p for group in theirs.param_groups for p in group["params"]])
        theirs.step()
        for name, value in values.items():
            np.testing.assert_allclose(
                model.parameters[name], value.detach().numpy(), rtol=rtol, atol=rtol, err_msg=name
            )
    assert any(not torch.equal(values[name], before[name]) for name in values)


SCHEDULES: dict[str, Any] = {
    "number": 0.05,
    "step": StepDecay(0.05, 4, 0.3),
    "exponential": ExponentialDecay(0.05, 3, 0.7),
    "cosine": CosineDecay(0.05, STEPS, alpha=0.1),
    "one cycle": OneCycle(0.05, STEPS),
    "warm-up into one cycle": Warmup(OneCycle(0.05, STEPS - 4), 4),
}


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9, nesterov=True), Adam(), AdamW()], ids=str)
def test_a_schedule_drives_an_optimizer(name: str, optimizer: Optimizer) -> None:
    made = dataclasses.replace(optimizer, learning_rate=SCHEDULES[name])
    model = started(made)
    values = tensors_of(model)
    if isinstance(optimizer, SGD):
        theirs: Any = torch.optim.SGD(values.values(), momentum=0.9, nesterov=True)
    elif isinstance(optimizer, AdamW):
        theirs = torch.optim.AdamW(decaying(values, 0.01))
    else:
        theirs = torch.optim.Adam(values.values())
    check(model, theirs, values)


def decaying(values: dict[str, Any], decay: float) -> list[dict[str, Any]]:
    """Weights of linear layers decay; biases and normalisations do not."""
    weights = [value for name, value in values.items() if name.endswith(".weight")]
    others = [value for name, value in values.items() if not name.endswith(".weight")]
    return [
        {"params": weights, "weight_decay": decay},
        {"params": others, "weight_decay": 0.0},
    ]


def test_groups_have_rates_and_decay_of_their_own() -> None:
    groups = (
        Group("dense_1.weight", learning_rate=0.1),
        Group("normalization_*", decays=True),
        Group("output_1.weight", decays=False, learning_rate=2.0),
    )
    model = started(AdamW(0.05, weight_decay=0.2, groups=groups))
    values = tensors_of(model)

    def group(name: str, decay: float, factor: float = 1.0) -> dict[str, Any]:
        chosen = [value for full, value in values.items() if full.startswith(name)]
        return {"params": chosen, "weight_decay": decay, "factor": factor}

    check(
        model,
        torch.optim.AdamW(
            [
                group("dense_1.weight", 0.2, 0.1),
                group("dense_1.bias", 0.0),
                group("normalization_1", 0.2),
                group("output_1.weight", 0.0, 2.0),
                group("output_1.bias", 0.0),
            ]
        ),
        values,
    )


def test_frozen_parameters_are_not_there_to_an_optimizer() -> None:
    """Not to the norm that gradients are clipped by, either."""
    frozen = Group("dense_1.*", frozen=True)
    model = started(AdamW(0.05, weight_decay=0.2, groups=(frozen,), clip_norm=0.1))
    values = tensors_of(model)
    moving = {name: value for name, value in values.items() if not name.startswith("dense_1")}
    check(
        model,
        torch.optim.AdamW(decaying(moving, 0.2)),
        values,
        clip=lambda tensors: torch.nn.utils.clip_grad_norm_(tensors, 0.1),
        rtol=1e-3,  # PyTorch divides by the norm and a millionth, which Adam makes larger
    )


@pytest.mark.parametrize("clip", ["value", "norm", "both"])
def test_clipped_gradients(clip: str) -> None:
    limits = {"clip_value": 0.03, "clip_norm": 0.1}
    if clip != "both":
        limits = {f"clip_{clip}": limits[f"clip_{clip}"]}
    model = started(SGD(0.5, momentum=0.9, **limits))
    values = tensors_of(model)

    def clipped(tensors: list[Any]) -> None:
        if "clip_value" in limits:
            torch.nn.utils.clip_grad_value_(tensors, limits["clip_value"])
        if "clip_norm" in limits:
            norm = torch.sqrt(sum((tensor.grad**2).sum() for tensor in tensors))
            for tensor in tensors:
                tensor.grad *= min(1.0, limits["clip_norm"] / norm)

    check(model, torch.optim.SGD(values.values(), momentum=0.9), values, clip=clipped)


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_accumulated_steps_are_those_of_pytorch(engine: Any) -> None:
    """Batches of 6, 6, 6 and 2 make one step: their mean is over the samples, not the batches."""
    net = dataclasses.replace(
        network(SGD(0.5)), train=undivided.Train(batch_size=6, gradient_accumulation_steps=4)
    )
    model = Model(net, engine=engine, seed=3)
    values = tensors_of(model)
    theirs = torch.optim.SGD(values.values(), lr=0.5)
    for _ in range(4):
        model.fit((X.astype(np.float32), Y), epochs=1)
        theirs.zero_grad()
        x, y = torch.tensor(X.astype(np.float32)), torch.tensor(Y)
        for begin in range(0, COUNT, 6):
            part = slice(begin, begin + 6)
            F.cross_entropy(forward(values, x[part]), y[part], reduction="sum").div(
                COUNT
            ).backward()
        theirs.step()
    assert model.steps == 4
    for name, value in values.items():
        np.testing.assert_allclose(model.parameters[name], value.detach(), rtol=1e-4, atol=1e-6)


CROSS = undivided.SparseCategoricalCrossentropy
LOSSES: dict[str, tuple[Loss, Any, Callable[[Any, Any], Any]]] = {
    "classes": (CROSS(), Y, lambda z, y: F.cross_entropy(z, y, reduction="none")),
    "classes, smoothed": (
        CROSS(label_smoothing=0.2),
        Y,
        lambda z, y: F.cross_entropy(z, y, reduction="none", label_smoothing=0.2),
    ),
    "classes, ignored": (
        CROSS(ignore=2, label_smoothing=0.1),
        Y,
        lambda z, y: F.cross_entropy(z, y, reduction="none", ignore_index=2, label_smoothing=0.1),
    ),
    "distributions": (
        undivided.CategoricalCrossentropy(label_smoothing=0.3),
        ROWS,
        lambda z, y: F.cross_entropy(z, y, reduction="none", label_smoothing=0.3),
    ),
    "shares": (
        undivided.BinaryCrossentropy(label_smoothing=0.2),
        SHARES,
        lambda z, y: F.binary_cross_entropy_with_logits(z, 0.8 * y + 0.1, reduction="none").mean(1),
    ),
    "squared": (
        undivided.MeanSquaredError(),
        VALUES,
        lambda z, y: F.mse_loss(z, y, reduction="none").mean(1),
    ),
    "absolute": (
        undivided.MeanAbsoluteError(),
        VALUES,
        lambda z, y: F.l1_loss(z, y, reduction="none").mean(1),
    ),
    "huber": (
        undivided.Huber(delta=0.4),
        VALUES,
        lambda z, y: F.huber_loss(z, y, reduction="none", delta=0.4).mean(1),
    ),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_loss_and_the_step_along_it(name: str, weighted: bool) -> None:
    """Σ w·l / Σ w, where w is 0 for what is ignored: the loss, what is said of it, and one step."""
    loss, y, each = LOSSES[name]
    model = started(SGD(0.5), loss)
    values = tensors_of(model)
    weights = torch.tensor(WEIGHTS if weighted else np.ones(COUNT))
    counts = torch.tensor(y != 2, dtype=torch.float64) if "ignored" in name else 1.0
    losses = each(forward(values, torch.tensor(X)), torch.tensor(y))
    mean = (losses * weights).sum() / (weights * counts * torch.ones(COUNT)).sum()
    mean.backward()
    data = (X, y, WEIGHTS) if weighted else (X, y)
    assert model.evaluate(data).loss == pytest.approx(mean.item(), rel=1e-12)
    assert model.fit(data, epochs=1, batch_size=COUNT)[0].loss == pytest.approx(mean.item())
    for full, value in values.items():
        expected = (value - 0.5 * value.grad).detach().numpy()
        np.testing.assert_allclose(model.parameters[full], expected, rtol=1e-9, atol=1e-12)


def test_class_weights_weigh_the_losses_of_a_class() -> None:
    given = np.array([0.5, 2.0, 0.0, 1.0])
    model = started(SGD(0.5))
    values = tensors_of(model)
    scores = forward(values, torch.tensor(X))
    mean = F.cross_entropy(scores, torch.tensor(Y), weight=torch.tensor(given))
    mean.backward()
    fitted = model.fit((X, Y), epochs=1, batch_size=COUNT, class_weights=list(given))
    assert fitted[0].loss == pytest.approx(mean.item())
    for full, value in values.items():
        expected = (value - 0.5 * value.grad).detach().numpy()
        np.testing.assert_allclose(model.parameters[full], expected, rtol=1e-9, atol=1e-12)
