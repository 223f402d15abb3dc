"""Optimizers: step by step against torch.optim, and against their formulas written out."""

import math

import numpy as np
import pytest

import undivided
from undivided.errors import ArgumentError
from undivided.plan.plan import Initial, Parameter
from undivided.training.optimizers import SGD, Adam, AdamW, Group
from undivided.training.schedules import ExponentialDecay, learning_rate_at

STEPS = 20
RATES = [0.1 / (1 + 0.3 * step) for step in range(STEPS)]
START = np.random.default_rng(1).normal(size=(3, 4))
GRADIENTS = (
    np.random.default_rng(2).normal(size=(STEPS, 3, 4)) * np.logspace(-4, 2, STEPS)[:, None, None]
)


def trajectory(optimizer, dtype=np.float64, decays=True):
    """The parameter after each of the steps."""
    parameter = START.astype(dtype)
    slots = {name: np.zeros_like(parameter) for name in optimizer.kept()}
    path = []
    for step, (gradient, rate) in enumerate(zip(GRADIENTS, RATES, strict=True), start=1):
        optimizer.update(parameter, gradient.astype(dtype), slots, step, rate, decays)
        path.append(parameter.copy())
    return path


@pytest.mark.parametrize(
    ("ours", "name", "arguments"),
    [
        (SGD(), "SGD", {}),
        (SGD(momentum=0.9), "SGD", {"momentum": 0.9}),
        (SGD(momentum=0.8, nesterov=True), "SGD", {"momentum": 0.8, "nesterov": True}),
        (Adam(), "Adam", {}),
        (Adam(beta_1=0.8, beta_2=0.99, epsilon=1e-3), "Adam", {"betas": (0.8, 0.99), "eps": 1e-3}),
        (Adam(beta_1=0.0), "Adam", {"betas": (0.0, 0.999)}),
        (AdamW(), "AdamW", {"weight_decay": 0.01}),
        (AdamW(weight_decay=0.3, epsilon=1e-4), "AdamW", {"weight_decay": 0.3, "eps": 1e-4}),
    ],
    ids=str,
)
def test_step_by_step_against_torch(ours, name, arguments):
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.tensor(START))
    theirs = getattr(torch.optim, name)([parameter], lr=1.0, **arguments)
    for found, gradient, rate in zip(trajectory(ours), GRADIENTS, RATES, strict=True):
        theirs.param_groups[0]["lr"] = rate
        parameter.grad = torch.tensor(gradient)
        theirs.step()
        np.testing.assert_allclose(found, parameter.detach().numpy(), rtol=1e-12, atol=1e-14)


def test_adamw_as_the_c_program_has_it():
    """W(1−lr·λ) − α_t·m/(√v+ε), α_t = lr·√(1−β₂ᵗ)/(1−β₁ᵗ), written out for single numbers."""
    beta_1, beta_2, epsilon, decay = 0.9, 0.999, 1e-2, 0.1
    path = trajectory(AdamW(epsilon=epsilon, weight_decay=decay, epsilon_uncorrected=True))
    for place in np.ndindex(START.shape):
        w, m, v = START[place], 0.0, 0.0
        for t, (gradient, rate) in enumerate(zip(GRADIENTS, RATES, strict=True), start=1):
            g = gradient[place]
            m = beta_1 * m + (1 - beta_1) * g
            v = beta_2 * v + (1 - beta_2) * g * g
            alpha = rate * math.sqrt(1 - beta_2**t) / (1 - beta_1**t)
            w = w * (1 - rate * decay) - alpha * m / (math.sqrt(v) + epsilon)
            assert path[t - 1][place] == pytest.approx(w, rel=1e-12)


@pytest.mark.parametrize("limit", [0.5, 1e6])
@pytest.mark.parametrize("how", ["norm", "value"])
def test_clipping_is_torchs(how, limit):
    torch = pytest.importorskip("torch")
    gradients = {"a": GRADIENTS[10], "b": GRADIENTS[12][:2]}
    tensors = [torch.zeros(g.shape, dtype=torch.float64) for g in gradients.values()]
    for tensor, gradient in zip(tensors, gradients.values(), strict=True):
        tensor.grad = torch.tensor(gradient)
    getattr(torch.nn.utils, f"clip_grad_{how}_")(tensors, limit)
    found = SGD(**{f"clip_{how}": limit}).clipped(gradients)
    for tensor, gradient in zip(tensors, found.values(), strict=True):
        # PyTorch divides by the norm and a millionth.
        np.testing.assert_allclose(gradient, tensor.grad.numpy(), rtol=1e-5 if how == "norm" else 0)


def test_the_first_group_that_matches_counts():
    parameters = {
        name: Parameter(name, (2, 2), Initial("xavier"), name.split(".")[0], decays)
        for name, decays in [("a.weight", True), ("a.bias", False), ("b.weight", True)]
    }
    groups = Group("a.*", learning_rate=0.5), Group("*.weight", decays=False, learning_rate=3.0)
    found = SGD(groups=groups).grouped(parameters)
    assert [(p.rate, p.decays) for p in found.values()] == [(0.5, True), (0.5, False), (3.0, False)]
    assert SGD(groups=(Group("b.*", frozen=True),)).grouped(parameters)["b.weight"].rate == 0
    with pytest.raises(ArgumentError, match=r"'c\.\*' of a Group of SGD matches no parameter"):
        SGD(groups=(Group("c.*"),)).grouped(parameters)


def test_wrong_combinations_are_refused():
    with pytest.raises(ArgumentError, match=r"'nesterov' of SGD needs a momentum"):
        SGD(nesterov=True)
    with pytest.raises(ArgumentError, match=r"AdamW adds ε in one place"):
        AdamW(epsilon_inside_root=True, epsilon_uncorrected=True)
    with pytest.raises(ArgumentError, match=r"'clip_norm' of Adam must be a number or None > 0"):
        Adam(clip_norm=0.0)


def test_adamw_with_epsilon_inside_the_root():
    """W = (1 − λη)W − η·(m/(1 − β₁ᵗ))/√(v/(1 − β₂ᵗ) + ε), written out for single numbers."""
    beta_1, beta_2, epsilon, decay = 0.9, 0.999, 1e-2, 0.1
    optimizer = AdamW(epsilon=epsilon, weight_decay=decay, epsilon_inside_root=True)
    path = trajectory(optimizer)
    for place in np.ndindex(START.shape):
        w, m, v = float(START[place]), 0.0, 0.0
        for t, (rate, found) in enumerate(zip(RATES, path, strict=True), start=1):
            g = float(GRADIENTS[t - 1][place])
            m = beta_1 * m + (1 - beta_1) * g
            v = beta_2 * v + (1 - beta_2) * g * g
            step = m / (1 - beta_1**t) / math.sqrt(v / (1 - beta_2**t) + epsilon)
            w = (1 - decay * rate) * w - rate * step
            assert found[place] == pytest.approx(w, rel=1e-12)


def test_where_epsilon_stands_makes_a_difference():
    outside, inside = (trajectory(AdamW(epsilon_inside_root=flag)) for flag in (False, True))
    assert np.abs(outside[0] - inside[0]).max() > 1e-3


def test_without_decay_adamw_is_adam():
    for flag in (False, True):
        spared = trajectory(AdamW(weight_decay=0.5), decays=flag)
        same = np.array_equal(spared, trajectory(Adam()))
        assert same is not flag
    np.testing.assert_array_equal(trajectory(AdamW(weight_decay=0.0)), trajectory(Adam()))


@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9), Adam(), AdamW()], ids=str)
def test_float32_stays_float32_and_close(optimizer):
    found = trajectory(optimizer, np.float32)
    assert found[-1].dtype == np.float32
    np.testing.assert_allclose(found, trajectory(optimizer), rtol=2e-5, atol=2e-5)


def test_what_is_kept():
    assert SGD().kept() == ()
    assert SGD(momentum=0.1).kept() == ("velocity",)
    assert Adam().kept() == AdamW().kept() == ("mean", "square")


def test_by_name_alone():
    for name, optimizer in [("sgd", SGD()), ("Adam", Adam()), ("ADAMW", AdamW()), ("SGD", SGD())]:
        text = f'network {{ input: (4) layers: Dense(3) optimizer: "{name}" }}'
        network = undivided.parse(text)
        assert network.optimizer == optimizer
        assert f"optimizer: {optimizer.keyword}()" in network.to_text()
    made = undivided.Network(input=(4,), layers=(undivided.Dense(3),), optimizer="adam")
    assert made.optimizer == Adam()


def test_a_schedule_gives_the_rate_of_a_step():
    decay = ExponentialDecay(0.1, decay_steps=10, decay_rate=0.5)
    rates = [learning_rate_at(decay, step) for step in (0, 5, 10, 20)]
    assert rates == pytest.approx([0.1, 0.1 * math.sqrt(0.5), 0.05, 0.025], rel=1e-14)
    assert learning_rate_at(0.3, 1000) == 0.3
    assert SGD(decay).learning_rate == decay


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SGD(-0.1), r"The 'learning_rate' of SGD must be .* ≥ 0\.0\. Got -0\.1"),
        (lambda: SGD(momentum=1.0), r"The 'momentum' of SGD must be a number ≥ 0\.0 and < 1\.0"),
        (lambda: Adam(beta_1=1.0), r"The 'beta_1' of Adam .* Got 1\.0"),
        (lambda: Adam(epsilon=0), r"The 'epsilon' of Adam must be a number > 0\.0\. Got 0"),
        (lambda: AdamW(weight_decay=-1), r"The 'weight_decay' of AdamW must be"),
    ],
)
def test_arguments_have_limits(build, message):
    with pytest.raises(ArgumentError, match=message):
        build()
