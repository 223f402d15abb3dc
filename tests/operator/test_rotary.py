"""rotary: distance is all that a dot product sees, turning back undoes turning."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undivided._operator.rotary import rotary
from undivided.errors import ArgumentError
from undivided.gradient_check import check_gradients

PAIRINGS = ("interleaved", "halves")


def normal(*shape: int, seed: int = 0, dtype: type = np.float64) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def by_complex_numbers(x, positions, base=10000.0, pairing="interleaved", width=None):
    """Pair i is the complex number a + ib; a turn is a factor exp(i·position·base^(−2i/width)).

    x [..., S, D], positions broadcastable to [..., S].
    """
    width = x.shape[-1] if width is None else width
    out = x.copy()
    for i in range(width // 2):
        at = (2 * i, 2 * i + 1) if pairing == "interleaved" else (i, i + width // 2)
        turned = (x[..., at[0]] + 1j * x[..., at[1]]) * np.exp(
            1j * positions * base ** (-2 * i / width)
        )
        out[..., at[0]], out[..., at[1]] = turned.real, turned.imag
    return out


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("shape", [(2, 3, 5, 8), (2, 5, 8), (5, 8), (1, 1, 1, 2), (2, 1, 0, 4)])
def test_is_a_product_of_complex_numbers(shape, pairing):
    x = normal(*shape)
    expected = by_complex_numbers(x, np.arange(shape[-2]), pairing=pairing)
    np.testing.assert_allclose(rotary(x, pairing=pairing), expected, rtol=0, atol=1e-13)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_option_against_complex_numbers(data):
    B, H, S, half = (data.draw(st.integers(1, n)) for n in (3, 3, 6, 5))
    rest = data.draw(st.integers(0, 3))
    pairing = data.draw(st.sampled_from(PAIRINGS))
    base = data.draw(st.sampled_from([10.0, 10000.0, 5e5]))
    ragged = data.draw(st.booleans())
    positions = data.draw(st.sampled_from([None, (S,), (B, S)]))
    if positions is not None:
        positions = np.random.default_rng(S).integers(-1000, 1000, positions)
    offset = np.arange(B) * 7 - 3 if ragged else 11
    x = normal(B, H, S, 2 * half + rest)

    place = np.broadcast_to(np.arange(S) if positions is None else positions, (B, S))
    place = (place + np.reshape(offset, (-1, 1)))[:, None]
    expected = by_complex_numbers(x, place, base, pairing, 2 * half)
    options = {"base": base, "pairing": pairing, "width": 2 * half, "offset": offset}
    y = rotary(x, positions, **options)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(y[..., 2 * half :], x[..., 2 * half :])

    back = rotary(y, positions, **options, inverse=True)
    np.testing.assert_allclose(back, x, rtol=0, atol=1e-13)
    swapped = rotary(x.swapaxes(1, 2), positions, **options, layout="bshd")
    np.testing.assert_array_equal(swapped, y.swapaxes(1, 2))


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_dot_products_depend_on_distance_alone(pairing):
    query, key = normal(1, 16), normal(1, 16, seed=1)

    def product(s, t):
        q, k = (rotary(x, [at], pairing=pairing) for x, at in ((query, s), (key, t)))
        return float((q * k).sum())

    for distance in (-3, 0, 5):
        found = [product(s, s + distance) for s in (0, 1, 40, 3000)]
        np.testing.assert_allclose(found, found[0], rtol=0, atol=1e-11)
    assert abs(product(0, 1) - product(0, 2)) > 1e-3  # and on distance they do depend


def test_lengths_are_kept():
    x = normal(2, 2, 9, 6)
    lengths = np.linalg.norm(rotary(x, offset=100), axis=-1)
    np.testing.assert_allclose(lengths, np.linalg.norm(x, axis=-1), rtol=1e-13)


def test_the_pairings_are_a_permutation_of_each_other():
    x = normal(2, 3, 5, 8)
    order = np.concatenate([np.arange(0, 8, 2), np.arange(1, 8, 2)])  # 0 2 4 6 1 3 5 7
    np.testing.assert_array_equal(
        rotary(x[..., order], pairing="halves"), rotary(x, pairing="interleaved")[..., order]
    )


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_the_backward_is_the_inverse(pairing):
    options = {"pairing": pairing, "width": 4, "offset": np.array([2, -5]), "base": 100.0}

    def forward(x):
        return rotary(x, **options)

    def backward(dy, x):
        return rotary(dy, **options, inverse=True)

    assert check_gradients(forward, backward, normal(2, 2, 3, 5)).ok


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("width", [None, 4, 0])
def test_the_type_is_kept_and_numbers_are_its_best(dtype, width):
    x = normal(2, 2, 40, 8, dtype=dtype)
    before = x.copy()
    y = rotary(x, offset=60000, width=width)
    assert y.dtype == dtype
    expected = by_complex_numbers(
        x.astype(np.float64), 60000 + np.arange(40), width=8 if width is None else width
    )
    largest = np.abs(x).max()
    bound = np.finfo(dtype).eps * largest * 2 + (0 if dtype == np.float64 else 1e-7)
    # With float64 the angle itself is rounded at 6e4.
    assert np.abs(y - expected).max() <= bound + (1e-10 if dtype == np.float64 else 0)
    np.testing.assert_array_equal(x, before)


def test_decoding_token_by_token_is_the_whole():
    x = normal(2, 3, 6, 8, dtype=np.float32)
    whole = rotary(x)
    for t in range(6):
        np.testing.assert_array_equal(rotary(x[:, :, t : t + 1], offset=t), whole[:, :, t : t + 1])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"x": [[1.0, 2.0]]}, "The 'x' of rotary must be a NumPy array or PyTorch tensor. "
         "Got list."),
        ({"x": np.ones(4)}, "must have shape [batch, heads, seq, dim], [batch, seq, dim] or "
         "[seq, dim]. Got [4]."),
        ({"x": np.ones((2, 2), int)}, "must hold floating-point numbers. Got int64."),
        ({"x": np.ones((2, 3))}, "must be even. Got 3. Turn fewer of its numbers: width=2."),
        ({"width": 3}, "must be an even whole number from 0 to 4, the width of a head. Got 3."),
        ({"width": 6}, "Got 6."),
        ({"pairing": "half"}, "must be 'interleaved' or 'halves'. Got 'half'. "
         "Did you mean 'halves'?"),
        ({"layout": "bhds"}, "The 'layout' of rotary must be 'bhsd' or 'bshd'."),
        ({"base": 0}, "The 'base' of rotary must be a number > 0. Got 0."),
        ({"positions": [0, 1]}, "must be numbers [3] or [2, 3] for x [2, 1, 3, 4]. "
         "Got shape [2]."),
        ({"positions": "ab"}, "The 'positions' of rotary must be [3] or [2, 3]. Got 'ab'."),
        ({"offset": [1, 2, 3]}, "must be a whole number or whole numbers [2] for x [2, 1, 3, 4]."),
        ({"offset": 1.5}, "Got float64 of shape []."),
        ({"x": np.ones((3, 4)), "offset": [1, 2]}, "must be a whole number for x [3, 4]."),
    ],
)  # fmt: skip
def test_what_is_refused(change, text):
    arguments = {"x": np.ones((2, 1, 3, 4)), "positions": None} | change
    with pytest.raises(ArgumentError) as error:
        rotary(arguments.pop("x"), arguments.pop("positions"), **arguments)
    assert text in str(error.value)


def test_arrays_do_not_bring_torch_in():
    program = (
        "import sys, numpy; from undivided._operator.rotary import rotary; "
        "rotary(numpy.ones((2, 4))); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


class TestTensors:
    @pytest.mark.parametrize("pairing", PAIRINGS)
    @pytest.mark.parametrize("layout", ["bhsd", "bshd"])
    def test_same_numbers_and_gradients(self, pairing, layout):
        torch = pytest.importorskip("torch")
        options = {"pairing": pairing, "width": 4, "layout": layout}
        x, dy = normal(2, 3, 5, 6), normal(2, 3, 5, 6, seed=1)
        tensor = torch.tensor(x, requires_grad=True)
        y = rotary(tensor, offset=torch.tensor([3, 9]), **options)
        offset = np.array([3, 9])
        np.testing.assert_array_equal(y.detach().numpy(), rotary(x, offset=offset, **options))
        y.backward(torch.tensor(dy))
        expected = rotary(dy, offset=offset, **options, inverse=True)
        np.testing.assert_allclose(tensor.grad.numpy(), expected, rtol=0, atol=1e-13)
        assert torch.autograd.gradcheck(lambda x: rotary(x, offset=2, **options), tensor)

    @pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
    def test_types(self, name):
        torch = pytest.importorskip("torch")
        x = torch.tensor(normal(1, 2, 8, 6)).to(getattr(torch, name))
        y = rotary(x, torch.arange(8))
        assert y.dtype == x.dtype
        expected = rotary(x.to(torch.float32).numpy())
        np.testing.assert_array_equal(
            y.to(torch.float32).numpy(), torch.tensor(expected).to(x.dtype).to(torch.float32)
        )
