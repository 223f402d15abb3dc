"""linear_attention: its definition against differences, the operator against its definition."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undivided._operator.linear import LinearGradients, linear_attention, linear_attention_vjp
from undivided._operator.linear_numpy import CHUNK
from undivided.engines.reference import linear_attention as reference
from undivided.errors import ArgumentError
from undivided.gradient_check import check_gradients

MAPS = tuple(reference.FEATURE_MAPS)


def square(x):
    """A feature map with features of another width: each number, and its square."""
    return np.concatenate([x * 0 + 1, x * x], axis=-1)


def square_backward(d_features, x):
    return 2 * x * d_features[..., x.shape[-1] :]


def arrays(B, H, Hkv, S, T, D, F, seed=0, dtype=np.float64, feature_map="elu"):
    """query, key, value and d_out; no query or key is near the kink of relu."""
    random = np.random.default_rng([seed, B, H, Hkv, S, T, D, F])
    shapes = [(B, H, S, D), (B, Hkv, T, D), (B, Hkv, T, F), (B, H, S, F)]
    query, key, value, d_out = (random.normal(size=shape) for shape in shapes)
    query, key = (x + np.where(x < 0, -0.05, 0.05) for x in (query, key))
    if feature_map == "identity":  # weights of both signs would divide by nearly 0
        query, key = np.abs(query), np.abs(key)
    return tuple(x.astype(dtype) for x in (query, key, value, d_out))


def both(query, key, value, d_out, **options):
    """out and gradients, of the operator and of the definition."""
    out, pullback = linear_attention_vjp(query, key, value, **options)
    found = (out, *pullback(d_out))
    expected = (
        reference.linear_attention(query, key, value, **options),
        *reference.linear_attention_backward(d_out, query, key, value, **options),
    )
    return found, expected


def agree(found, expected, tolerance=1e-11):
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        largest = max(1.0, float(np.abs(np.nan_to_num(b)).max(initial=0.0)))
        assert np.abs(np.nan_to_num(a - b)).max(initial=0.0) <= tolerance * largest


# The definition


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [None, [3, 0]])
@pytest.mark.parametrize("heads", [(1, 1), (2, 2), (4, 2), (3, 1)])
@pytest.mark.parametrize("feature_map", [*MAPS, (square, square_backward)], ids=str)
def test_the_full_jacobian_of_the_definition(feature_map, heads, lengths, causal):
    query, key, value, _ = arrays(2, *heads, 4, 4, 3, 2, feature_map=feature_map)
    options = {"feature_map": feature_map, "causal": causal, "key_lengths": lengths}

    def forward(*qkv):
        return reference.linear_attention(*qkv, **options)

    def backward(d_out, *qkv):
        return reference.linear_attention_backward(d_out, *qkv, **options)

    with np.errstate(all="raise", under="ignore"):
        assert check_gradients(forward, backward, query, key, value, step=1e-6).ok


def test_the_definition_number_by_number():
    query, key, value, _ = arrays(2, 4, 2, 3, 5, 2, 3)
    out = reference.linear_attention(query, key, value, key_lengths=[5, 2])
    phi = reference.elu
    for b, length in enumerate([5, 2]):
        for h in range(4):
            for i in range(3):
                fit = [phi(query[b, h, i]) @ phi(key[b, h // 2, j]) for j in range(length)]
                mean = sum(fit[j] * value[b, h // 2, j] for j in range(length)) / sum(fit)
                np.testing.assert_allclose(out[b, h, i], mean, rtol=1e-12)


def test_elu_is_that_of_the_paper():
    x = np.array([-800.0, -1.0, 0.0, 2.0])
    np.testing.assert_allclose(reference.elu(x), [0, np.exp(-1), 1, 3], rtol=1e-15)


def test_a_query_whose_features_meet_none_gives_0():
    query, key, value, d_out = arrays(1, 1, 1, 2, 3, 2, 2)
    query[:, :, 0] = -1.0
    query[:, :, 1] = 1.0
    found, expected = both(query, key, value, d_out, feature_map="relu")
    agree(found, expected)
    assert not found[0][0, 0, 0].any() and found[0][0, 0, 1].any()
    assert not found[1][0, 0, 0].any()


# The operator


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_operator_is_its_definition(data):
    B, K, G = (data.draw(st.integers(least, 3)) for least in (0, 1, 1))
    lengths_of_axes = st.sampled_from([0, 1, 2, 7, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5])
    causal = data.draw(st.booleans())
    S = data.draw(lengths_of_axes)
    T = S if causal else data.draw(lengths_of_axes)
    D, F = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    feature_map = data.draw(st.sampled_from([*MAPS, (square, square_backward)]))
    query, key, value, d_out = arrays(B, K * G, K, S, T, D, F, feature_map=feature_map)
    options = {"feature_map": feature_map, "causal": causal}
    if data.draw(st.booleans()):
        options["key_lengths"] = np.random.default_rng(T).integers(0, T + 1, B)

    found, expected = both(query, key, value, d_out, **options)
    agree(found, expected)
    np.testing.assert_array_equal(linear_attention(query, key, value, **options), found[0])

    turned = [x.swapaxes(1, 2) for x in (query, key, value, d_out)]
    out, pullback = linear_attention_vjp(*turned[:3], **options, layout="bshd")
    for a, b in zip((out, *pullback(turned[3])), found, strict=True):
        np.testing.assert_array_equal(a.swapaxes(1, 2), b)
        assert a.flags.c_contiguous


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("S", [33, 64, 65, 200])
def test_float32_is_as_near_as_float32_comes(S, causal):
    """The rule of docs/design.md: at most twice the error of the definition run in float32."""
    inputs = arrays(2, 2, 2, S, S, 16, 8, dtype=np.float32)
    found, expected32 = both(*inputs, causal=causal)
    _, expected = both(*(x.astype(np.float64) for x in inputs), causal=causal)
    for a, b32, b in zip(found, expected32, expected, strict=True):
        assert a.dtype == b32.dtype == np.float32
        allowed = 2 * np.abs(b32 - b).max() + 8 * 2.0**-24 * np.abs(b).max()
        assert np.abs(a - b).max() <= allowed


@pytest.mark.parametrize("causal", [False, True])
def test_one_key_takes_all_the_weight(causal):
    """So nothing is left to learn about how well it fits."""
    query, key, value, d_out = arrays(2, 2, 1, 1, 1, 4, 3, dtype=np.float32)
    out, pullback = linear_attention_vjp(query, key, value, causal=causal)
    np.testing.assert_allclose(out, value.repeat(2, axis=1), rtol=1e-6)
    d_query, d_key, d_value = pullback(d_out)
    np.testing.assert_allclose(d_query, np.zeros_like(query), atol=1e-6)
    np.testing.assert_allclose(d_key, np.zeros_like(key), atol=1e-6)
    np.testing.assert_allclose(d_value, d_out.sum(axis=1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_types_are_computed_in_float32(name):
    module = np if name == "float16" else pytest.importorskip("ml_dtypes")
    half = np.dtype(getattr(module, name))
    halves = arrays(1, 2, 1, 70, 70, 4, 3, dtype=half)
    wide = [x.astype(np.float32) for x in halves]
    out, pullback = linear_attention_vjp(*halves[:3], causal=True)
    expected, expected_pullback = linear_attention_vjp(*wide[:3], causal=True)
    np.testing.assert_array_equal(out, expected.astype(half))
    for a, b in zip(pullback(halves[3]), expected_pullback(wide[3]), strict=True):
        assert a.dtype == half
        np.testing.assert_array_equal(a, b.astype(half))
    np.testing.assert_array_equal(linear_attention(*halves[:3], causal=True), out)


@pytest.mark.parametrize("at", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 149])
@pytest.mark.parametrize("poison", [7.0, np.nan, np.inf])
def test_causal_lets_nothing_through(at, poison):
    """What comes later changes no bit of what came before, in either direction."""
    q, k, v, d_out = arrays(2, 2, 1, 150, 150, 4, 3)
    out, pullback = linear_attention_vjp(q, k, v, causal=True)
    gradients = pullback(d_out)

    changed_k, changed_v, changed_q = k.copy(), v.copy(), q.copy()
    changed_k[0, :, at], changed_v[0, :, at], changed_q[0, :, at] = poison, poison, poison
    found, changed_pullback = linear_attention_vjp(changed_q, changed_k, changed_v, causal=True)
    np.testing.assert_array_equal(found[:, :, :at], out[:, :, :at])
    np.testing.assert_array_equal(found[1], out[1])
    d_query = changed_pullback(d_out).query
    np.testing.assert_array_equal(d_query[:, :, :at], gradients.query[:, :, :at])

    # Backward it is the other way round: a query and its d_out reach the keys up to it alone.
    changed_d_out = d_out.copy()
    changed_d_out[0, :, at] = poison
    _, changed_pullback = linear_attention_vjp(changed_q, k, v, causal=True)
    changed = changed_pullback(changed_d_out)
    for a, b in zip(changed[1:], gradients[1:], strict=True):
        np.testing.assert_array_equal(a[:, :, at + 1 :], b[:, :, at + 1 :])
        np.testing.assert_array_equal(a[1], b[1])
        assert not np.array_equal(a[0, :, at], b[0, :, at])
    others = np.arange(150) != at
    np.testing.assert_array_equal(changed.query[:, :, others], gradients.query[:, :, others])


@pytest.mark.parametrize("causal", [False, True])
def test_padding_reaches_nothing(causal):
    q, k, v, d_out = arrays(3, 4, 2, 70, 70, 4, 3)
    options = {"causal": causal, "key_lengths": [70, 20, 0]}
    clean, _ = both(q, k, v, d_out, **options)
    k[1, :, 20:] = v[1, :, 20:] = np.nan
    q[2] = k[2] = v[2] = d_out[2] = np.inf
    found, expected = both(q, k, v, d_out, **options)
    for a, b in zip(found, clean, strict=True):
        np.testing.assert_array_equal(a, b)
    agree(found, expected)
    for array in found:
        assert not array[2].any()
    assert not found[2][1, :, 20:].any() and not found[3][1, :, 20:].any()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("which", range(4))
def test_nan_reaches_what_the_definition_says(which, causal):
    inputs = arrays(2, 2, 2, 90, 90, 3, 2)
    inputs[which][0, 1, 70, 0] = np.nan
    found, expected = both(*inputs, causal=causal)
    agree(found, expected)
    assert np.isnan(found[0]).any() or which == 3


def test_causal_is_the_full_pass_of_every_prefix():
    q, k, v, _ = arrays(1, 2, 2, 80, 80, 4, 3)
    out = linear_attention(q, k, v, causal=True)
    for i in (0, 1, 62, 63, 64, 79):
        last = linear_attention(q[:, :, i : i + 1], k[:, :, : i + 1], v[:, :, : i + 1])
        np.testing.assert_allclose(out[:, :, i : i + 1], last, rtol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_memory_grows_with_the_length_alone(causal):
    def peak(S):
        q, k, v, d_out = arrays(1, 1, 1, S, S, 8, 8, dtype=np.float32)
        tracemalloc.start()
        _, pullback = linear_attention_vjp(q, k, v, causal=causal)
        pullback(d_out)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    short, long = peak(2048), peak(16384)
    assert long < 9 * short
    assert long < 16384 * 16384  # bytes: the weights alone would take four times this


def test_arguments_stay_as_they_are():
    inputs = arrays(2, 4, 2, 70, 70, 4, 3)
    copies = [x.copy() for x in inputs]
    out, pullback = linear_attention_vjp(*inputs[:3], causal=True, key_lengths=[70, 3])
    out[...] = 0  # nor does pullback read what was given out
    first = pullback(inputs[3])
    for a, b in zip(inputs, copies, strict=True):
        np.testing.assert_array_equal(a, b)
    assert isinstance(first, LinearGradients)
    expected = reference.linear_attention_backward(
        inputs[3], *inputs[:3], causal=True, key_lengths=[70, 3]
    )
    agree(first, expected)


def test_views_are_taken_as_they_are():
    wide = arrays(2, 2, 2, 140, 140, 8, 6)
    views = [x[:, :, ::2, ::-2] for x in wide]
    found, _ = both(*views, causal=True)
    expected, _ = both(*(np.ascontiguousarray(x) for x in views), causal=True)
    agree(found, expected, 1e-13)


def test_a_function_alone_has_no_backward():
    q, k, v, d_out = arrays(1, 1, 1, 3, 3, 2, 2)
    pair = linear_attention(q, k, v, feature_map=(square, square_backward))
    np.testing.assert_array_equal(linear_attention(q, k, v, feature_map=square), pair)
    with pytest.raises(ArgumentError, match=r"give the pair \(function, backward\)"):
        linear_attention_vjp(q, k, v, feature_map=square)
    with pytest.raises(ArgumentError, match=r"give the pair \(function, backward\)"):
        reference.linear_attention_backward(d_out, q, k, v, feature_map=square)


# Errors

Q, KEY, V = arrays(2, 4, 2, 3, 5, 6, 7)[:3]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"query": [1.0]}, "The 'query' of linear_attention must be a NumPy array or PyTorch "
         "tensor. Got list."),
        ({"query": Q[0]}, "must have 4 axes, [batch, heads, seq, dim] or as 'layout' says. "
         "Got [4, 3, 6]."),
        ({"query": Q.astype(int)}, "must hold floating-point numbers. Got int64."),
        ({"key": KEY.astype(np.float32)}, "The 'key' of linear_attention must have the type of "
         "the query, float64. Got float32."),
        ({"key": KEY[:1]}, "must have the batch 2 and the width 6 of the query [2, 4, 3, 6]. "
         "Got [1, 2, 5, 6]."),
        ({"key": KEY[..., :5]}, "Got [2, 2, 5, 5]."),
        ({"value": V[:, :, :4]}, "The 'value' of linear_attention must have batch 2, 2 heads and "
         "5 keys, as the key [2, 2, 5, 6]. Got [2, 2, 4, 7]."),
        ({"query": Q[:, :3]}, "The 'key' of linear_attention must have a number of heads that "
         "divides the 3 of the query. Got 2."),
        ({"causal": True}, "The 'causal' of linear_attention must be False where the numbers of "
         "queries and keys differ. Got True with 3 queries and 5 keys."),
        ({"causal": "yes"}, "must be True or False. Got 'yes'."),
        ({"layout": "bsdh"}, "must be 'bhsd' or 'bshd'. Got 'bsdh'. Did you mean"),
        ({"key_lengths": [5]}, "The 'key_lengths' of linear_attention must be whole numbers [2], "
         "one a sample, from 0 to 5. Got int64 [1]."),
        ({"key_lengths": [5, 6]}, "Got 6 (sample 1)."),
        ({"key_lengths": [5, 1.5]}, "Got float64 [2]."),
        ({"feature_map": "elo"}, "The 'feature_map' of linear_attention must be one of 'elu', "
         "'relu', 'identity', a function, or a pair (function, its backward). Got 'elo'. "
         "Did you mean 'elu'?"),
        ({"feature_map": 3}, "Got 3."),
        ({"feature_map": lambda x: x.sum(axis=-1)}, "must keep all axes but the last, and give "
         "queries and keys the same width. Got [2, 4, 3] for the query [2, 4, 3, 6]."),
    ],
)  # fmt: skip
def test_what_is_refused(change, text):
    arguments = {"query": Q, "key": KEY, "value": V} | change
    with pytest.raises(ArgumentError) as error:
        linear_attention(**arguments)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("d_out", "text"),
    [(np.ones((2, 4, 3, 6)), "[2, 4, 3, 7], as out is. Got ndarray: float64 [2, 4, 3, 6]."),
     (1.0, "Got float: 1.0."), (np.ones((2, 4, 3, 7), int), "Got ndarray: int64 [2, 4, 3, 7].")],
)  # fmt: skip
def test_a_d_out_that_does_not_fit(d_out, text):
    _, pullback = linear_attention_vjp(Q, KEY, V)
    with pytest.raises(ArgumentError) as error:
        pullback(d_out)
    assert text in str(error.value)


def test_arrays_do_not_bring_torch_in():
    program = (
        "import sys, numpy; from undivided._operator.linear import linear_attention_vjp; "
        "x = numpy.ones((1, 1, 2, 4)); linear_attention_vjp(x, x, x)[1](x); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


class TestTensors:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("layout", ["bhsd", "bshd"])
    @pytest.mark.parametrize("feature_map", MAPS)
    def test_same_numbers_and_gradients(self, feature_map, layout, causal):
        torch = pytest.importorskip("torch")
        inputs = arrays(2, 4, 2, 70, 70, 4, 3, feature_map=feature_map)
        if layout == "bshd":
            inputs = [x.swapaxes(1, 2) for x in inputs]
        options = {"feature_map": feature_map, "causal": causal, "layout": layout}
        lengths = np.array([70, 9])
        expected, expected_pullback = linear_attention_vjp(
            *inputs[:3], key_lengths=lengths, **options
        )
        gradients = expected_pullback(inputs[3])

        tensors = [torch.tensor(x, requires_grad=True) for x in inputs[:3]]
        options["key_lengths"] = torch.tensor(lengths)
        out = linear_attention(*tensors, **options)
        np.testing.assert_array_equal(out.detach().numpy(), expected)
        out.backward(torch.tensor(inputs[3]))
        for tensor, gradient in zip(tensors, gradients, strict=True):
            np.testing.assert_allclose(tensor.grad.numpy(), gradient, rtol=0, atol=1e-12)

        out, pullback = linear_attention_vjp(*tensors, **options)
        np.testing.assert_array_equal(out.numpy(), expected)
        for _ in range(2):
            for found, tensor in zip(pullback(torch.tensor(inputs[3])), tensors, strict=True):
                np.testing.assert_array_equal(found.numpy(), tensor.grad.numpy())

    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("feature_map", ["elu", "callable"])
    def test_gradcheck(self, feature_map, causal):
        torch = pytest.importorskip("torch")
        if feature_map == "callable":
            feature_map = torch.exp
        tensors = [torch.tensor(x, requires_grad=True) for x in arrays(1, 2, 1, 5, 5, 3, 2)[:3]]
        assert torch.autograd.gradcheck(
            lambda *qkv: linear_attention(*qkv, feature_map=feature_map, causal=causal), tensors
        )

    def test_a_function_is_run_by_torch(self):
        torch = pytest.importorskip("torch")
        inputs = arrays(2, 2, 2, 70, 70, 4, 3)
        for x in inputs[1:3]:
            x[1, :, 9:] = np.nan  # padding
        options = {"causal": True, "key_lengths": [70, 9]}
        expected, expected_pullback = linear_attention_vjp(*inputs[:3], **options)
        tensors = [torch.tensor(x) for x in inputs]
        out, pullback = linear_attention_vjp(
            *tensors[:3], feature_map=lambda x: torch.nn.functional.elu(x) + 1, **options
        )
        np.testing.assert_allclose(out.numpy(), expected, rtol=0, atol=1e-12)
        for a, b in zip(pullback(tensors[3]), expected_pullback(inputs[3]), strict=True):
            np.testing.assert_allclose(a.numpy(), b, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("name", ["float16", "bfloat16"])
    def test_halves_are_computed_in_float32(self, name):
        torch = pytest.importorskip("torch")
        dtype = getattr(torch, name)
        tensors = [torch.tensor(x).to(dtype) for x in arrays(1, 2, 1, 70, 70, 4, 3)]
        wide = [x.to(torch.float32) for x in tensors]
        out, pullback = linear_attention_vjp(*tensors[:3], causal=True)
        expected, expected_pullback = linear_attention_vjp(*wide[:3], causal=True)
        assert torch.equal(out, expected.to(dtype))
        for a, b in zip(pullback(tensors[3]), expected_pullback(wide[3]), strict=True):
            assert torch.equal(a, b.to(dtype))

    def test_a_change_before_backward_is_noticed(self):
        torch = pytest.importorskip("torch")
        source = [torch.tensor(x, requires_grad=True) for x in arrays(1, 1, 1, 3, 3, 2, 2)[:3]]
        query, key, value = (x * 1 for x in source)
        out = linear_attention(query, key, value)
        key += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()

    def test_what_is_refused(self):
        torch = pytest.importorskip("torch")
        q, k, v = (torch.tensor(x) for x in (Q, KEY, V))
        for arguments, options, text in [
            ((q, KEY, v), {}, "The 'key' of linear_attention must be a PyTorch tensor, as the "
             "query is. Got a NumPy array."),
            ((Q, k, V), {}, "must be a NumPy array, as the query is. Got a PyTorch tensor."),
            ((q.to("meta"), k, v), {}, "must be on the CPU. Got meta. Move it with .cpu()."),
            ((q, k, v), {"feature_map": (square, square_backward)},
             "must be a function alone for PyTorch tensors: autograd finds its backward."),
            ((q, k, v), {"feature_map": lambda x: x.to(torch.float32)},
             "must keep the type torch.float64. Got torch.float32 and torch.float32."),
            ((q, k, v), {"feature_map": lambda x: x.sum(-1)}, "must keep all axes but the last"),
            ((q, k, v), {"feature_map": "Elu"}, "Did you mean 'elu'?"),
        ]:  # fmt: skip
            with pytest.raises(ArgumentError) as error:
                linear_attention(*arguments, **options)
            assert text in str(error.value)
        with pytest.raises(ArgumentError, match="must be a PyTorch tensor of floating-point"):
            linear_attention_vjp(q, k, v)[1](np.ones((2, 4, 3, 7)))
