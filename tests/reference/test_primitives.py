"""Every primitive: its forward against its definition, its backward against differences."""

import math

import numpy as np
import pytest
from conformance import CASES, MODULES, arrays, check_relu_at_its_kink

from undivided.engines.reference import (
    activation,
    attention,
    cross_entropy,
    linear,
    normalize,
    pool,
    position,
    unfold,
)

CHECKS = 486
"""How many distinct (primitive, option, shape) are checked. It may grow, never shrink."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_full_jacobian_is_that_of_forward(case):
    report = case.check()
    assert report.ok
    assert report.tolerance == 1e-6


def test_no_check_is_lost():
    assert len({case.key for case in CASES}) >= CHECKS
    assert {case.primitive for case in CASES} == set(MODULES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_backward_leaves_its_arguments_as_they_are(case):
    dy = np.ones_like(case.forward(*case.inputs))
    arguments = [dy, *(x.copy() for x in case.inputs)]
    case.backward(*arguments)
    assert (dy == 1).all()
    for before, after in zip(case.inputs, arguments[1:], strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32_stays_float32(case):
    inputs = [x.astype(np.float32) if x.dtype.kind == "f" else x for x in case.inputs]
    y = case.forward(*inputs)
    gradients = case.backward(np.ones_like(y), *inputs)
    for array in (y, *(gradients if isinstance(gradients, tuple) else (gradients,))):
        assert array.dtype == np.float32


# Forward against the definition, written out number by number.


def test_attention_is_the_weighted_mean_of_values():
    query, key, value = arrays((2, 3, 4), (2, 5, 4), (2, 5, 6))
    y = attention.forward(query, key, value, heads=2, scale=0.7)
    p = attention.weights(query, key, heads=2, scale=0.7)
    for b in range(2):
        for h in range(2):
            for s in range(3):
                q = query[b, s, 2 * h : 2 * h + 2]
                scores = [0.7 * float(q @ key[b, t, 2 * h : 2 * h + 2]) for t in range(5)]
                exponentials = [math.exp(score) for score in scores]
                row = [e / sum(exponentials) for e in exponentials]
                mean = sum(row[t] * value[b, t, 3 * h : 3 * h + 3] for t in range(5))
                np.testing.assert_allclose(p[b, h, s], row, rtol=1e-13)
                np.testing.assert_allclose(y[b, s, 3 * h : 3 * h + 3], mean, rtol=1e-12)


def test_attention_weights_survive_large_scores():
    query = np.array([[[3e4], [-3e4]]], np.float32)
    p = attention.weights(query, query, heads=1, scale=1.0)
    np.testing.assert_array_equal(p[0, 0], np.eye(2))


@pytest.mark.parametrize(("S", "T"), [(0, 0), (2, 0), (0, 2)])
def test_attention_to_nothing_gives_0(S, T):
    query, key, value = np.ones((2, S, 4)), np.ones((2, T, 4)), np.ones((2, T, 6))
    with np.errstate(all="raise"):
        y = attention.forward(query, key, value, heads=2, scale=0.5)
        gradients = attention.backward(np.ones_like(y), query, key, value, heads=2, scale=0.5)
    np.testing.assert_array_equal(y, np.zeros((2, S, 6)))
    for gradient, x in zip(gradients, (query, key, value), strict=True):
        np.testing.assert_array_equal(gradient, np.zeros_like(x))


def test_the_mean_of_no_tokens_is_0():
    x = np.ones((2, 0, 3))
    np.testing.assert_array_equal(pool.forward(x), np.zeros((2, 3)))
    assert pool.backward(np.ones((2, 3)), x).shape == (2, 0, 3)


def test_unfold_puts_pixels_where_the_definition_says():
    x = np.arange(2 * 4 * 6).reshape(2, 4, 6)
    y = unfold.forward(x, (2, 3))
    for py in range(2):
        for px in range(2):
            for dy in range(2):
                for dx in range(3):
                    pixel = x[:, py * 2 + dy, px * 3 + dx]
                    np.testing.assert_array_equal(y[:, py * 2 + px, dy * 3 + dx], pixel)


def test_unfold_keeps_channels_last():
    x = np.arange(4 * 4 * 3).reshape(1, 4, 4, 3)
    np.testing.assert_array_equal(unfold.forward(x, (2, 2))[0, 3], x[0, 2:, 2:].reshape(-1))


def test_the_sinusoidal_table():
    table = position.sinusoidal_table(50, 6)
    for t, d in [(0, 0), (0, 1), (1, 0), (7, 2), (7, 3), (49, 4), (49, 5)]:
        angle = t / 10000 ** (2 * (d // 2) / 6)
        expected = math.sin(angle) if d % 2 == 0 else math.cos(angle)
        assert table[t, d] == pytest.approx(expected, abs=1e-15)


def test_normalize_gives_mean_0_and_variance_1():
    x = arrays((5, 64), scale=3.0)[0] + 10.0
    y = normalize.forward(x, np.ones(64), np.zeros(64), epsilon=1e-12)
    np.testing.assert_allclose(y.mean(axis=-1), 0, atol=1e-12)
    np.testing.assert_allclose((y * y).mean(axis=-1), 1, rtol=1e-12)


def test_normalize_of_equal_numbers_is_the_shift():
    y = normalize.forward(np.full((1, 4), 7.0), np.full(4, 2.0), np.arange(4.0), epsilon=1e-5)
    np.testing.assert_array_equal(y[0], np.arange(4.0))


def test_linear_is_a_sum_over_what_comes_in():
    x, weight, bias = arrays((2, 3), (3, 2), (2,))
    y = linear.forward(x, weight, bias)
    for b in range(2):
        for o in range(2):
            expected = sum(x[b, i] * weight[i, o] for i in range(3)) + bias[o]
            assert y[b, o] == pytest.approx(expected, rel=1e-14)


def test_relu_at_its_kink():
    check_relu_at_its_kink()


# x·Φ(x) to 16 digits, from 50-digit arithmetic.
GELU = {
    -6.0: -5.919525870226189e-09,
    -3.0: -0.004049694094890284,
    -1.0: -0.1586552539314571,
    -0.1: -0.0460172162722971,
    0.0: 0.0,
    0.5: 0.3457312306370066,
    1.0: 0.8413447460685429,
    2.0: 1.954499736103642,
    8.0: 7.999999999999995,
}


def test_gelu_is_exact():
    x = np.array(list(GELU))
    np.testing.assert_allclose(
        activation.forward(x, "gelu"), list(GELU.values()), rtol=0, atol=1e-15
    )


def test_erf_is_the_one_of_c():
    x = np.linspace(-6, 6, 240).reshape(3, -1)
    expected = [[math.erf(value) for value in row] for row in x]
    np.testing.assert_array_equal(activation.erf(x), expected)


def test_cross_entropy_is_minus_the_log_of_the_probability():
    (logits,) = arrays((3, 4))
    labels = np.array([2, 0, 3])
    loss = cross_entropy.forward(logits, labels)
    for b in range(3):
        p = math.exp(logits[b, labels[b]]) / sum(math.exp(z) for z in logits[b])
        assert loss[b] == pytest.approx(-math.log(p), rel=1e-13)


def test_cross_entropy_of_an_impossible_class_is_finite():
    logits = np.array([[0.0, 1e4]], np.float32)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        np.testing.assert_array_equal(cross_entropy.forward(logits, np.array([0])), [1e4])
        gradient = cross_entropy.backward(np.ones(1, np.float32), logits, np.array([0]))
    np.testing.assert_array_equal(gradient, [[-1, 1]])


@pytest.mark.parametrize("step", ["forward", "backward"])
def test_an_unknown_activation_is_refused(step):
    x = np.ones((1, 2))
    arguments = (x, "tan") if step == "forward" else (x, x, "tan")
    with pytest.raises(NotImplementedError, match="activation 'tan'"):
        getattr(activation, step)(*arguments)
