"""undivided.attention: what a NumPy or PyTorch user takes first.

    out = softmax(softcap(scale·Q·Kᵀ) + bias, over what is allowed)·V

The definition, to read, is `undivided.reference.attention`. Here is the way in: arrays brought into
one order, options checked, results in the caller's own type and order.
"""

# B batch, H heads, Hkv key/value heads, S queries, T keys, D width of queries and keys, F of values

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from undivided._operator import core, short
from undivided._operator.options import (
    Causal,
    Options,
    Sizes,
    Window,
    array_of,
    broadcastable,
    kind_of,
    options_for,
    refuse,
    whole_number,
)
from undivided._operator.tensors import is_tensor
from undivided.errors import ArgumentError, suggest

__all__ = ["Gradients", "attention", "attention_varlen", "attention_vjp"]

Layout = Literal["bhsd", "bshd"]
LAYOUTS = ("bhsd", "bshd")
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
NO_SIZES = Sizes(0, 0, 0, 0, 0, 0, 0)


class Gradients(NamedTuple):
    """What `pullback` gives: None for what was not given."""

    query: Any
    key: Any
    value: Any
    bias: Any
    sinks: Any


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    mask: Any = None,
    bias: Any = None,
    causal: Causal = False,
    window: Window = None,
    query_lengths: Any = None,
    key_lengths: Any = None,
    query_offset: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    dropout: float = 0.0,
    seed: int | None = None,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    return_weights: Any = False,
    return_lse: bool = False,
    layout: Layout = "bhsd",
    threads: int | None = None,
) -> Any:
    """out [B, H, S, F]: for each query the mean of the values, weighted by how well keys fit.

    query          [B, H, S, D]: NumPy arrays or PyTorch tensors, float32 or float64; float16
                   and bfloat16 are computed in float32 and returned in their type
    key, value     [B, Hkv, T, D] and [B, Hkv, T, F]; query head h reads head ⌊h·Hkv/H⌋
    mask           True where a query may attend: boolean, of any shape that broadcasts to
                   [B, H, S, T], or made by `undivided.masks`
    bias           added to the scores, of any such shape; −∞ forbids
    causal         True: no key after the query. With S ≠ T the corner must be said, "top_left",
                   "bottom_right" or query_offset
    window         (left, right): how far a query sees; −1 or None for no bound
    query_lengths, key_lengths  [B]: what comes after is padding, costs nothing, gives 0
    query_offset   where query 0 stands among the keys: a number, or one for each sample
    scale          1/√D unless given;    softcap  scores become softcap·tanh(score/softcap)
    sinks          [H]: one more score for each head, whose weight nobody gets
    dropout, seed  the share of weights that is dropped; the same seed drops the same
    num_heads, num_kv_heads  for arrays [B, S, heads·D]: how many heads lie side by side
    return_weights True for the weights of all heads [B, H, S, T], or (heads, rows) for some;
                   asking changes no bit of out
    return_lse     the logarithm of each row's sum of exponentials, [B, H, S]
    layout         "bshd" takes and gives [B, S, H, D]
    threads        else UNDIVIDED_THREADS, else what the machine allows; the bits are the same

    Gives out, or (out, weights, lse) of which the last two come when asked for. A query that may
    attend to nothing gives 0.
    """
    nothing_else = mask is None and bias is None and window is None and query_lengths is None
    nothing_else = nothing_else and key_lengths is None and query_offset is None and scale is None
    nothing_else = nothing_else and softcap is None and sinks is None and num_heads is None
    nothing_else = nothing_else and num_kv_heads is None and dropout == 0 and seed is None
    nothing_else = nothing_else and return_lse is False and layout == "bhsd"
    if nothing_else and (causal is False or causal is True):
        found = _short(query, key, value, causal, threads, return_weights)
        if found is not None:
            return found
    _check_layout(layout)
    given = {
        "mask": mask,
        "causal": causal,
        "window": window,
        "query_lengths": query_lengths,
        "key_lengths": key_lengths,
        "query_offset": query_offset,
        "scale": scale,
        "softcap": softcap,
        "dropout": dropout,
        "seed": seed,
    }
    if is_tensor(query):
        from undivided._operator import torch_attention

        return torch_attention.attention(
            query,
            key,
            value,
            bias=bias,
            sinks=sinks,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            return_weights=return_weights,
            return_lse=return_lse,
            layout=layout,
            threads=threads,
            **given,
        )
    arrays = Arrays(query, key, value, bias, sinks, num_heads, num_kv_heads, layout)
    options = options_for(arrays.sizes, **given)
    done = attend(arrays, options, return_weights, return_lse, keep=False, threads=threads)
    results = [arrays.typed(done.out)]
    if done.weights is not None:
        results.append(arrays.typed(done.weights))
    if return_lse:
        assert done.lse is not None
        results.append(done.lse)
    return results[0] if len(results) == 1 else tuple(results)


def _short(
    query: Any, key: Any, value: Any, causal: bool, threads: int | None, weights: Any
) -> Any:
    """What the call gives, or None where it is for the general way."""
    if not is_tensor(query):
        if weights is False or weights is True:
            return short.attention(query, key, value, causal, threads, weights)
        return None
    if weights is not False:
        return None
    from undivided._operator import torch_short

    return torch_short.attention(query, key, value, causal, threads)


class Attended(NamedTuple):
    """What came of a call, and what backward reads of it."""

    out: np.ndarray  # in the caller's order
    weights: np.ndarray | None
    lse: np.ndarray | None
    kept: core.Forward


def attend(
    arrays: Arrays,
    options: Options,
    return_weights: Any = False,
    return_lse: bool = False,
    *,
    keep: bool,
    threads: int | None,
    packing: core.Packing | None = None,
) -> Attended:
    """One call on arrays that are in order."""
    wanted = Wanted(return_weights, arrays.sizes)
    out = arrays.order.empty_out(arrays.dtype)
    done = core.forward(
        *arrays.inputs,
        options,
        keep=keep,
        threads=threads,
        out=arrays.order.inside(out, arrays.sizes.H),
        lse=return_lse,
        probabilities=wanted.any,
        packing=packing,
    )
    found = None
    if wanted.any:
        found = core.weights(
            *arrays.inputs, options, done, wanted.heads, wanted.rows, threads=threads
        )
    return Attended(out, found, done.lse, done)


def attention_vjp(
    query: Any,
    key: Any,
    value: Any,
    *,
    bias: Any = None,
    sinks: Any = None,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    layout: Layout = "bhsd",
    threads: int | None = None,
    **options: Any,
) -> tuple[Any, Callable[[Any], Gradients]]:
    """(out, pullback): `pullback(d_out)` gives the gradients of query, key, value, bias and sinks.

    Takes what `attention` takes but return_weights and return_lse. The arrays are read again by
    `pullback`, which may be called more than once, and must not be changed before.
    """
    for name in options:
        if name not in _OPTIONS:
            raise ArgumentError(
                f"attention_vjp has no argument {name!r}.{suggest(name, _OPTIONS)}", argument=name
            )
    if is_tensor(query):
        raise refuse(
            "query",
            "a NumPy array for attention_vjp",
            "a PyTorch tensor",
            "Tensors have autograd: call attention, then .backward() on what comes of it.",
        )
    _check_layout(layout)
    arrays = Arrays(query, key, value, bias, sinks, num_heads, num_kv_heads, layout)
    chosen = options_for(arrays.sizes, **options)
    out, _, _, done = attend(arrays, chosen, keep=True, threads=threads)
    # The caller may do with `out` as he likes: backward has one of its own where it reads it.
    kept = done._replace(out=done.out.copy()) if reads_out(done, sinks) else done

    def pullback(d_out: Any) -> Gradients:
        gradients = core.backward(
            arrays.gradient_of_out(d_out, out.shape),
            *arrays.inputs,
            kept,
            chosen,
            threads=threads,
        )
        return arrays.given_back(gradients)

    return arrays.typed(out), pullback


_OPTIONS = (
    "mask",
    "causal",
    "window",
    "query_lengths",
    "key_lengths",
    "query_offset",
    "scale",
    "softcap",
    "dropout",
    "seed",
)


def reads_out(kept: core.Forward, sinks: Any) -> bool:
    """Whether backward does."""
    return kept.probabilities is None or sinks is not None


def attention_varlen(
    query: Any,
    key: Any,
    value: Any,
    cu_query: Any,
    cu_key: Any,
    *,
    causal: Causal = False,
    window: Window = None,
    query_offset: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    dropout: float = 0.0,
    seed: int | None = None,
    return_lse: bool = False,
    threads: int | None = None,
) -> Any:
    """Attention of sequences that lie end to end, none of which sees another: [total, H, D].

    query       [rows of all sequences, H, D];  key, value  [rows, Hkv, D] and [rows, Hkv, F]
    cu_query    [sequences + 1]: where each begins, 0 first, the number of all rows last
    cu_key      the same for keys and values

    Everything else as in `attention`; gives out [rows, H, F], and with return_lse also
    [rows, H]. Tensors have gradients by autograd; for arrays `attention_vjp` has them, of sequences
    side by side with lengths.
    """
    given = {
        "causal": causal,
        "window": window,
        "query_offset": query_offset,
        "scale": scale,
        "softcap": softcap,
        "dropout": dropout,
        "seed": seed,
    }
    if is_tensor(query):
        from undivided._operator import torch_attention

        return torch_attention.attention_varlen(
            query,
            key,
            value,
            cu_query,
            cu_key,
            sinks=sinks,
            return_lse=return_lse,
            threads=threads,
            **given,
        )
    arrays = Arrays(query, key, value, None, sinks, None, None, "packed")
    options, packing = packed_options(arrays.sizes, cu_query, cu_key, **given)
    done = attend(arrays, options, False, return_lse, keep=False, threads=threads, packing=packing)
    if not return_lse:
        return arrays.typed(done.out)
    assert done.lse is not None
    return arrays.typed(done.out), end_to_end(done.lse, options)


def packed_options(
    sizes: Sizes, cu_query: Any, cu_key: Any, **given: Any
) -> tuple[Options, core.Packing]:
    """Where sequences begin in rows of these sizes, and the options of a call on them."""
    starts_q = _starts("cu_query", cu_query, sizes.S)
    starts_k = _starts("cu_key", cu_key, sizes.T)
    if len(starts_q) != len(starts_k):
        raise refuse(
            "cu_key", f"{len(starts_q)} numbers long, as cu_query is", f"{len(starts_k)} numbers"
        )
    lengths_q, lengths_k = np.diff(starts_q), np.diff(starts_k)
    packing = core.Packing(
        np.ascontiguousarray(starts_q[:-1]),
        np.ascontiguousarray(starts_k[:-1]),
        int(lengths_q.max(initial=0)),
        int(lengths_k.max(initial=0)),
    )
    if (lengths_q == lengths_k).all():  # then there is but one corner
        if given["causal"] is True:
            given["causal"] = "top_left"
        elif given["query_offset"] is None and given["window"] is not None and not given["causal"]:
            given["query_offset"] = 0
    each = sizes._replace(B=len(lengths_q), S=packing.longest_query, T=packing.longest_key)
    options = options_for(each, query_lengths=lengths_q, key_lengths=lengths_k, **given)
    return options, packing


def end_to_end(lse: np.ndarray, options: Options) -> np.ndarray:
    """[sequences, H, longest] → [rows, H]."""
    assert options.query_lengths is not None
    pieces = [lse[b, :, :n].T for b, n in enumerate(options.query_lengths)]
    return np.concatenate([np.zeros((0, lse.shape[1]), lse.dtype), *pieces])


def side_by_side(lse: np.ndarray, options: Options) -> np.ndarray:
    """[rows, H] → [sequences, H, longest], −∞ where a sequence has no row."""
    lengths = options.query_lengths
    assert lengths is not None
    longest, heads = int(lengths.max(initial=0)), lse.shape[1]
    whole = np.full((len(lengths), heads, longest), -np.inf, lse.dtype)
    for b, rows in enumerate(np.split(lse, np.cumsum(lengths)[:-1]) if len(lengths) else []):
        whole[b, :, : len(rows)] = rows.T
    return whole


NAMES = ("query", "key", "value")


def _check_layout(layout: Any) -> None:
    if layout in LAYOUTS:
        return
    hint = suggest(layout, LAYOUTS).strip() if isinstance(layout, str) else ""
    if layout == "packed":
        hint = "attention_varlen takes sequences that lie end to end."
    raise refuse("layout", "'bhsd' or 'bshd'", repr(layout), hint)


def _array(name: str, x: Any) -> np.ndarray:
    if is_tensor(x):
        raise refuse(name, "a NumPy array, as 'query' is", "a PyTorch tensor")
    array = array_of(name, x)
    if not _is_float(array.dtype):
        raise refuse(name, "of float32, float64, float16 or bfloat16", kind_of(array))
    return array


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.char in "fde" or dtype.name == "bfloat16"


def _in_type_of(given: Any, gradient: np.ndarray) -> np.ndarray:
    """A gradient has the type of what it belongs to, unless that was given as whole numbers."""
    dtype = np.asarray(given).dtype
    return gradient.astype(dtype, copy=False) if _is_float(dtype) else gradient


def _starts(name: str, given: Any, rows: int) -> np.ndarray:
    starts = array_of(name, given)
    fits = starts.ndim == 1 and len(starts) > 0 and starts.dtype.kind in "iu"
    if not fits:
        raise refuse(
            name,
            "whole numbers [sequences + 1]",
            f"{starts.dtype} of shape {list(starts.shape)}",
        )
    starts = starts.astype(np.int64)
    if starts[0] != 0 or starts[-1] != rows or (np.diff(starts) < 0).any():
        raise refuse(name, f"rising from 0 to {rows}, the number of rows", starts.tolist()[:8])
    return starts


class Wanted:
    """Of which heads and rows weights are asked for."""

    def __init__(self, asked: Any, sizes: Sizes) -> None:
        self.any = asked is not False and asked is not None
        if not self.any:
            return
        if asked is True:
            asked = (None, None)
        if not isinstance(asked, tuple | list) or len(asked) != 2:
            raise refuse("return_weights", "True, False or (heads, rows)", repr(asked))
        self.heads = self._numbers(asked[0], sizes.H, "heads")
        self.rows = self._numbers(asked[1], sizes.S, "rows")

    @staticmethod
    def _numbers(given: Any, count: int, what: str) -> np.ndarray:
        numbers = np.arange(count) if given is None else array_of("return_weights", given)
        numbers = np.atleast_1d(numbers)
        if numbers.size == 0:
            numbers = numbers.astype(np.int64)
        inside = numbers.dtype.kind in "iu" and numbers.ndim == 1
        if not inside or ((numbers < 0) | (numbers >= count)).any():
            raise refuse(
                "return_weights",
                f"{what} from 0 to {count - 1}",
                repr(given),
            )
        return np.ascontiguousarray(numbers, np.int64)


class Order(NamedTuple):
    """How the caller has the axes; inside they are [B, H, S, D]."""

    form: Literal["bhsd", "bshd", "flat", "packed"]  # flat [B, S, H·D], packed [rows, H, D]
    sizes: Sizes

    def shape_of_out(self) -> tuple[int, ...]:
        B, H, _, S, _, _, F = self.sizes
        shapes = {"bhsd": (B, H, S, F), "bshd": (B, S, H, F), "flat": (B, S, H * F)}
        return shapes.get(self.form, (S, H, F))

    def empty_out(self, dtype: Any) -> np.ndarray:
        return core.empty(self.shape_of_out(), dtype)

    def inside(self, x: Any, heads: int) -> Any:
        """What is in the caller's order, with so many heads, seen as [B, H, S, D]."""
        if self.form == "bhsd":
            return x
        if self.form == "flat":
            B, S, E = x.shape
            x = x.reshape(B, S, heads, E // heads)
        return (x[None] if self.form == "packed" else x).swapaxes(1, 2)

    def outside(self, x: np.ndarray) -> np.ndarray:
        """[B, H, S, D] in the caller's order."""
        if self.form == "bhsd":
            return x
        x = np.ascontiguousarray(x.swapaxes(1, 2))
        if self.form == "flat":
            return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])
        return x[0] if self.form == "packed" else x


def heads_first(
    q: Any,
    k: Any,
    v: Any,
    num_heads: int | None,
    num_kv_heads: int | None,
    layout: Layout | Literal["packed"],
) -> tuple[Order, Any, Any, Any]:
    """Three arrays or tensors seen as [B, H, S, D], their shapes checked."""
    given = zip(NAMES, (q, k, v), strict=True)
    form: Any = layout
    heads = shared = 1
    if layout == "packed":
        for name, x in given:
            if x.ndim != 3:
                raise refuse(name, "of shape [rows, heads, width]", list(x.shape))
    elif q.ndim == 3:
        form = "flat"
        heads, shared = _heads(q, k, v, num_heads, num_kv_heads)
    else:
        for name, said in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads)):
            if said is not None:
                raise refuse(
                    name,
                    "left out for arrays of four axes, which have their heads",
                    said,
                    "It is for [B, S, heads·width].",
                )
        for name, x in given:
            if x.ndim != 4:
                raise refuse(
                    name, "of four axes [B, H, S, D], or three with num_heads", list(x.shape)
                )
    unsized = Order(form, NO_SIZES)
    q, k, v = unsized.inside(q, heads), unsized.inside(k, shared), unsized.inside(v, shared)
    _check_shapes(q, k, v, form == "packed")
    return Order(form, core.sizes_of(q, k, v)), q, k, v


def _heads(
    q: Any, k: Any, v: Any, num_heads: int | None, num_kv_heads: int | None
) -> tuple[int, int]:
    """Of arrays of three axes: how many heads of the query, and of key and value."""
    if num_heads is None:
        raise refuse("num_heads", "given for arrays of three axes [B, S, heads·width]", num_heads)
    shared = num_heads if num_kv_heads is None else num_kv_heads
    counts = (("num_heads", num_heads), ("num_kv_heads", shared), ("num_kv_heads", shared))
    for name, x, (counted, heads) in zip(NAMES, (q, k, v), counts, strict=True):
        if x.ndim != 3:
            raise refuse(name, "of three axes, as 'query' is", list(x.shape))
        if not whole_number(heads) or heads <= 0 or x.shape[2] % heads:
            raise refuse(
                counted,
                f"a whole number that divides the width {x.shape[2]} of {name!r}",
                repr(heads),
            )
    return int(num_heads), int(shared)


class Arrays:
    """The arrays of a call in one order, [B, H, S, D], and the way back to the caller's."""

    def __init__(
        self,
        query: Any,
        key: Any,
        value: Any,
        bias: Any,
        sinks: Any,
        num_heads: int | None,
        num_kv_heads: int | None,
        layout: Layout | Literal["packed"],
    ) -> None:
        q, k, v = _array("query", query), _array("key", key), _array("value", value)
        if not q.dtype == k.dtype == v.dtype:
            name, x = ("key", k) if k.dtype != q.dtype else ("value", v)
            raise refuse(name, f"of {q.dtype}, as 'query' is", x.dtype)
        self.given_dtype = q.dtype
        self.dtype = FLOAT64 if q.dtype.char == "d" else FLOAT32
        self.order, q, k, v = heads_first(q, k, v, num_heads, num_kv_heads, layout)
        self.sizes = self.order.sizes
        q, k, v = (x if x.dtype == self.dtype else x.astype(self.dtype) for x in (q, k, v))
        self.given_bias = None if bias is None else array_of("bias", bias)
        self.given_sinks = sinks
        self.inputs = (
            q,
            k,
            v,
            bias_inside(self.given_bias, self.sizes, self.dtype),
            sinks_inside(sinks, self.sizes, self.dtype),
        )

    def typed(self, x: np.ndarray) -> np.ndarray:
        return x if x.dtype == self.given_dtype else x.astype(self.given_dtype)

    def gradient_of_out(self, d_out: Any, shape: tuple[int, ...]) -> np.ndarray:
        array = array_of("d_out", d_out)
        if array.shape != shape:
            raise refuse("d_out", f"of the shape of out, {list(shape)}", list(array.shape))
        if array.dtype.kind not in "fiu" and not _is_float(array.dtype):
            raise refuse("d_out", "of floats", array.dtype)
        return self.order.inside(np.asarray(array, self.dtype), self.sizes.H)

    def given_back(self, found: tuple[np.ndarray | None, ...]) -> Gradients:
        dq, dk, dv, d_bias, d_sinks = found
        dq, dk, dv = (
            None if x is None else self.typed(self.order.outside(x)) for x in (dq, dk, dv)
        )
        if d_bias is not None:
            assert self.given_bias is not None
            d_bias = _in_type_of(self.given_bias, d_bias.reshape(self.given_bias.shape))
        if d_sinks is not None:
            d_sinks = _in_type_of(self.given_sinks, d_sinks)
        return Gradients(dq, dk, dv, d_bias, d_sinks)


def bias_inside(bias: np.ndarray | None, sizes: Sizes, dtype: Any) -> np.ndarray | None:
    """With four axes, each as long as its own or 1."""
    if bias is None:
        return None
    if bias.dtype.kind == "b":
        raise refuse("bias", "of floats, added to the scores", bias.dtype, "Is it a 'mask'?")
    if bias.dtype.kind not in "fiu" and not _is_float(bias.dtype):
        raise refuse("bias", "of floats", kind_of(bias))
    whole = broadcastable("bias", bias, sizes).astype(dtype, copy=False)
    item = whole.itemsize
    if not whole.flags.aligned or any(step % item for step in whole.strides):
        return np.ascontiguousarray(whole)
    return whole


def sinks_inside(sinks: Any, sizes: Sizes, dtype: Any) -> np.ndarray | None:
    """A number for each head."""
    if sinks is None:
        return None
    array = array_of("sinks", sinks)
    numbers = array.dtype.kind in "fiu" or _is_float(array.dtype)
    if array.shape != (sizes.H,) or not numbers:
        raise refuse(
            "sinks",
            f"numbers [H] = [{sizes.H}]",
            f"{array.dtype} of shape {list(array.shape)}",
        )
    return np.ascontiguousarray(array, dtype)


def _check_shapes(q: np.ndarray, k: np.ndarray, v: np.ndarray, packed: bool) -> None:
    B, H, _, D = q.shape
    axes = "[rows, heads, width]" if packed else "[batch, heads, rows, width]"

    def wrong(name: str, expected: str, found: object, hint: str = "") -> ArgumentError:
        shapes = ", ".join(f"{n} {list(x.shape)}" for n, x in zip(NAMES, (q, k, v), strict=True))
        return refuse(name, expected, found, f"{hint} The shapes, {axes}: {shapes}.".strip())

    for name, x in (("key", k), ("value", v)):
        if x.shape[0] != B:
            raise wrong(name, f"of a batch of {B}, as 'query' is", x.shape[0])
    if k.shape[3] != D:
        raise wrong("key", f"{D} wide, as 'query' is", k.shape[3])
    if v.shape[1] != k.shape[1]:
        raise wrong("value", f"of {k.shape[1]} heads, as 'key' is", v.shape[1])
    if v.shape[2] != k.shape[2]:
        raise wrong("value", f"of {k.shape[2]} rows, as 'key' is", v.shape[2])
    if H and (k.shape[1] == 0 or H % k.shape[1]):
        raise wrong("key", f"of a number of heads that divides the {H} of 'query'", k.shape[1])
