"""KeyValueCache: token by token gives what one pass over the whole text gives."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undivided import masks
from undivided._operator import cache as module
from undivided._operator.cache import KeyValueCache
from undivided.errors import ArgumentError
from undivided.reference import attention as reference

B, H, G, D, F = 3, 4, 2, 5, 3
OPERATOR = importlib.util.find_spec("undivided._operator.attention") is not None


@pytest.fixture(params=["reference", "operator"] if OPERATOR else ["reference"], autouse=True)
def attention(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "reference":
        monkeypatch.setattr(module, "_attention", reference)
    return str(request.param)


def tokens(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[B, H, n, D] queries, [B, G, n, D] keys and [B, G, n, F] values."""
    draw = np.random.default_rng(seed).standard_normal
    return draw((B, H, n, D)), draw((B, G, n, D)), draw((B, G, n, F))


def small(**options: Any) -> KeyValueCache:
    return KeyValueCache(B, G, D, F, dtype=np.float64, **options)


def in_steps(
    cache: KeyValueCache,
    full: tuple[np.ndarray, np.ndarray, np.ndarray],
    steps: list[np.ndarray],
    **options: Any,
) -> np.ndarray:
    """[B, H, n, F]: the texts appended piece by piece, of steps[s][b] tokens of sample b."""
    out = np.full((*full[0].shape[:3], F), np.nan)
    for new in steps:
        at, rows = cache.positions, int(new.max(initial=0))
        pieces = [np.full((B, x.shape[1], rows, x.shape[3]), np.nan) for x in full]
        for b in range(B):
            for piece, x in zip(pieces, full, strict=True):
                piece[b, :, : new[b]] = x[b, :, at[b] : at[b] + new[b]]
        ragged = (new < rows).any()
        cache.append(pieces[1], pieces[2], new if ragged else None)
        piece_out = cache.attention(pieces[0], **options)
        for b in range(B):
            out[b, :, at[b] : at[b] + new[b]] = piece_out[b, :, : new[b]]
            assert not piece_out[b, :, new[b] :].any()
    return out


def whole(full: tuple[np.ndarray, np.ndarray, np.ndarray], **options: Any) -> np.ndarray:
    return reference(*full, **{"causal": True, "query_offset": 0, **options})


def check(cache: KeyValueCache, full: Any, steps: list[np.ndarray], **options: Any) -> None:
    """That pieces give what the whole gives, as far as the pieces go."""
    out = in_steps(cache, full, steps, **options)
    window = None if cache.window is None else (cache.window, None)
    wanted = whole(full, **{"window": window, **options})
    ends = sum(steps)
    assert cache.positions.tolist() == np.asarray(ends).tolist()
    for b in range(B):
        np.testing.assert_allclose(
            out[b, :, : ends[b]], wanted[b, :, : ends[b]], rtol=1e-12, atol=1e-14
        )


def same(*counts: int) -> list[np.ndarray]:
    return [np.full(B, count) for count in counts]


@pytest.mark.parametrize("window", [None, -1, 0, 1, 4, 100])
@pytest.mark.parametrize("capacity", [0, 7, 64])
def test_token_by_token(window: int | None, capacity: int) -> None:
    check(small(window=window, capacity=capacity), tokens(30), same(*[1] * 30))


@pytest.mark.parametrize("window", [None, 0, 5])
def test_a_prompt_then_tokens_then_another_prompt(window: int | None) -> None:
    check(small(window=window), tokens(40), same(17, 1, 1, 1, 12, 0, 1, 7))


@pytest.mark.parametrize("window", [None, 0, 3])
def test_every_text_at_its_own_pace(window: int | None) -> None:
    steps = [np.array(new) for new in ([9, 1, 4], [1, 1, 1], [0, 5, 1], [1, 0, 0], [8, 8, 0])]
    check(small(window=window), tokens(20), steps)
    full = tokens(20)
    poisoned = tuple(x.copy() for x in full)
    for x in poisoned:
        x[1, :, 15:] = np.nan  # never appended: sample 1 has 15 tokens
    check(small(window=window), poisoned, steps)


@given(
    st.lists(st.lists(st.integers(0, 6), min_size=B, max_size=B), max_size=14),
    st.none() | st.integers(0, 9),
    st.integers(0, 12),
)
@settings(max_examples=150, derandomize=True, database=None, deadline=None)
def test_any_pace(new: list[list[int]], window: int | None, capacity: int) -> None:
    cache = small(window=window, capacity=capacity)
    steps = [np.array(row) for row in new]
    check(cache, tokens(84), steps or same(0))
    if window is not None:
        assert cache.capacity <= max(capacity, 2 * window + 6)
        assert (cache.lengths >= np.minimum(cache.positions, window)).all()
    else:
        assert (cache.lengths == cache.positions).all()


OPTIONS: list[Callable[[], dict[str, Any]]] = [
    lambda: {"scale": 0.3, "softcap": 2.0},
    lambda: {"sinks": np.linspace(-1, 1, H)},
    lambda: {"window": (2, 0)},
    lambda: {"window": (None, 0)},
    lambda: {"mask": masks.strided(3)},
    lambda: {"mask": masks.block_local(7) | masks.global_tokens([0, 11])},
    lambda: {"mask": ~masks.window(1, 1)},
    lambda: {"mask": masks.documents(np.arange(30) // 8)},
    lambda: {"mask": masks.random(2, block=3).sized(30, 30)},
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("window", [None, 6])
def test_with_every_option_that_means_the_same_in_pieces(
    options: Callable[[], dict[str, Any]], window: int | None
) -> None:
    given = options()
    wanted = dict(given)
    if window is not None:
        left = given.get("window", (None, 0))[0]
        wanted["window"] = (window if left is None else left, 0)
    for steps in (same(11, *[1] * 19), [np.array([5, 9, 0]), np.array([1, 0, 8])] * 3):
        out = in_steps(small(window=window), tokens(30), steps, **given)
        full = whole(tokens(30), **wanted)
        for b, end in enumerate(sum(steps)):
            np.testing.assert_allclose(out[b, :, :end], full[b, :, :end], rtol=1e-12, atol=1e-14)


def test_not_causal_sees_what_was_appended_with_it() -> None:
    query, key, value = tokens(6)
    cache = small()
    cache.append(key, value)
    out = cache.attention(query, causal=False)
    np.testing.assert_allclose(out, reference(query, key, value), rtol=1e-12)


def test_more_comes_back_when_asked_for() -> None:
    query, key, value = tokens(6)
    cache = small()
    cache.append(key[:, :, :5], value[:, :, :5])
    cache.append(key[:, :, 5:], value[:, :, 5:])
    out, weights, lse = cache.attention(query[:, :, 5:], return_weights=True, return_lse=True)
    assert out.shape == (B, H, 1, F) and weights.shape == (B, H, 1, 6) and lse.shape == (B, H, 1)
    np.testing.assert_allclose(weights.sum(axis=-1), 1)


# What it keeps.


def test_what_is_kept_can_be_seen() -> None:
    _, key, value = tokens(5)
    cache = small()
    assert cache.keys.shape == (B, G, 0, D) and cache.values.shape == (B, G, 0, F)
    cache.append(key, value, [5, 2, 0])
    assert cache.lengths.tolist() == cache.positions.tolist() == [5, 2, 0]
    assert cache.lengths.dtype == cache.positions.dtype == np.int64
    assert cache.keys.shape == (B, G, 5, D) and cache.values.shape == (B, G, 5, F)
    np.testing.assert_array_equal(cache.keys[0], key[0])
    np.testing.assert_array_equal(cache.values[1, :, :2], value[1, :, :2])
    assert np.shares_memory(cache.keys, cache.keys)
    cache.lengths[0] = 99  # a copy
    assert cache.lengths.tolist() == [5, 2, 0]
    assert repr(cache) == (
        "KeyValueCache(3 samples, 2 heads, 5 and 3 wide, float64: 0 to 5 keys in room for 5)"
    )


def test_a_window_keeps_what_it_must_and_moves_seldom() -> None:
    window, cache = 50, KeyValueCache(1, 1, 2, window=50)
    moves, before = 0, 0
    for n in range(2000):
        token = np.full((1, 1, 1, 2), n, np.float32)
        cache.append(token, token)
        kept = int(cache.lengths[0])
        moves += kept <= before
        before = kept
        assert min(n + 1, window + 1) <= kept <= cache.capacity <= 2 * window + 1
        np.testing.assert_array_equal(cache.keys[0, 0, :, 0], np.arange(n + 1 - kept, n + 1))
    assert moves <= 2000 / window
    assert cache.positions.tolist() == [2000]


def test_room_doubles() -> None:
    cache, rooms = KeyValueCache(1, 1, 1), []
    for _ in range(100):
        cache.append(*[np.zeros((1, 1, 1, 1), np.float32)] * 2)
        rooms.append(cache.capacity)
    assert sorted(set(rooms)) == [1, 2, 4, 8, 16, 32, 64, 128]


def test_reset_keeps_the_room() -> None:
    cache, full = small(), tokens(20)
    check(cache, full, same(*[1] * 20))
    room = cache.capacity
    cache.reset()
    assert cache.lengths.tolist() == cache.positions.tolist() == [0, 0, 0]
    assert cache.capacity == room and cache.keys.shape[2] == 0
    check(cache, full, same(*[1] * 20))


def test_appending_nothing_and_no_samples() -> None:
    cache = small()
    cache.append(np.zeros((B, G, 0, D)), np.zeros((B, G, 0, F)))
    assert cache.attention(np.zeros((B, H, 0, D))).shape == (B, H, 0, F)
    empty = KeyValueCache(0, G, D)
    empty.append(np.zeros((0, G, 2, D), np.float32), np.zeros((0, G, 2, D), np.float32), [])
    assert empty.lengths.shape == (0,)


@pytest.mark.parametrize("dtype", ["float16", np.float32, np.dtype("float64")])
def test_every_type(dtype: Any) -> None:
    cache = KeyValueCache(1, 1, 4, dtype=dtype)
    row = np.ones((1, 1, 1, 4), dtype)
    cache.append(row, row)
    assert cache.keys.dtype == cache.values.dtype == np.dtype(dtype)


def test_what_is_wrong_changes_nothing() -> None:
    _, key, value = tokens(4)
    cache = small()
    cache.append(key, value)
    with pytest.raises(ArgumentError):
        cache.append(key, value, [9, 0, 0])
    with pytest.raises(ArgumentError):
        cache.append(key, value[:, :, :2])
    assert cache.lengths.tolist() == [4, 4, 4]


# What cannot be.


def appended(*arrays: Any, **options: Any) -> Callable[[], object]:
    return lambda: small(**options).append(*arrays)


def attended(query: Any, *, kept: int | None = None, **options: Any) -> Callable[[], object]:
    def call() -> object:
        _, key, value = tokens(2)
        cache = small(window=kept)
        cache.append(key, value)
        return cache.attention(query, **options)

    return call


KEY, VALUE, QUERY = np.zeros((B, G, 2, D)), np.zeros((B, G, 2, F)), np.zeros((B, H, 2, D))
WRONG: list[tuple[Callable[[], object], str | None, str]] = [
    (
        lambda: KeyValueCache(-1, 1, 1),
        "batch",
        "The 'batch' of KeyValueCache must be a whole number ≥ 0. Got -1.",
    ),
    (
        lambda: KeyValueCache(1, 0, 1),
        "num_kv_heads",
        "The 'num_kv_heads' of KeyValueCache must be a whole number ≥ 1. Got 0.",
    ),
    (
        lambda: small(window=(4, 0)),
        "window",
        "The 'window' of KeyValueCache must be a whole number ≥ 0. Got (4, 0).",
    ),
    (
        lambda: KeyValueCache(1, 1, 1, dtype="flaot32"),
        "dtype",
        "The 'dtype' of KeyValueCache must be float16, float32 or float64. Got 'flaot32'. "
        "Did you mean 'float32'?",
    ),
    (
        lambda: KeyValueCache(1, 1, 1, dtype=np.int32),
        "dtype",
        "The 'dtype' of KeyValueCache must be float16, float32 or float64. "
        "Got <class 'numpy.int32'>.",
    ),
    (
        appended(KEY[:, :1], VALUE),
        "key",
        "KeyValueCache.append expects 'key' of shape [3, 2, n, 5]: batch, key/value heads, new "
        "tokens, width. Got [3, 1, 2, 5].",
    ),
    (
        appended(KEY, VALUE[0]),
        "value",
        "KeyValueCache.append expects 'value' of shape [3, 2, n, 3]: batch, key/value heads, new "
        "tokens, width. Got [2, 2, 3].",
    ),
    (
        appended(KEY, VALUE.astype(np.float32)),
        "value",
        "KeyValueCache.append expects 'value' in float64, the cache's own type. Got float32. "
        "Convert it, or make the cache with dtype=.",
    ),
    (
        appended(KEY, VALUE[:, :, :1]),
        "value",
        "KeyValueCache.append expects as many values as keys. Got 2 keys and 1 values.",
    ),
    (
        appended(KEY, VALUE, [1, 2]),
        "lengths",
        "The 'lengths' of KeyValueCache.append must be 3 whole numbers, one a sample, from 0 to "
        "the 2 rows of the key. Got int64 [2].",
    ),
    (
        appended(KEY, VALUE, [1, 2, 3]),
        "lengths",
        "The 'lengths' of KeyValueCache.append must be 3 whole numbers, one a sample, from 0 to "
        "the 2 rows of the key. Got [1, 2, 3].",
    ),
    (
        attended(QUERY[:, :, :1]),
        "query",
        "KeyValueCache.attention expects 'query' of shape [3, heads, 2, 5], a row for each token "
        "appended last and heads in multiples of 2. Got [3, 4, 1, 5]. Append keys and values "
        "first.",
    ),
    (
        attended(QUERY[:, :3]),
        "query",
        "KeyValueCache.attention expects 'query' of shape [3, heads, 2, 5], a row for each token "
        "appended last and heads in multiples of 2. Got [3, 3, 2, 5]. Append keys and values "
        "first.",
    ),
    (
        attended(QUERY, key_lengths=[2, 2, 2]),
        "key_lengths",
        "KeyValueCache.attention knows 'key_lengths' from what was appended. Leave it out.",
    ),
    (
        attended(QUERY, layout="bshd"),
        "layout",
        "KeyValueCache.attention knows 'layout' from what was appended. Leave it out.",
    ),
    (
        attended(QUERY, kept=3, window=(4, 0)),
        "window",
        "The 'window' of KeyValueCache.attention reaches 4 keys back, but the cache keeps 3. "
        "Make the cache with window=4.",
    ),
    (
        attended(QUERY, mask=masks.random(1)),
        None,
        "random(1, block=64, seed=0) draws among the keys that there are. Say how many queries "
        "and keys: mask.sized(queries, keys).",
    ),
]


@pytest.mark.parametrize(("wrong", "argument", "text"), WRONG, ids=[w[2][:40] for w in WRONG])
def test_what_cannot_be(wrong: Callable[[], object], argument: str | None, text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        wrong()
    assert str(error.value) == text
    assert error.value.argument == argument
