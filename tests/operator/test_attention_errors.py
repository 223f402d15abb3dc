"""What cannot be meant is refused: the argument, what was expected, what came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undivided
from undivided import masks
from undivided.errors import ArgumentError


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


Q, K, V = floats(2, 4, 3, 8), floats(2, 2, 5, 8), floats(2, 2, 5, 6)
FLAT = floats(2, 3, 32), floats(2, 5, 16), floats(2, 5, 12)
PACKED = floats(6, 4, 8), floats(9, 2, 8), floats(9, 2, 6)
SQUARE = {"query": floats(2, 2, 16, 16), "key": floats(2, 2, 16, 16), "value": floats(2, 2, 16, 16)}
RAGGED = [[1.0], [1.0, 2.0]]

Refused = tuple[dict[str, Any], str, str]

CALLS: list[Refused] = [
    # The arrays.
    ({"query": Q.astype(int)}, "query", "of float32, float64, float16 or bfloat16. Got int64."),
    ({"query": Q.astype(complex)}, "query", "float16 or bfloat16. Got complex128."),
    ({"query": None}, "query", "float16 or bfloat16. Got None."),
    ({"query": "all of them"}, "query", "float16 or bfloat16. Got 'all of them'."),
    ({"query": RAGGED}, "query", "an array. Got rows of different lengths: [[1.0], [1.0, 2.0]]."),
    (
        {"query": Q[0, 0]},
        "query",
        "of four axes [B, H, S, D], or three with num_heads. Got [3, 8].",
    ),
    ({"query": Q[None]}, "query", "or three with num_heads. Got [1, 2, 4, 3, 8]."),
    ({"key": K[0]}, "key", "of four axes [B, H, S, D], or three with num_heads. Got [2, 5, 8]."),
    (
        {"value": V[0]},
        "value",
        "of four axes [B, H, S, D], or three with num_heads. Got [2, 5, 6].",
    ),
    ({"key": K.astype(np.float64)}, "key", "of float32, as 'query' is. Got float64."),
    ({"value": V.astype(np.float16)}, "value", "of float32, as 'query' is. Got float16."),
    ({"key": K[:1]}, "key", "of a batch of 2, as 'query' is. Got 1. The shapes, [batch, heads, "),
    ({"key": K[..., :7]}, "key", "8 wide, as 'query' is. Got 7. The shapes, "),
    ({"value": V[:1]}, "value", "of a batch of 2, as 'query' is. Got 1. The shapes, "),
    ({"value": V[:, :1]}, "value", "of 2 heads, as 'key' is. Got 1. The shapes, "),
    ({"value": V[:, :, :4]}, "value", "of 5 rows, as 'key' is. Got 4. The shapes, "),
    (
        {"query": Q[:, :3]},
        "key",
        "of a number of heads that divides the 3 of 'query'. Got 2. The shapes, [batch, heads, "
        "rows, width]: query [2, 3, 3, 8], key [2, 2, 5, 8], value [2, 2, 5, 6].",
    ),
    # Masks and biases.
    (
        {"mask": np.ones((3, 5))},
        "mask",
        "boolean, True where a query may attend, or made by undivided.masks. Got float64. Write "
        "`mask != 0`; what is added to scores goes into 'bias'.",
    ),
    ({"mask": np.ones((3, 5), int)}, "mask", "Got int64. Write `mask != 0`;"),
    ({"mask": "causal"}, "mask", "or made by undivided.masks. Got 'causal'."),
    ({"mask": masks.causal}, "mask", "or made by undivided.masks. Got <function causal"),
    ({"mask": [[True], [True, False]]}, "mask", "an array. Got rows of different lengths"),
    (
        {"mask": np.ones((4, 5), bool)},
        "mask",
        "of a shape that broadcasts to [B, H, S, T] = [2, 4, 3, 5]. Got [4, 5]. Add axes of "
        "length 1 where it is the same for all.",
    ),
    ({"mask": np.ones((1, 1, 1, 3, 5), bool)}, "mask", "= [2, 4, 3, 5]. Got [1, 1, 1, 3, 5]."),
    ({"bias": np.ones((3, 5), bool)}, "bias", "of floats, added to the scores. Got bool. Is it a"),
    ({"bias": np.ones((3, 5), complex)}, "bias", "of floats. Got complex128."),
    ({"bias": "alibi"}, "bias", "of floats. Got 'alibi'."),
    ({"bias": RAGGED}, "bias", "an array. Got rows of different lengths"),
    ({"bias": floats(3, 4)}, "bias", "broadcasts to [B, H, S, T] = [2, 4, 3, 5]. Got [3, 4]."),
    ({"sinks": floats(2)}, "sinks", "numbers [H] = [4]. Got float32 of shape [2]."),
    ({"sinks": 1.0}, "sinks", "numbers [H] = [4]. Got float64 of shape []."),
    # Where queries stand.
    (
        {"causal": "bottom_rihgt"},
        "causal",
        "True, False, 'top_left' or 'bottom_right'. Got 'bottom_rihgt'. Did you mean "
        "'bottom_right'?",
    ),
    ({"causal": 1}, "causal", "True, False, 'top_left' or 'bottom_right'. Got 1."),
    ({"causal": None}, "causal", "True, False, 'top_left' or 'bottom_right'. Got None."),
    ({**SQUARE, "causal": [True]}, "causal", "'top_left' or 'bottom_right'. Got [True]."),
    (
        {"causal": np.array([True, False])},
        "causal",
        "or 'bottom_right'. Got array([ True, False]).",
    ),
    ({"window": 3}, "window", "None for no bound. Got 3. Write (3, 3) for both sides."),
    ({"window": (1,)}, "window", "(left, right), each a whole number, or −1 or None for no bound."),
    ({"window": (-2, 0)}, "window", "or −1 or None for no bound. Got (-2, 0)."),
    ({"window": (1.5, 0)}, "window", "or −1 or None for no bound. Got (1.5, 0)."),
    ({"window": (True, 0)}, "window", "or −1 or None for no bound. Got (True, 0)."),
    ({"window": "ab"}, "window", "or −1 or None for no bound. Got 'ab'."),
    ({"query_lengths": [1.0, 2.0]}, "query_lengths", "of 2 samples. Got float64 of shape [2]."),
    ({"query_lengths": [1, 2, 3]}, "query_lengths", "of 2 samples. Got int64 of shape [3]."),
    ({"query_lengths": [1, 4]}, "query_lengths", "between 0 and 3. Got 4."),
    ({"query_lengths": [-1, 1]}, "query_lengths", "between 0 and 3. Got -1."),
    ({"key_lengths": [6, 1]}, "key_lengths", "between 0 and 5. Got 6."),
    ({"key_lengths": [True, False]}, "key_lengths", "of 2 samples. Got bool of shape [2]."),
    ({"key_lengths": [[1], [1, 2]]}, "key_lengths", "Got rows of different lengths"),
    (
        {"query_offset": 1.5},
        "query_offset",
        "whole numbers, one for each of 2 samples. Got float64",
    ),
    ({"query_offset": [1, 2, 3]}, "query_offset", "of 2 samples. Got int64 of shape [3]."),
    ({"query_offset": 1 << 40}, "query_offset", "and 2147483648. Got 1099511627776."),
    # Numbers.
    ({"scale": "x"}, "scale", "a finite number or None. Got 'x'."),
    ({"scale": float("nan")}, "scale", "a finite number or None. Got nan."),
    ({"scale": True}, "scale", "a finite number or None. Got True."),
    ({"scale": np.array([1.0, 2.0])}, "scale", "a finite number or None. Got array([1., 2.])."),
    ({"softcap": 0}, "softcap", "a number above 0 or None. Got 0.0."),
    ({"softcap": -1.0}, "softcap", "a number above 0 or None. Got -1.0."),
    ({"softcap": float("inf")}, "softcap", "a number above 0 or None. Got inf."),
    ({"softcap": "x"}, "softcap", "a number above 0 or None. Got 'x'."),
    ({"dropout": 1.0, "seed": 1}, "dropout", "a number from 0 to below 1. Got 1.0."),
    ({"dropout": -0.1, "seed": 1}, "dropout", "a number from 0 to below 1. Got -0.1."),
    ({"dropout": None}, "dropout", "a number from 0 to below 1. Got None."),
    ({"dropout": 0.1}, "seed", "when there is dropout. Got None. The same seed drops the same."),
    ({"dropout": 0.1, "seed": -1}, "seed", "from 0 to 2⁶⁴ − 1. Got -1."),
    ({"dropout": 0.1, "seed": 1 << 64}, "seed", "from 0 to 2⁶⁴ − 1. Got 18446744073709551616."),
    ({"dropout": 0.1, "seed": 1.5}, "seed", "a whole number of 64 bits. Got 1.5."),
    ({"dropout": 0.1, "seed": True}, "seed", "a whole number of 64 bits. Got True."),
    # What comes back, and how.
    ({"return_weights": "x"}, "return_weights", "True, False or (heads, rows). Got 'x'."),
    ({"return_weights": 1}, "return_weights", "True, False or (heads, rows). Got 1."),
    ({"return_weights": (1,)}, "return_weights", "True, False or (heads, rows). Got (1,)."),
    ({"return_weights": ([4], None)}, "return_weights", "heads from 0 to 3. Got [4]."),
    ({"return_weights": (None, [3])}, "return_weights", "rows from 0 to 2. Got [3]."),
    ({"return_weights": ([-1], None)}, "return_weights", "heads from 0 to 3. Got [-1]."),
    ({"return_weights": ([0.5], None)}, "return_weights", "heads from 0 to 3. Got [0.5]."),
    ({"return_weights": (RAGGED, None)}, "return_weights", "Got rows of different lengths"),
    ({"layout": "bsdh"}, "layout", "'bhsd' or 'bshd'. Got 'bsdh'. Did you mean 'bshd'?"),
    ({"layout": None}, "layout", "'bhsd' or 'bshd'. Got None."),
    ({"layout": "packed"}, "layout", "'bhsd' or 'bshd'. Got 'packed'. attention_varlen takes"),
    ({"num_heads": 4}, "num_heads", "left out for arrays of four axes, which have their heads."),
    ({"num_kv_heads": 2}, "num_kv_heads", "which have their heads. Got 2. It is for [B, S, heads"),
]


def refusal(call: Callable[[], object]) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        call()
    return caught.value


def check(error: ArgumentError, argument: str, text: str) -> None:
    assert error.argument == argument
    assert f"'{argument}' of attention must be" in str(error)
    assert text in str(error)
    assert ".." not in str(error).replace("...", "")


@pytest.mark.parametrize(("options", "argument", "text"), CALLS)
def test_a_call_that_is_refused(options: dict[str, Any], argument: str, text: str) -> None:
    arrays: dict[str, Any] = {"query": Q, "key": K, "value": V}
    arrays.update({name: options[name] for name in arrays if name in options})
    more = {name: x for name, x in options.items() if name not in arrays}
    check(refusal(lambda: undivided.attention(*arrays.values(), **more)), argument, text)
    if "return_weights" not in more:
        check(refusal(lambda: undivided.attention_vjp(*arrays.values(), **more)), argument, text)


@pytest.mark.parametrize(
    ("heads", "argument", "text"),
    [
        ({}, "num_heads", "given for arrays of three axes [B, S, heads·width]. Got None."),
        ({"num_heads": 0}, "num_heads", "that divides the width 32 of 'query'. Got 0."),
        ({"num_heads": 5}, "num_heads", "that divides the width 32 of 'query'. Got 5."),
        ({"num_heads": 4.0}, "num_heads", "that divides the width 32 of 'query'. Got 4.0."),
        ({"num_heads": 4, "num_kv_heads": 3}, "num_kv_heads", "the width 16 of 'key'. Got 3."),
        ({"num_heads": 4, "num_kv_heads": True}, "num_kv_heads", "width 16 of 'key'. Got True."),
        ({"num_heads": 4}, "key", "8 wide, as 'query' is. Got 4. The shapes, "),
    ],
)
def test_heads_side_by_side(heads: dict[str, Any], argument: str, text: str) -> None:
    check(refusal(lambda: undivided.attention(*FLAT, **heads)), argument, text)


def test_heads_may_be_counted_by_numpy() -> None:
    heads = {"num_heads": np.int64(4), "num_kv_heads": np.int32(2)}
    expected = undivided.attention(*FLAT, num_heads=4, num_kv_heads=2)
    np.testing.assert_array_equal(undivided.attention(*FLAT, **heads), expected)


def test_axes_are_mixed() -> None:
    error = refusal(lambda: undivided.attention(FLAT[0], K, V, num_heads=4))
    check(error, "key", "of three axes, as 'query' is. Got [2, 2, 5, 8].")


@pytest.mark.parametrize("options", [{"causal": True}, {"window": (1, 1)}])
def test_a_corner_has_to_be_said(options: dict[str, Any]) -> None:
    for each in (
        refusal(lambda: undivided.attention(Q, K, V, **options)),
        refusal(lambda: undivided.attention_varlen(*PACKED, [0, 2, 6], [0, 4, 9], **options)),
    ):
        assert each.argument == next(iter(options))
        for choice in ("causal='top_left'", "causal='bottom_right'", "query_offset=N"):
            assert choice in str(each)


def test_the_corner_is_said_twice() -> None:
    error = refusal(lambda: undivided.attention(Q, K, V, causal="bottom_right", query_offset=1))
    assert error.argument == "query_offset" and str(error).endswith("Give one of the two.")


def test_a_mask_for_other_sequences() -> None:
    error = refusal(lambda: undivided.attention(Q, K, V, mask=masks.documents([0, 1])))
    assert error.argument == "mask"
    assert "is for 2 queries and 2 keys. Got 3 queries and 5 keys." in str(error)


@pytest.mark.parametrize("threads", [0, 1025, 1.5, "2", True])
@pytest.mark.parametrize("arrays", [(Q, K, V), tuple(SQUARE.values())])
def test_threads(arrays: tuple[np.ndarray, ...], threads: Any) -> None:
    error = refusal(lambda: undivided.attention(*arrays, threads=threads))
    assert error.argument == "threads"
    assert str(error) == f"'threads' must be a whole number from 1 to 1024. Got {threads!r}."


@pytest.mark.parametrize(
    ("d_out", "text"),
    [
        (np.ones((1, 4, 3, 6)), "of the shape of out, [2, 4, 3, 6]. Got [1, 4, 3, 6]."),
        (np.ones((2, 4, 3, 6), bool), "of floats. Got bool."),
        (None, "of the shape of out, [2, 4, 3, 6]. Got []."),
        (RAGGED, "an array. Got rows of different lengths"),
    ],
)
def test_what_is_pulled_back(d_out: Any, text: str) -> None:
    _, pullback = undivided.attention_vjp(Q, K, V)
    check(refusal(lambda: pullback(d_out)), "d_out", text)


def test_arguments_that_vjp_has_not() -> None:
    error = refusal(lambda: undivided.attention_vjp(Q, K, V, casual=True))
    assert str(error) == "attention_vjp has no argument 'casual'. Did you mean 'causal'?"
    assert error.argument == "casual"
    error = refusal(lambda: undivided.attention_vjp(Q, K, V, return_weights=True))
    assert str(error).startswith("attention_vjp has no argument 'return_weights'.")


@pytest.mark.parametrize(
    ("cu_query", "cu_key", "argument", "text"),
    [
        ([1, 6], [0, 9], "cu_query", "rising from 0 to 6, the number of rows. Got [1, 6]."),
        ([0, 5], [0, 9], "cu_query", "rising from 0 to 6, the number of rows. Got [0, 5]."),
        ([0, 4, 2, 6], [0, 1, 2, 9], "cu_query", "the number of rows. Got [0, 4, 2, 6]."),
        ([0, 6], [0, 8], "cu_key", "rising from 0 to 9, the number of rows. Got [0, 8]."),
        ([0, 6], [0, 4, 9], "cu_key", "2 numbers long, as cu_query is. Got 3 numbers."),
        (
            [0.0, 6.0],
            [0, 9],
            "cu_query",
            "whole numbers [sequences + 1]. Got float64 of shape [2].",
        ),
        ([], [], "cu_query", "whole numbers [sequences + 1]. Got float64 of shape [0]."),
        ([[0, 6]], [0, 9], "cu_query", "whole numbers [sequences + 1]. Got int64 of shape [1, 2]."),
    ],
)
def test_packed_sequences(cu_query: Any, cu_key: Any, argument: str, text: str) -> None:
    check(refusal(lambda: undivided.attention_varlen(*PACKED, cu_query, cu_key)), argument, text)


def test_packed_rows() -> None:
    error = refusal(lambda: undivided.attention_varlen(Q, K, V, [0, 6], [0, 9]))
    check(error, "query", "of shape [rows, heads, width]. Got [2, 4, 3, 8].")
    q, k, v = PACKED
    error = refusal(lambda: undivided.attention_varlen(q, k, v[:4], [0, 6], [0, 9]))
    check(error, "value", "of 9 rows, as 'key' is. Got 4. The shapes, [rows, heads, width]: ")
