"""check_gradients: passes right backward passes, finds wrong ones, and says what is wrong."""

import doctest

import numpy as np
import pytest
from conformance import arrays

from undivided import gradient_check
from undivided.engines.reference import cross_entropy, linear
from undivided.errors import ArgumentError, UndividedError
from undivided.gradient_check import GradientError, check_gradients

X, W = arrays((2, 3), (3, 2))


def product(x, w):
    return x @ w


def product_backward(dy, x, w):
    return dy @ w.T, x.T @ dy


def test_a_right_backward_gives_a_report():
    report = check_gradients(product, product_backward, X, W)
    assert report
    assert report.ok
    assert report.derivatives == 4 * (6 + 6)
    assert str(report).startswith("backward is right: 48 derivatives, largest error ")
    assert str(report).endswith("(tolerance 1e-06)")


def test_a_wrong_sign_is_named():
    with pytest.raises(GradientError) as caught:
        check_gradients(product, lambda dy, x, w: (dy @ w.T, -x.T @ dy), X, W)
    report = caught.value.report
    assert not report
    assert report.worst.input == 1
    output, element = report.worst.output_index, report.worst.input_index
    assert report.worst.expected == pytest.approx(X[output[0], element[0]])
    assert report.worst.found == pytest.approx(-X[output[0], element[0]])
    assert str(caught.value) == str(report)
    assert (
        f"backward is wrong for input 1: the derivative of output{list(output)} with respect to "
        f"input{list(element)} is {report.worst.expected:.7g}, backward says "
        f"{report.worst.found:.7g}.\nThis is the worst of 48 derivatives; error "
    ) in str(report)
    assert str(report).endswith("The sign is the wrong way round.")


def test_the_error_is_an_assertion_and_one_of_undivided():
    with pytest.raises(AssertionError):
        check_gradients(np.sin, lambda dy, x: dy * np.sin(x), X)
    with pytest.raises(UndividedError):
        check_gradients(np.sin, lambda dy, x: dy * np.sin(x), X)


@pytest.mark.parametrize(
    ("backward", "advice"),
    [
        (lambda dy, x: np.zeros_like(x), r"The whole gradient is zero\. Is it filled in\?"),
        (lambda dy, x: dy * x, r"The ratio of the two is 0\.5\. Is a factor missing\?"),
        (lambda dy, x: dy * x / 0.0, r"backward gives a number that is not finite"),
        (lambda dy, x: dy * np.where(x == x.max(), np.nan, 2 * x), "not finite"),
        (lambda dy, x: np.where(x == x[0, 0], 0, dy * 2 * x), "tolerance 1e-06.$"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_advice(backward, advice):
    with pytest.raises(GradientError, match=advice):
        check_gradients(lambda x: x * x, backward, X)


def test_a_gradient_that_is_not_batched_is_found():
    """Right on the diagonal, wrong off it: summing dy first would hide in a check of one dy."""
    with pytest.raises(GradientError):
        check_gradients(lambda x: 2 * x, lambda dy, x: 2 * x / x * dy.sum(), X)


@pytest.mark.parametrize("wrong", [np.square, np.abs, lambda dy: dy != 0])
def test_a_backward_that_is_not_proportional_to_dy_is_found(wrong):
    with pytest.raises(GradientError):
        check_gradients(lambda x: 3 * x, lambda dy, x: 3.0 * wrong(dy), X)


def test_a_small_mistake_is_a_mistake():
    x = np.array([3.0])
    with pytest.raises(GradientError):
        check_gradients(np.sin, lambda dy, x: dy * np.cos(x) * (1 + 1e-5), x)
    assert check_gradients(np.sin, lambda dy, x: dy * np.cos(x) * (1 + 1e-8), x)
    wide = check_gradients(np.sin, lambda dy, x: dy * np.cos(x) * 1.01, x, tolerance=0.02)
    assert wide.tolerance == 0.02


def test_none_is_not_differentiated():
    report = check_gradients(product, lambda dy, x, w: (None, x.T @ dy), X, W)
    assert report.derivatives == 4 * 6


def test_wrt_chooses_inputs():
    def backward(dy, x, w):
        return dy @ w.T, np.zeros_like(w)  # the second one is not written yet

    assert check_gradients(product, backward, X, W, wrt=[0])
    with pytest.raises(GradientError):
        check_gradients(product, backward, X, W, wrt=[1])
    with pytest.raises(ArgumentError, match=r"names input 2, .* Those with one: 0, 1\."):
        check_gradients(product, backward, X, W, wrt=[2])


def test_labels_and_options_are_handed_through():
    logits, labels = X, np.array([0, 2])
    assert check_gradients(cross_entropy.forward, cross_entropy.backward, logits, labels)
    assert check_gradients(lambda x, power: x**power, lambda dy, x, n: dy * n * x ** (n - 1), X, 3)


def test_float32_inputs_are_checked_in_float64():
    assert check_gradients(linear.forward, linear.backward, *(a.astype(np.float32) for a in (X, W)))


def test_a_single_number_may_come_out():
    assert check_gradients(np.sum, lambda dy, x: dy * np.ones_like(x), X)
    assert check_gradients(lambda x: float(x.sum()), lambda dy, x: dy * np.ones_like(x), X)


def test_what_writes_into_its_inputs_spoils_nothing():
    def forward(x):
        x *= 2
        return x

    def backward(dy, x):
        x[...] = 2
        return dy * x

    start = X.copy()
    assert check_gradients(forward, backward, start)
    np.testing.assert_array_equal(start, X)


@pytest.mark.parametrize(
    ("forward", "backward", "inputs", "message"),
    [
        (
            product,
            lambda dy, x, w: dy @ w.T,
            (X, W),
            r"backward to return 2 gradients, one for each input \(None where .*\)\. Got 1\.",
        ),
        (
            product,
            lambda dy, x, w: (dy @ w.T, dy, dy),
            (X, W),
            r"Got 3\.",
        ),
        (
            lambda x, n: x * n,
            lambda dy, x, n: (dy, dy, dy),
            (X, 3),
            r"2 gradients, .*, or 1, one for each array of floats\. Got 3\.",
        ),
        (
            product,
            lambda dy, x, w: (dy @ w.T, (x.T @ dy).T[:1]),
            (X, W),
            r"gradient for input 1 must have that input's shape \(3, 2\)\. Got \(1, 3\)\.",
        ),
        (
            lambda x, n: x * n,
            lambda dy, x, n: (dy * n, dy * x),
            (X, np.arange(6).reshape(2, 3)),
            r"a gradient for input 1, which is int64, not an array of floats\. Pass it as float64",
        ),
        (
            lambda x, n: x * n,
            lambda dy, x, n: (dy * n, 1.0),
            (X, 3),
            r"a gradient for input 1, which is int,",
        ),
        (
            lambda x: x.astype(np.float32),
            lambda dy, x: dy,
            (X,),
            r"return one array of float64 .* Got float32\. In less precision",
        ),
        (lambda x: None, lambda dy, x: dy, (X,), r"one array of float64 .* Got object"),
        (lambda x: x[:0], lambda dy, x: dy, (X,), r"expects an output\. Got shape \(0, 3\)"),
        (lambda x: x * np.nan, lambda dy, x: dy, (X,), r"finite output\. Got NaN or infinity"),
        (np.sin, lambda dy, x: dy, (X * np.nan,), r"finite inputs\. Got NaN or infinity"),
        (lambda x: x, lambda dy, x: None, (X,), r"no input to differentiate"),
        (lambda n: np.ones(2), lambda dy, n: None, (3,), r"no input to differentiate"),
    ],
)
def test_mistakes_in_the_call_are_told_apart_from_mistakes_in_backward(
    forward, backward, inputs, message
):
    with pytest.raises(ArgumentError, match=message):
        check_gradients(forward, backward, *inputs)


def test_a_forward_that_breaks_near_the_point_is_named():
    x = np.array([1e-7])
    with (
        np.errstate(invalid="ignore"),
        pytest.raises(GradientError, match="forward gives numbers that are not finite near this"),
    ):
        check_gradients(np.sqrt, lambda dy, x: dy / (2 * np.sqrt(x)), x)


def test_the_example_in_the_documentation():
    assert doctest.testmod(gradient_check).failed == 0
