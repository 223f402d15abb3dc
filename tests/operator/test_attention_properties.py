"""What holds of attention whatever its numbers are, to the bit where it says so."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from attention_calls import PATHS, Call, on_path

import undivided
from undivided import KeyValueCache, attention, attention_varlen, attention_vjp, masks
from undivided._operator.options import Sizes

# B batch, H heads, Hkv key/value heads, S queries, T keys, D width of queries and keys, F of values

EVERYTHING: dict[str, Any] = {
    "causal": "bottom_right",
    "window": (40, -1),
    "key_lengths": (70, 33, 64),
    "query_lengths": (60, 21, 60),
}


def numbers(*shapes: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng([seed, 9])
    return [random.normal(size=shape).astype(dtype) for shape in shapes]


def everything(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, d_out: np.ndarray, **options: Any
) -> list[np.ndarray]:
    """out, lse and all gradients."""
    out, lse = attention(q, k, v, return_lse=True, **options)
    again, pullback = attention_vjp(q, k, v, **options)
    np.testing.assert_array_equal(again, out)
    return [out, lse, *(x for x in pullback(d_out) if x is not None)]


def same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


# Who does not matter to whom.


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest) -> Any:
    with on_path(request.param):
        yield request.param


def test_samples_do_not_know_of_each_other(path: str) -> None:
    q, k, v, d_out = numbers((3, 4, 60, 8), (3, 2, 70, 8), (3, 2, 70, 5), (3, 4, 60, 5))
    bias, sinks = numbers((3, 4, 1, 70), (4,))
    whole = everything(q, k, v, d_out, bias=bias, sinks=sinks, **EVERYTHING)
    for b in range(3):
        one = {
            name: (x[b],) if isinstance(x, tuple) and name.endswith("lengths") else x
            for name, x in EVERYTHING.items()
        }
        alone = everything(
            *(x[b : b + 1] for x in (q, k, v, d_out)), bias=bias[b : b + 1], sinks=sinks, **one
        )
        same([x[0] for x in alone[:-1]], [x[b] for x in whole[:-1]])


def test_heads_do_not_know_of_each_other(path: str) -> None:
    q, k, v, d_out = numbers((2, 4, 30, 8), (2, 4, 70, 8), (2, 4, 70, 5), (2, 4, 30, 5))
    whole = everything(q, k, v, d_out, window=(9, 30), query_offset=3)
    for h in range(4):
        alone = everything(
            *(x[:, h : h + 1] for x in (q, k, v, d_out)), window=(9, 30), query_offset=3
        )
        same([x[:, 0] for x in alone], [x[:, h] for x in whole])


def test_the_order_of_samples_heads_and_queries_is_nothing(path: str) -> None:
    q, k, v, d_out = numbers((3, 3, 40, 8), (3, 3, 70, 8), (3, 3, 70, 5), (3, 3, 40, 5))
    random = np.random.default_rng(4)
    whole = everything(q, k, v, d_out)
    for axis in (0, 1):
        turn = random.permutation(3)
        turned = everything(*(x.take(turn, axis) for x in (q, k, v, d_out)))
        same(turned, [x.take(turn, axis) for x in whole])
    turn = random.permutation(40)
    turned = everything(q[:, :, turn], k, v, d_out[:, :, turn])
    same(turned[:3], [x[:, :, turn] for x in whole[:3]])  # sums over queries have another order


def test_the_order_of_keys_is_rounding_only(path: str) -> None:
    call = Call(Sizes(2, 2, 2, 9, 70, 8, 5), path=path)
    call.check()
    arrays = call.inputs()
    turn = np.random.default_rng(5).permutation(70)
    turned = {name: x[:, :, turn] if name in ("key", "value") else x for name, x in arrays.items()}
    whole, other = call.by_operator(arrays), call.by_operator(turned)
    for name, axis in (("out", None), ("d_query", None), ("d_key", 2), ("d_value", 2)):
        expected = whole[name] if axis is None else whole[name].take(turn, axis)
        np.testing.assert_allclose(other[name], expected, rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing(path: str) -> None:
    """The same numbers with room behind them, whatever lies there."""
    q, k, v, d_out = numbers((2, 2, 30, 8), (2, 2, 50, 8), (2, 2, 50, 5), (2, 2, 30, 5))
    short = everything(q, k, v, d_out, causal="bottom_right")
    for more in (1, 14, 64):
        padded = [
            np.concatenate([x, np.full((2, 2, more, x.shape[3]), np.nan, np.float32)], axis=2)
            for x in (q, k, v, d_out)
        ]
        found = everything(
            *padded, causal="bottom_right", query_lengths=(30, 30), key_lengths=(50, 50)
        )
        out, lse, dq, dk, dv = found
        same([out[:, :, :30], lse[..., :30], dq[:, :, :30], dk[:, :, :50], dv[:, :, :50]], short)
        assert not out[:, :, 30:].any() and not dq[:, :, 30:].any() and not dk[:, :, 50:].any()


@pytest.mark.parametrize("how", ["causal", "offset", "mask", "object"])
@pytest.mark.parametrize("tokens", [40, 150])
def test_causal_lets_nothing_through(how: str, tokens: int, path: str) -> None:
    """What comes after a query changes no bit of its output, nor of any gradient before it."""
    options: dict[str, Any] = {
        "causal": {"causal": True},
        "offset": {"causal": True, "query_offset": np.array([0, 0])},
        "mask": {"mask": np.tri(tokens, dtype=bool)},
        "object": {"mask": masks.causal()},
    }[how]
    q, k, v, d_out = numbers(*[(2, 2, tokens, 8)] * 4)
    at = tokens * 2 // 3
    d_out[:, :, at:] = 0
    whole = everything(q, k, v, d_out, **options)
    other = numbers(*[(2, 2, tokens, 8)] * 3, seed=1)
    changed = [
        np.where(np.arange(tokens)[:, None] < at, x, y)
        for x, y in zip((q, k, v), other, strict=True)
    ]
    found = everything(*changed, d_out, **options)
    same([x[:, :, :at] for x in found], [x[:, :, :at] for x in whole])
    assert not found[3][:, :, at:].any() and not found[4][:, :, at:].any()


# Ways of asking.


def test_threads_change_no_bit(path: str) -> None:
    q, k, v, d_out = numbers((3, 4, 60, 8), (3, 2, 600, 8), (3, 2, 600, 5), (3, 4, 60, 5))
    for shape in [(4, 1, 600), (1, 60, 600), (3, 1, 1, 600)]:
        bias, sinks = numbers(shape, (4,))
        options = {"bias": bias, "sinks": sinks, "dropout": 0.1, "seed": 1, "query_offset": 540}
        for more in ({}, {"window": (300, 9)}, {"dropout": 0.0}):
            given = {**options, **more}
            one = everything(q, k, v, d_out, threads=1, **given)
            for threads in (2, 3, 4):
                same(everything(q, k, v, d_out, threads=threads, **given), one)


def test_many_callers_at_once(path: str) -> None:
    """Calls of several threads of Python share helpers and scratch memory, and no bit."""
    calls = [
        numbers((2, 2, S, 16), (2, 1, S + 9, 16), (2, 1, S + 9, 16), (2, 2, S, 16), seed=S)
        for S in (3, 64, 70, 130) * 4
    ]
    alone = [everything(*call, threads=2) for call in calls]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda call: everything(*call, threads=2), calls))
    for x, y in zip(found, alone, strict=True):
        same(x, y)


def test_results_stay_what_they_are(path: str) -> None:
    """Whatever is computed after them, and whatever becomes of those that nobody holds."""
    arrays = numbers(*[(2, 2, 40, 16)] * 4)
    others = numbers(*[(2, 2, 40, 16)] * 4, seed=1)
    for options in ({}, {"causal": True}, {"softcap": 2.0}):
        held = everything(*arrays, **options)
        parts = [attention(*arrays[:3], **options)[0, 1, 3:7], held[2][1]]
        before = [x.copy() for x in (*held, *parts)]
        for _ in range(5):
            everything(*others, **options)
            attention(*others[:3], **options)
        same([*held, *parts], before)


def test_a_second_call_gives_the_same_bits(path: str) -> None:
    q, k, v, d_out = numbers((2, 4, 60, 8), (2, 2, 70, 8), (2, 2, 70, 5), (2, 4, 60, 5))
    same(everything(q, k, v, d_out), everything(q, k, v, d_out))


@pytest.mark.parametrize("T", [1, 17, 70, 600])
@pytest.mark.parametrize("softcap", [None, 2.0])
def test_weights_on_request(T: int, softcap: float | None, path: str) -> None:
    S, H = 9, 4
    q, k, v = numbers((2, H, S, 8), (2, 2, T, 8), (2, 2, T, 5))
    options = {"softcap": softcap, "query_lengths": (S, 4), "key_lengths": (T, (T + 1) // 2)}
    out, lse = attention(q, k, v, return_lse=True, **options)
    again, weights = attention(q, k, v, return_weights=True, **options)
    np.testing.assert_array_equal(again, out)
    assert weights.shape == (2, H, S, T)
    sums = weights.sum(axis=-1, dtype=np.float64)
    np.testing.assert_allclose(sums, np.isfinite(lse), atol=4e-6)
    assert not weights[1, ..., (T + 1) // 2 :].any() and not weights[1, :, 4:].any()
    np.testing.assert_allclose(weights @ v.repeat(2, axis=1), out, atol=2e-6)
    asked = [([2], [0]), ([3, 0], [8, 1, 2]), (None, 5), (1, None), ([], [1]), ([1, 1], [2, 2])]
    asked += [([3, 1, 0, 2], None), (None, np.arange(S)[::-1])]
    for heads, rows in asked:
        again, some = attention(q, k, v, return_weights=(heads, rows), **options)
        np.testing.assert_array_equal(again, out)
        heads = range(H) if heads is None else np.atleast_1d(np.array(heads, int))
        rows = range(S) if rows is None else np.atleast_1d(np.array(rows, int))
        np.testing.assert_array_equal(some, weights[:, heads][:, :, rows])


def test_weights_are_those_before_dropout(path: str) -> None:
    q, k, v = numbers((2, 2, 9, 8), (2, 2, 70, 8), (2, 2, 70, 5))
    out, weights = attention(q, k, v, return_weights=True, dropout=0.5, seed=3)
    np.testing.assert_array_equal(attention(q, k, v, dropout=0.5, seed=3), out)
    _, exact = undivided.reference.attention(q, k, v, return_weights=True)
    np.testing.assert_allclose(weights, exact, atol=1e-6)
    assert (attention(q, k, v, dropout=0.5, seed=4) != out).any()


def test_the_log_sum_exp_is_one(path: str) -> None:
    q, k, v = numbers((2, 2, 9, 8), (2, 2, 70, 8), (2, 2, 70, 5), dtype=np.float64)
    (sinks,) = numbers((2,), dtype=np.float64)
    z = q @ k.swapaxes(2, 3) / np.sqrt(8)
    expected = np.log(np.exp(z).sum(axis=-1) + np.exp(sinks)[:, None])
    _, lse = attention(q, k, v, sinks=sinks, return_lse=True)
    np.testing.assert_allclose(lse, expected, rtol=1e-14)
    nothing = np.zeros((9, 1), bool)
    np.testing.assert_array_equal(
        attention(q, k, v, mask=nothing, return_lse=True)[1], np.full((2, 2, 9), -np.inf)
    )
    np.testing.assert_array_equal(
        attention(q, k, v, mask=nothing, sinks=sinks, return_lse=True)[1],
        np.broadcast_to(sinks[:, None], (2, 2, 9)),
    )


@pytest.mark.parametrize("options", [{}, {"window": (9, 0)}, {"softcap": 4.0}, {"sinks": True}])
def test_decoding_is_the_full_pass(options: dict[str, Any], path: str) -> None:
    q, k, v = numbers((2, 4, 30, 8), (2, 2, 30, 8), (2, 2, 30, 5))
    options = dict(options)
    if options.pop("sinks", False):
        (options["sinks"],) = numbers((4,))
    full = attention(q, k, v, causal=True, **options)
    cache = KeyValueCache(2, 2, 8, 5)
    for start, stop in [(0, 11), (11, 12), (12, 13), (13, 30)]:
        piece = slice(start, stop)
        cache.append(k[:, :, piece], v[:, :, piece])
        np.testing.assert_allclose(
            cache.attention(q[:, :, piece], **options), full[:, :, piece], atol=1e-6
        )


# Numbers and sizes at the end of what there is.


@pytest.mark.parametrize("size", [30.0, 1e4])
def test_large_scores_stay_finite(size: float, path: str) -> None:
    q, k, v, d_out = numbers((1, 2, 40, 8), (1, 2, 70, 8), (1, 2, 70, 5), (1, 2, 40, 5))
    scores = q @ k.swapaxes(2, 3)
    scale = size / abs(scores).max()
    for more in ({}, {"softcap": 50.0}, {"dropout": 0.3, "seed": 2}, {"causal": "bottom_right"}):
        for x in everything(q, k, v, d_out, scale=scale, **more):
            assert np.isfinite(x).all()
    (bias,) = numbers((1, 2, 40, 70))
    for x in everything(q, k, v, d_out, bias=bias * size):
        assert np.isfinite(x).all()
    _, weights = attention(q, k, v, scale=scale, return_weights=True)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=2e-6 * max(size / 4, 1))


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(2, 2, 2, 0, 5, 4, 3),
        Sizes(2, 2, 2, 5, 0, 4, 3),
        Sizes(2, 2, 1, 0, 0, 4, 3),
        Sizes(0, 2, 2, 5, 6, 4, 3),
        Sizes(1, 1, 1, 1, 1, 1, 1),
        Sizes(2, 4, 2, 1, 9, 1, 1),
        Sizes(2, 2, 2, 9, 70, 256, 256),
        Sizes(1, 1, 1, 9, 9, 256, 1),
        Sizes(1, 2, 1, 3, 4, 300, 70),
        Sizes(1, 2, 1, 3, 4, 5, 0),
        Sizes(1, 2, 1, 3, 4, 0, 5),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("more", [{}, {"bias": (1, 1), "sinks": True}])
def test_the_smallest_and_the_widest(
    sizes: Sizes, dtype: str, more: dict[str, Any], path: str
) -> None:
    for layout in ("bhsd", "bshd", "flat"):
        if layout != "flat" or sizes.D * sizes.F:
            Call(sizes, dtype, path, layout, **more).check()


def test_no_head() -> None:
    q, k, v = numbers((2, 0, 3, 4), (2, 0, 5, 4), (2, 0, 5, 2))
    out, pullback = attention_vjp(q, k, v)
    assert out.shape == (2, 0, 3, 2)
    assert [x.shape for x in pullback(out)[:3]] == [q.shape, k.shape, v.shape]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 5, 16, 49, 64, 130, 512])
def test_short_calls_are_like_all_others(tokens: int, causal: bool) -> None:
    """Whole rows of float32, nothing else asked: a way of its own, and the same bits."""
    options = (("causal", True),) if causal else ()
    for B, H, Hkv, D, F in [(2, 1, 1, 16, 16), (1, 4, 2, 64, 16), (3, 2, 2, 16, 48)]:
        if tokens < 512:
            Call(Sizes(B, H, Hkv, tokens, tokens, D, F), options=options).check()
    q, k, v = numbers(*[(2, 3, tokens, 16)] * 3)
    one = attention(q, k, v, causal=causal, threads=1)
    for threads in (None, 2, 3, 4):
        np.testing.assert_array_equal(attention(q, k, v, causal=causal, threads=threads), one)
    np.testing.assert_array_equal(attention(q, k, v, causal=causal, return_lse=True)[0], one)


# Types.


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_types_are_computed_in_float32(name: str) -> None:
    module = np if name == "float16" else pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(module, name))
    q, k, v, d_out, bias, sinks = numbers(
        (2, 2, 9, 8), (2, 1, 70, 8), (2, 1, 70, 5), (2, 2, 9, 5), (9, 1), (2,), dtype=dtype
    )
    out, weights, lse = attention(q, k, v, bias=bias, return_weights=True, return_lse=True)
    _, pullback = attention_vjp(q, k, v, bias=bias, sinks=sinks)
    found = pullback(d_out)
    wide = [x.astype(np.float32) for x in (q, k, v, d_out, bias, sinks)]
    expected = attention(*wide[:3], bias=wide[4], return_weights=True, return_lse=True)
    np.testing.assert_array_equal(out, expected[0].astype(dtype))
    np.testing.assert_array_equal(weights, expected[1].astype(dtype))
    np.testing.assert_array_equal(lse, expected[2])  # whose digits a half type does not have
    assert out.dtype == weights.dtype == dtype and lse.dtype == np.float32
    _, pullback = attention_vjp(*wide[:3], bias=wide[4], sinks=wide[5])
    for x, y in zip(found, pullback(wide[3]), strict=True):
        assert x.dtype == dtype
        np.testing.assert_array_equal(x, y.astype(dtype))


def test_a_gradient_has_the_type_of_what_it_belongs_to() -> None:
    q, k, v = numbers((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4))
    for dtype in (np.float16, np.float32, np.float64):
        bias, sinks = numbers((3, 5), (2,), dtype=dtype)
        out, pullback = attention_vjp(q, k, v, bias=bias, sinks=sinks)
        found = pullback(out)
        assert found.bias.dtype == found.sinks.dtype == dtype and found.query.dtype == np.float32
    found = attention_vjp(q, k, v, bias=np.zeros((3, 5), int), sinks=[0, 1])[1](out)
    assert found.bias.dtype == found.sinks.dtype == np.float32


def test_the_other_order_of_bytes() -> None:
    q, k, v = numbers((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4))
    swapped = attention(*(x.astype(">f4") for x in (q, k, v)))
    np.testing.assert_array_equal(swapped.astype(np.float32), attention(q, k, v))


def test_arguments_stay_as_they_are() -> None:
    arrays = numbers((2, 2, 9, 16), (2, 2, 9, 16), (2, 2, 9, 16), (2, 2, 9, 16), (9, 9), (2,))
    before = [x.copy() for x in arrays]
    for x in arrays:
        x.flags.writeable = False
    q, k, v, d_out, bias, sinks = arrays
    everything(q, k, v, d_out, bias=bias, sinks=sinks, mask=np.tri(9, dtype=bool))
    same(arrays, before)


def test_pullback_gives_the_same_twice_and_out_may_be_written() -> None:
    q, k, v, d_out = numbers(*[(2, 2, 9, 16)] * 4)
    for options in ({}, {"softcap": 2.0}, {"sinks": np.zeros(2)}):
        out, pullback = attention_vjp(q, k, v, **options)
        first = pullback(d_out)
        out[...] = np.nan
        for x, y in zip(first, pullback(d_out), strict=True):
            np.testing.assert_array_equal(x, y)


# Packed sequences.


@pytest.mark.parametrize("seed", range(12))
def test_packed_sequences_are_sequences_side_by_side(seed: int, path: str) -> None:
    random = np.random.default_rng([seed, 11])
    count = int(random.integers(0, 6))
    lengths_q = random.integers(0, 40, count)
    lengths_k = lengths_q if seed % 2 else random.integers(0, 90, count)
    cu_q, cu_k = (np.concatenate([[0], n.cumsum()]) for n in (lengths_q, lengths_k))
    dtype = np.float64 if seed % 3 == 2 else np.float32
    q, k, v, sinks = numbers(
        (cu_q[-1], 4, 8), (cu_k[-1], 2, 8), (cu_k[-1], 2, 5), (4,), dtype=dtype
    )
    options: dict[str, Any] = [
        {},
        {"causal": True if seed % 2 else "bottom_right"},
        {"window": (3, 9), "query_offset": 2, "sinks": sinks, "softcap": 3.0},
        {"dropout": 0.3, "seed": seed},
    ][seed % 4]
    out, lse = attention_varlen(q, k, v, cu_q, cu_k, return_lse=True, **options)
    assert out.shape == (cu_q[-1], 4, 5) and lse.shape == (cu_q[-1], 4) and out.dtype == dtype
    np.testing.assert_array_equal(attention_varlen(q, k, v, cu_q, cu_k, **options), out)
    longest = [int(n.max(initial=0)) for n in (lengths_q, lengths_k)]
    padded = [
        np.zeros((count, x.shape[1], n, x.shape[2]), dtype)
        for x, n in zip((q, k, v), (longest[0], longest[1], longest[1]), strict=True)
    ]
    for b in range(count):
        for to, x, cu in zip(padded, (q, k, v), (cu_q, cu_k, cu_k), strict=True):
            to[b, :, : cu[b + 1] - cu[b]] = x[cu[b] : cu[b + 1]].swapaxes(0, 1)
    if options.get("causal") is True:
        options["causal"] = "top_left"
    expected, sums = attention(
        *padded, query_lengths=lengths_q, key_lengths=lengths_k, return_lse=True, **options
    )
    for b in range(count):
        rows, n = slice(cu_q[b], cu_q[b + 1]), lengths_q[b]
        np.testing.assert_array_equal(out[rows].swapaxes(0, 1), expected[b, :, :n])
        np.testing.assert_array_equal(lse[rows].T, sums[b, :, :n])


# Memory.

LONG = """
import resource, sys
import numpy as np
from undivided import attention_vjp

S = int(sys.argv[1])
q, k, v = (np.random.default_rng(i).normal(size=(1, 1, S, 16)).astype(np.float32) for i in range(3))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
out, pullback = attention_vjp(q, k, v, threads=1, window=(64, 0))
pullback(out)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_grows_with_the_length() -> None:
    """An S×S array of these lengths has 1 and 4 GB."""
    kilobytes = [
        int(
            subprocess.run(
                [sys.executable, "-c", LONG, str(S)], capture_output=True, text=True, check=True
            ).stdout
        )
        for S in (16384, 32768)
    ]
    assert kilobytes[0] < 30_000 and kilobytes[1] < 60_000


def test_python_keeps_nothing_that_grows_faster() -> None:
    q, k, v, d_out = numbers(*[(1, 2, 2048, 16)] * 4)
    tracemalloc.start()
    _, pullback = attention_vjp(q, k, v, mask=masks.causal() & masks.strided(3))
    pullback(d_out)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 12 * q.nbytes, f"{most / q.nbytes:.1f} times the query"
