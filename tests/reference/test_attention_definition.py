"""The operator's definition: by hand, by its properties, and against PyTorch."""

import math

import numpy as np
import pytest
from attention_cases import OPERATOR_CASES, check_beyond_differences, chosen
from case import arrays
from plain_attention import allowed_by_cell, kept_by_cell, torch_attention

from undivided.engines.reference.allowed import allowed_cells
from undivided.engines.reference.dropout import kept_cells
from undivided.errors import ArgumentError
from undivided.reference import attention, attention_backward

# By hand.

ONE = np.zeros((1, 1, 1, 1))
"""A query that fits every key the same."""


def keys_and_values(*values):
    return np.ones((1, 1, len(values), 1)), np.array(values).reshape(1, 1, -1, 1)


def test_a_query_that_fits_all_gets_the_mean():
    key, value = keys_and_values(1.0, 2.0, 6.0)
    out, p, lse = attention(ONE, key, value, return_weights=True, return_lse=True)
    assert out.item() == pytest.approx(3.0, rel=1e-15)
    np.testing.assert_allclose(p[0, 0, 0], [1 / 3] * 3, rtol=1e-15)
    assert lse.item() == pytest.approx(math.log(3), rel=1e-15)


def test_a_bias_of_log_2_counts_twice():
    key, value = keys_and_values(1.0, 4.0)
    out = attention(ONE, key, value, bias=np.array([math.log(2), 0.0]))
    assert out.item() == pytest.approx((2 * 1 + 4) / 3, rel=1e-15)


def test_a_sink_takes_weight_and_gives_nothing():
    key, value = keys_and_values(1.0, 5.0)
    sinks = np.array([math.log(2)])  # as much as both keys together
    out, lse = attention(ONE, key, value, sinks=sinks, return_lse=True)
    assert out.item() == pytest.approx(3.0 / 2, rel=1e-15)
    assert lse.item() == pytest.approx(math.log(4), rel=1e-15)
    *_, d_sinks = attention_backward(np.ones_like(ONE), ONE, key, value, sinks=sinks)
    assert d_sinks.item() == pytest.approx(-0.5 * 1.5, rel=1e-15)  # −(its weight)·Δ, Δ = dO·O


def test_softcap_bends_scores_before_the_bias():
    query, key, value = np.ones((1, 1, 1, 1)), *keys_and_values(1.0, 0.0)
    key[0, 0, 0, 0] = 30.0
    p = attention(
        query, key, value, softcap=2.0, scale=1.0, bias=np.array([5.0, 0.0]), return_weights=True
    )[1]
    difference = 2 * math.tanh(15) + 5 - 2 * math.tanh(0.5)
    assert p.flat[0] == pytest.approx(1 / (1 + math.exp(-difference)), rel=1e-15)


def test_query_heads_share_in_order():
    query = np.zeros((1, 4, 1, 1))
    key, value = np.zeros((1, 2, 1, 1)), np.array([7.0, 9.0]).reshape(1, 2, 1, 1)
    np.testing.assert_array_equal(attention(query, key, value).ravel(), [7, 7, 9, 9])
    *_, d_value, _, _ = attention_backward(np.ones((1, 4, 1, 1)), query, key, value)
    np.testing.assert_array_equal(d_value.ravel(), [2, 2])


def test_the_scale_is_that_of_the_width_unless_given():
    query, key, value = arrays((1, 1, 2, 16), (1, 1, 3, 16), (1, 1, 3, 2))
    np.testing.assert_array_equal(
        attention(query, key, value), attention(query, key, value, scale=0.25)
    )


# Where attention is allowed.


@pytest.mark.parametrize("case", OPERATOR_CASES, ids=str)
def test_weights_are_where_attention_is_allowed(case):
    options = case.options(*case.inputs[3:])
    out, p, lse = attention(*case.inputs[:3], **options, return_weights=True, return_lse=True)
    allowed = allowed_by_cell(p.shape, **options)
    assert (p[~allowed] == 0).all()
    assert (p[allowed] > 0).all() or "large" in case.option
    sunk = 0.0
    if "sinks" in options:
        with np.errstate(invalid="ignore", over="ignore"):
            sunk = np.exp(options["sinks"][:, None] - lse)
        sunk = np.where(lse == -np.inf, 0.0, sunk)
    full = lse > -np.inf
    np.testing.assert_allclose((p.sum(axis=-1) + sunk)[full], 1.0, rtol=1e-13)
    empty = ~allowed.any(axis=-1)
    assert (out[empty] == 0).all()
    if "sinks" not in options:
        assert (lse[empty] == -np.inf).all()


def test_pictures_of_the_corners():
    def drawn(**options):
        cells = allowed_cells((1, 1, 3, 5), **options)[0, 0]
        return ["".join("#" if cell else "." for cell in row) for row in cells]

    assert drawn(causal="top_left") == drawn(causal=True) == ["#....", "##...", "###.."]
    assert drawn(causal="bottom_right") == ["###..", "####.", "#####"]
    assert drawn(causal=True, query_offset=1) == ["##...", "###..", "####."]
    assert drawn(window=(1, 1)) == ["##...", "###..", ".###."]
    assert drawn(window=(0, -1), key_lengths=[4]) == ["####.", ".###.", "..##."]
    assert drawn(causal="bottom_right", query_lengths=[2]) == ["####.", "#####", "....."]


def test_a_mask_may_be_an_object():
    class Diagonal:
        def to_array(self, S, T):
            return np.eye(S, T, dtype=bool)

    query, key, value = arrays((2, 2, 3, 2), (2, 2, 4, 2), (2, 2, 4, 3))
    np.testing.assert_array_equal(attention(query, key, value, mask=Diagonal()), value[:, :, :3])


def test_padding_is_never_read():
    query, key, value, d_out = arrays((2, 1, 3, 2), (2, 1, 4, 2), (2, 1, 4, 2), (2, 1, 3, 2))
    lengths = {"query_lengths": np.array([2, 3]), "key_lengths": np.array([3, 0])}
    out, lse = attention(query, key, value, **lengths, return_lse=True)
    gradients = attention_backward(d_out, query, key, value, **lengths)[:3]
    assert (lse[0, 0] > -np.inf).tolist() == [True, True, False]
    assert (lse[1] == -np.inf).all() and (out[1] == 0).all() and (out[0, :, 2] == 0).all()
    for x, rows in ((query, 2), (d_out, 2), (key, 3), (value, 3)):
        x[0, :, rows:] = np.nan
    key[1], value[1], query[1], d_out[1] = np.nan, np.inf, np.nan, np.inf
    np.testing.assert_array_equal(attention(query, key, value, **lengths), out)
    again = attention_backward(d_out, query, key, value, **lengths)[:3]
    for x, y in zip(again, gradients, strict=True):
        np.testing.assert_array_equal(x, y)


def test_padded_queries_have_no_sink():
    query, key, value = arrays((1, 1, 3, 2), (1, 1, 2, 2), (1, 1, 2, 2))
    sinks = np.array([0.5])
    options = {"query_lengths": [2], "key_lengths": [0], "sinks": sinks}
    out, lse = attention(query, key, value, **options, return_lse=True)
    np.testing.assert_array_equal(lse[0, 0], [0.5, 0.5, -np.inf])
    assert not out.any()
    for gradient in attention_backward(np.ones((1, 1, 3, 2)), query, key, value, **options):
        assert gradient is None or not gradient.any()


# What is forbidden.


@pytest.mark.parametrize("by", ["mask", "bias", "lengths"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_that_may_attend_to_nothing(by, dtype):
    query, key, value, d_out = (
        x.astype(dtype) for x in arrays((2, 2, 3, 2), (2, 2, 4, 2), (2, 2, 4, 3), (2, 2, 3, 3))
    )
    allowed = np.ones((2, 1, 3, 4), bool)
    allowed[0, 0, 1] = False
    options = {
        "mask": {"mask": allowed},
        "bias": {"bias": np.where(allowed, 0, -np.inf).astype(dtype)},
        "lengths": {"key_lengths": np.array([0, 4])},
    }[by]
    row = (0, slice(None), slice(None) if by == "lengths" else 1)
    with np.errstate(all="raise"):
        out, p, lse = attention(query, key, value, **options, return_weights=True, return_lse=True)
        gradients = attention_backward(d_out, query, key, value, **options)
    assert (out[row] == 0).all() and (p[row] == 0).all() and (lse[row] == -np.inf).all()
    assert (gradients[0][row] == 0).all()
    for x in (out, p, lse, *(g for g in gradients if g is not None)):
        assert x.dtype == dtype
        assert np.isfinite(x).all() or x is lse


def test_poison_types_and_lse():
    check_beyond_differences()


def test_poison_in_what_the_causal_corner_forbids():
    query, key, value = arrays((1, 1, 4, 2), (1, 1, 4, 2), (1, 1, 4, 2))
    before = attention(query, key, value, causal=True)
    key[0, 0, 3], value[0, 0, 2] = np.inf, np.nan
    after = attention(query, key, value, causal=True)
    np.testing.assert_array_equal(after[:, :, :2], before[:, :, :2])
    assert np.isnan(after[0, 0, 2:]).all()


def test_a_bias_of_minus_infinity_forbids():
    query, key, value, d_out = arrays((1, 2, 3, 2), (1, 2, 4, 2), (1, 2, 4, 2), (1, 2, 3, 2))
    forbidden = chosen(3, 4, share=0.4)
    bias = np.where(forbidden, -np.inf, 0.0)
    np.testing.assert_array_equal(
        attention(query, key, value, bias=bias), attention(query, key, value, mask=~forbidden)
    )
    by_bias = attention_backward(d_out, query, key, value, bias=bias)
    by_mask = attention_backward(d_out, query, key, value, mask=~forbidden)
    for x, y in zip(by_bias[:3], by_mask[:3], strict=True):
        np.testing.assert_array_equal(x, y)
    assert (by_bias[3][forbidden] == 0).all()


@pytest.mark.parametrize("shift", [1e4, -1e4])
def test_large_logits_stay_finite(shift):
    query, key, value = (
        x.astype(np.float32) for x in arrays((1, 1, 3, 2), (1, 1, 4, 2), (1, 1, 4, 2))
    )
    bias = np.float32(shift)
    out, lse = attention(query, key, value, bias=bias, return_lse=True)
    np.testing.assert_allclose(out, attention(query, key, value), rtol=1e-2)
    assert np.isfinite(lse).all()
    for gradient in attention_backward(np.ones_like(out), query, key, value, bias=bias)[:3]:
        assert np.isfinite(gradient).all()


# Dropout.


@pytest.mark.parametrize(("rate", "seed"), [(0.5, 3), (0.1, 2**40 + 7)])
def test_which_weights_are_kept(rate, seed):
    shape = (2, 2, 3, 131)
    np.testing.assert_array_equal(kept_cells(shape, rate, seed), kept_by_cell(shape, rate, seed))


def test_a_longer_pass_keeps_the_same_weights():
    whole = kept_cells((1, 2, 8, 200), 0.3, 9)
    np.testing.assert_array_equal(kept_cells((1, 2, 5, 77), 0.3, 9), whole[:, :, :5, :77])
    assert abs(whole.mean() - 0.7) < 0.02


def test_weights_are_those_before_dropout():
    query, key, value = arrays((1, 1, 3, 2), (1, 1, 9, 2), (1, 1, 9, 2))
    plain = attention(query, key, value, return_weights=True)[1]
    out, p = attention(query, key, value, dropout=0.5, seed=2, return_weights=True)
    np.testing.assert_array_equal(p, plain)
    np.testing.assert_allclose(out, p * kept_cells(p.shape, 0.5, 2) * 2 @ value, rtol=1e-13)


# What cannot be meant.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"causal": "bottom_rihgt"}, "Did you mean 'bottom_right'?"),
        ({"causal": "bottom_right", "query_offset": 1}, "Give one of the two."),
        ({"mask": np.ones((3, 4))}, "must be boolean, True where a query may attend. Got float64"),
        ({"mask": np.ones((4, 3), bool)}, "[1, 1, 3, 4]. Got [4, 3]"),
        ({"dropout": 1.0, "seed": 1}, "at least 0 and below 1. Got 1.0"),
        ({"dropout": 0.5}, "Got None"),
    ],
)
def test_it_is_refused(options, words):
    query, key, value = arrays((1, 1, 3, 2), (1, 1, 4, 2), (1, 1, 4, 2))
    with pytest.raises(ArgumentError) as caught:
        attention(query, key, value, **options)
    assert words in str(caught.value)


# PyTorch.


@pytest.mark.parametrize("how", ["plain", "causal", "mask", "bias", "grouped"])
def test_scaled_dot_product_attention(how):
    torch = pytest.importorskip("torch")
    B, H, S, T, D, F = 2, 4, 5, 6, 3, 2
    Hkv = 2 if how == "grouped" else H
    inputs = arrays((B, H, S, D), (B, Hkv, T, D), (B, Hkv, T, F), (B, H, S, F))
    mask = chosen(B, 1, S, T) | np.eye(S, T, dtype=bool)
    (bias,) = arrays((H, S, T))
    ours, theirs = {
        "plain": ({}, {}),
        "causal": ({"causal": "top_left"}, {"is_causal": True}),
        "mask": ({"mask": mask}, {"attn_mask": torch.tensor(mask)}),
        "bias": ({"bias": bias}, {"attn_mask": torch.tensor(bias)}),
        "grouped": ({"scale": 0.3}, {"scale": 0.3, "enable_gqa": True}),
    }[how]
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs[:3]]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = torch.nn.functional.scaled_dot_product_attention(*tensors, **theirs)
        expected.backward(torch.tensor(inputs[3]))
    np.testing.assert_allclose(attention(*inputs[:3], **ours), expected.detach(), rtol=1e-11)
    gradients = attention_backward(inputs[3], *inputs[:3], **ours)
    for gradient, tensor in zip(gradients[:3], tensors, strict=True):
        np.testing.assert_allclose(gradient, tensor.grad, rtol=1e-9, atol=1e-13)


def test_everything_at_once_against_autograd():
    torch = pytest.importorskip("torch")
    shapes = [(2, 4, 7, 3), (2, 2, 9, 3), (2, 2, 9, 5), (4, 1, 9), (4,)]
    inputs = arrays(*shapes)
    (d_out,) = arrays((2, 4, 7, 5))
    options = {
        "mask": chosen(2, 1, 7, 9, share=0.8),
        "causal": "bottom_right",
        "window": (4, -1),
        "query_lengths": np.array([7, 5]),
        "key_lengths": np.array([8, 9]),
        "softcap": 2.0,
        "dropout": 0.2,
        "seed": 4,
    }
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    expected = torch_attention(*tensors[:3], bias=tensors[3], sinks=tensors[4], **options)
    expected.backward(torch.tensor(d_out))
    extra = {"bias": inputs[3], "sinks": inputs[4], **options}
    np.testing.assert_allclose(
        attention(*inputs[:3], **extra), expected.detach(), rtol=1e-11, atol=1e-14
    )
    for gradient, tensor in zip(
        attention_backward(d_out, *inputs[:3], **extra), tensors, strict=True
    ):
        np.testing.assert_allclose(gradient, tensor.grad, rtol=1e-9, atol=1e-13)
