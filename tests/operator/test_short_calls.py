"""Calls that ask for nothing special take a shorter way, and nothing tells but their time."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import undivided
from undivided import _native
from undivided._operator import core, short

SHAPES = [
    ((2, 4, 49, 16), (2, 4, 49, 16), 16),
    ((3, 4, 7, 32), (3, 2, 80, 32), 48),  # shared heads, other lengths, wider values
    ((1, 1, 1, 16), (1, 1, 1, 16), 16),
    ((1, 2, 130, 16), (1, 1, 512, 16), 32),
]


def arrays(query: tuple[int, ...], key: tuple[int, ...], width: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    shapes = (query, key, (*key[:3], width), (*query[:3], width))
    return [random.standard_normal(shape, dtype=np.float32) for shape in shapes]


@pytest.mark.parametrize(("query", "key", "width"), SHAPES)
@pytest.mark.parametrize("causal", [False, True])
def test_the_bits_are_those_of_the_general_way(
    query: tuple[int, ...], key: tuple[int, ...], width: int, causal: bool
) -> None:
    q, k, v, _ = arrays(query, key, width)
    if causal and query[2] != key[2]:
        assert short.attention(q, k, v, causal, None) is None
        return
    found = short.attention(q, k, v, causal, None)
    for threads in (1, 2, 3):
        assert np.array_equal(found, short.attention(q, k, v, causal, threads))
    general, lse = undivided.attention(q, k, v, causal=causal, return_lse=True)
    assert np.array_equal(found, general) and lse.shape == query[:3]
    assert np.array_equal(found, undivided.attention(q, k, v, causal=causal))
    out, weights = undivided.attention(q, k, v, causal=causal, return_weights=True)
    _, others, _ = undivided.attention(q, k, v, causal=causal, return_weights=True, return_lse=True)
    assert np.array_equal(out, found) and np.array_equal(weights, others)


def test_what_is_for_the_general_way() -> None:
    q, k, v, _ = arrays((1, 2, 8, 16), (1, 2, 8, 16), 16)
    assert short.attention(q, k, v, False, None) is not None
    for wrong in (
        (q.astype(np.float64), k, v),
        (q.swapaxes(1, 2), k, v),
        (q[..., :8], k[..., :8], v),
        (np.ascontiguousarray(q[..., :8]), np.ascontiguousarray(k[..., :8]), v),
        (q[:, :, :0], k, v),
        (q[0], k[0], v[0]),
        (q, k.tolist(), v),
        (q, k[:, :, :7], v),
    ):
        assert short.attention(*wrong, False, None) is None
    long = np.zeros((1, 1, core.WHOLE_KEYS + 1, 16), np.float32)
    assert short.attention(long, long, long, False, None) is None
    with pytest.raises(undivided.UndividedError, match="The 'key' of attention must be of a batch"):
        undivided.attention(q, np.zeros((2, 2, 8, 16), np.float32), v)
    with pytest.raises(undivided.UndividedError, match="'threads' must be a whole number from 1"):
        undivided.attention(q, k, v, threads=0)


def test_nan_and_infinity_go_the_same_way() -> None:
    q, k, v, _ = arrays((1, 1, 20, 16), (1, 1, 20, 16), 16)
    k[0, 0, 9, 3], v[0, 0, 15, 2] = np.nan, np.inf
    found = undivided.attention(q, k, v, causal=True)
    assert np.isfinite(found[0, 0, :9]).all() and np.isnan(found[0, 0, 9:]).any()
    general, _ = undivided.attention(q, k, v, causal=True, return_lse=True)
    assert np.array_equal(found, general, equal_nan=True)


@pytest.mark.parametrize(("query", "key", "width"), SHAPES)
def test_gradients_of_tensors_are_those_of_the_general_way(
    query: tuple[int, ...], key: tuple[int, ...], width: int
) -> None:
    torch = pytest.importorskip("torch")
    *given, d_out = arrays(query, key, width)
    _, pullback = undivided.attention_vjp(*given)
    wanted = pullback(d_out)[:3]
    for needs in ((True, True, True), (True, False, False), (False, True, False)):
        tensors = [
            torch.tensor(x, requires_grad=need) for x, need in zip(given, needs, strict=True)
        ]
        out = undivided.attention(*tensors)
        assert type(out.grad_fn).__name__ == "ShortAttentionBackward"
        out.backward(torch.tensor(d_out))
        for tensor, gradient, need in zip(tensors, wanted, needs, strict=True):
            assert tensor.grad is None if not need else np.array_equal(tensor.grad, gradient)


def test_gradients_that_come_in_another_order() -> None:
    torch = pytest.importorskip("torch")
    q, k, v = (torch.randn(1, 2, 5, 16, requires_grad=True) for _ in range(3))
    out = undivided.attention(q, k, v)
    summed = torch.autograd.grad(out.sum(), (q, k, v), retain_graph=True)  # d_out has no steps
    ones = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    for a, b in zip(summed, ones, strict=True):
        assert torch.equal(a, b)


def test_a_changed_input_and_a_second_derivative_are_refused() -> None:
    torch = pytest.importorskip("torch")
    q, k, v = (torch.randn(1, 2, 5, 16, requires_grad=True) for _ in range(3))
    out = undivided.attention(q, k, v)
    with torch.no_grad():
        k.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    (d_q,) = torch.autograd.grad(undivided.attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(undivided.UndividedError, match="first derivatives only"):
        d_q.sum().backward()


def test_memory_is_used_again_only_when_nobody_holds_it() -> None:
    def filled(value: float, rows: int = 40_000) -> np.ndarray:
        array = _native.recycled((rows, 4))
        array.fill(value)
        return array

    first = filled(1)
    view = first[10:]
    address = _native.address(first)
    del first
    assert _native.address(filled(2)) != address and (view == 1).all()
    del view
    assert _native.address(filled(3)) != _native.address(filled(4, rows=10_000))
    assert any(_native.address(filled(5)) == address for _ in range(2))
    assert _native.recycled((0, 7)).shape == (0, 7)


def test_memory_that_is_given_back_by_other_threads() -> None:
    def take(_: int) -> float:
        arrays = [_native.recycled((1000, n)) for n in range(1, 9)]
        for n, array in enumerate(arrays):
            array.fill(n)
        return sum(float(array[0, 0]) + float(array[-1, -1]) for array in arrays)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(take, range(200))) == {56.0}
