"""Biases by distance and sinusoidal tables, against the papers' rules written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from undivided import positions
from undivided.engines.reference.position import sinusoidal_table
from undivided.errors import ArgumentError
from undivided.gradient_check import check_gradients

# ALiBi


def test_slopes_of_the_paper():
    np.testing.assert_array_equal(positions.alibi_slopes(8), [2.0**-i for i in range(1, 9)])
    np.testing.assert_allclose(
        positions.alibi_slopes(16), [2 ** (-i / 2) for i in range(1, 17)], rtol=1e-15
    )
    np.testing.assert_array_equal(positions.alibi_slopes(1), [2.0**-8])


@pytest.mark.parametrize("n", [3, 5, 6, 7, 12, 20, 40])
def test_slopes_between_powers_of_two(n):
    """The authors' get_slopes."""

    def power_of_two(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    closest = 2 ** math.floor(math.log2(n))
    expected = power_of_two(closest) + power_of_two(2 * closest)[0::2][: n - closest]
    np.testing.assert_allclose(positions.alibi_slopes(n), expected, rtol=1e-13)


@pytest.mark.parametrize("offset", [0, 3, -1])
def test_alibi_number_by_number(offset):
    H, S, T = 3, 4, 6
    slopes = positions.alibi_slopes(H)
    back = positions.alibi(H, S, T, offset=offset, dtype=np.float64)
    both = positions.alibi(H, S, T, offset=offset, bidirectional=True, dtype=np.float64)
    assert back.shape == both.shape == (1, H, S, T)
    for h in range(H):
        for i in range(S):
            for j in range(T):
                distance = j - (i + offset)
                assert both[0, h, i, j] == -slopes[h] * abs(distance)
                expected = -np.inf if distance > 0 else slopes[h] * distance
                assert back[0, h, i, j] == expected


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_alibi_types_and_empty_sides(dtype):
    assert positions.alibi(2, 0, 3, dtype=dtype).shape == (1, 2, 0, 3)
    assert positions.alibi(2, 3, 0, dtype=dtype).dtype == dtype
    assert positions.alibi(1, 1, 1).dtype == np.float32


# T5


def t5_rule(relative, bidirectional, buckets, max_distance):
    """The published rule, for one distance, with its logarithm in float32."""
    bucket = 0
    if bidirectional:
        buckets //= 2
        bucket += buckets if relative > 0 else 0
        n = abs(relative)
    else:
        n = -min(relative, 0)
    exact = buckets // 2
    if n < exact:
        return bucket + n
    ratio = np.log(np.float32(n) / np.float32(exact))
    step = ratio / np.float32(math.log(max_distance / exact)) * np.float32(buckets - exact)
    return bucket + min(exact + int(step), buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (4, 16), (64, 1000)])
def test_buckets_of_every_distance(bidirectional, buckets, max_distance):
    far = 2 * max_distance
    found = positions.t5_buckets(
        1,
        2 * far + 1,
        offset=far,
        buckets=buckets,
        max_distance=max_distance,
        bidirectional=bidirectional,
    )
    expected = [t5_rule(r, bidirectional, buckets, max_distance) for r in range(-far, far + 1)]
    np.testing.assert_array_equal(found[0], expected)


def test_buckets_known_from_the_defaults():
    """Distances where the logarithm lies on an edge: 8, 16, 32, 64 of 128."""
    found = positions.t5_buckets(1, 201, offset=200)[0, ::-1]  # by distance back
    assert [int(found[n]) for n in (0, 7, 8, 11, 12, 15, 16, 31, 32, 63, 64, 127, 128, 200)] == [
        0, 7, 8, 8, 9, 9, 10, 11, 12, 13, 14, 15, 15, 15,
    ]  # fmt: skip
    assert positions.t5_buckets(1, 2)[0, 1] == 17


def test_buckets_agree_with_torch():
    torch = pytest.importorskip("torch")
    distance = torch.arange(16, 3000)
    exact, buckets, max_distance = 16, 32, 128
    large = exact + (
        torch.log(distance.float() / exact) / math.log(max_distance / exact) * (buckets - exact)
    ).to(torch.long)
    expected = torch.min(large, torch.full_like(large, buckets - 1)).numpy()
    found = positions.t5_buckets(1, 3000, offset=2999, bidirectional=False)[0, ::-1]
    np.testing.assert_array_equal(found[16:], expected)
    np.testing.assert_array_equal(found[:16], np.arange(16))


@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5_bias_reads_the_table(bidirectional):
    options = {"max_distance": 16, "bidirectional": bidirectional, "offset": 2}
    table = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
    bias = positions.t5_bias(table, 4, 9, **options)
    index = positions.t5_buckets(4, 9, buckets=8, **options)
    assert bias.shape == (1, 3, 4, 9) and bias.dtype == np.float32
    for i in range(4):
        for j in range(9):
            np.testing.assert_array_equal(bias[0, :, i, j], table[index[i, j]])


@pytest.mark.parametrize("offset", [0, 3])
def test_t5_bias_backward(offset):
    options = {"max_distance": 8, "offset": offset}

    def forward(table):
        return positions.t5_bias(table, 5, 6, **options)

    def backward(d_bias, table):
        return positions.t5_bias_backward(d_bias, buckets=8, **options)

    table = np.random.default_rng(2).normal(size=(8, 2))
    assert check_gradients(forward, backward, table).ok


def test_t5_bias_backward_is_in_the_type_of_what_came():
    d_bias = np.random.default_rng(3).normal(size=(1, 2, 50, 60)).astype(np.float32)
    found = positions.t5_bias_backward(d_bias)
    assert found.shape == (32, 2) and found.dtype == np.float32
    np.testing.assert_array_equal(found, positions.t5_bias_backward(d_bias.copy()))
    total = d_bias.sum(axis=(0, 2, 3), dtype=np.float64)
    np.testing.assert_allclose(found.sum(axis=0), total, atol=1e-4)
    assert not positions.t5_bias_backward(d_bias[:, :, :0]).any()


def test_t5_bias_of_a_tensor():
    torch = pytest.importorskip("torch")
    table = np.random.default_rng(4).normal(size=(8, 3))
    tensor = torch.tensor(table, requires_grad=True)
    bias = positions.t5_bias(tensor, 4, 5)
    np.testing.assert_array_equal(bias.detach().numpy(), positions.t5_bias(table, 4, 5))
    d_bias = np.random.default_rng(5).normal(size=(1, 3, 4, 5))
    bias.backward(torch.tensor(d_bias))
    np.testing.assert_allclose(
        tensor.grad.numpy(), positions.t5_bias_backward(d_bias, buckets=8), atol=1e-14
    )


# Sinusoidal


def test_sinusoidal_is_the_table_of_the_layer():
    np.testing.assert_array_equal(
        positions.sinusoidal(50, 6, dtype=np.float64), sinusoidal_table(50, 6)
    )
    assert positions.sinusoidal(2, 4).dtype == np.float32


def test_sinusoidal_number_by_number():
    table = positions.sinusoidal(4, 5, base=100.0, offset=7, dtype=np.float64)
    for t in range(4):
        for d in range(5):
            angle = (t + 7) / 100.0 ** (2 * (d // 2) / 5)
            expected = math.cos(angle) if d % 2 else math.sin(angle)
            assert table[t, d] == pytest.approx(expected, abs=1e-15)


# Errors


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: positions.alibi_slopes(0),
         "The 'num_heads' of alibi_slopes must be a whole number ≥ 1. Got 0."),
        (lambda: positions.alibi(2, 1.5, 3),
         "The 'queries' of alibi must be a whole number ≥ 0. Got 1.5."),
        (lambda: positions.alibi(2, 1, 3, dtype=int),
         "The 'dtype' of alibi must be float16, float32 or float64. Got int64."),
        (lambda: positions.t5_buckets(2, -1),
         "The 'keys' of t5_buckets must be a whole number ≥ 0. Got -1."),
        (lambda: positions.t5_buckets(2, 2, buckets=2),
         "The 'buckets' of t5_buckets must be a whole number ≥ 4. Got 2."),
        (lambda: positions.t5_buckets(2, 2, max_distance=8),
         "The 'max_distance' of t5_buckets must be a whole number ≥ 9. Got 8."),
        (lambda: positions.t5_buckets(2, 2, offset=True),
         "The 'offset' of t5_buckets must be a whole number. Got True."),
        (lambda: positions.t5_bias(np.ones(8), 2, 2),
         "The 'table' of t5_bias must be a NumPy array or PyTorch tensor [buckets, heads]. "
         "Got shape [8]."),
        (lambda: positions.t5_bias([[1.0]], 2, 2), "Got list."),
        (lambda: positions.t5_bias_backward(np.ones((2, 3, 4, 4))),
         "The 'd_bias' of t5_bias_backward must be a NumPy array [1, heads, queries, keys]"),
        (lambda: positions.sinusoidal(3, 4, base=-1.0),
         "The 'base' of sinusoidal must be a number > 0. Got -1.0."),
    ],
)  # fmt: skip
def test_what_is_refused(call, text):
    with pytest.raises(ArgumentError) as error:
        call()
    assert text in str(error.value)
