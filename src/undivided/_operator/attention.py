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

from undivided._operator import core
from undivided._operator.options import (
    Causal,
    Sizes,
    Window,
    broadcastable,
    options_for,
    refuse,
)
from undivided._operator.tensors import is_tensor
from undivided.errors import ArgumentError, suggest

__all__ = ["Gradients", "attention", "attention_varlen", "attention_vjp"]

Layout = Literal["bhsd", "bshd"]
LAYOUTS = ("bhsd", "bshd")
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


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
    wanted = Wanted(return_weights, arrays.sizes)
    out = arrays.empty_out()
    done = core.forward(
        *arrays.inputs,
        options,
        keep=False,
        threads=threads,
        out=arrays.inside(out),
        lse=return_lse,
        probabilities=wanted.any,
    )
    results = [arrays.typed(out)]
    if wanted.any:
        found = core.weights(
            *arrays.inputs, options, done, wanted.heads, wanted.rows, threads=threads
        )
        results.append(arrays.typed(found))
    if return_lse:
        assert done.lse is not None
        results.append(done.lse)
    return results[0] if len(results) == 1 else tuple(results)


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
    arrays = Arrays(query, key, value, bias, sinks, num_heads, num_kv_heads, layout)
    chosen = options_for(arrays.sizes, **options)
    out = arrays.empty_out()
    done = core.forward(*arrays.inputs, chosen, keep=True, threads=threads, out=arrays.inside(out))
    # The caller may do with `out` as he likes: backward has one of its own where it reads it.
    kept = done if done.probabilities is not None and sinks is None else _with_own_out(done)

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


def _with_own_out(done: core.Forward) -> core.Forward:
    return core.Forward(done.out.copy(), done.lse, done.probabilities)


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
    [rows, H]. `attention_vjp` has gradients, for sequences side by side with lengths.
    """
    q, k, v = (_array(name, x) for name, x in zip(NAMES, (query, key, value), strict=True))
    for name, x in zip(NAMES, (q, k, v), strict=True):
        if x.ndim != 3:
            raise refuse(name, "of shape [rows, heads, width]", list(x.shape))
    starts_q = _starts("cu_query", cu_query, len(q))
    starts_k = _starts("cu_key", cu_key, len(k))
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
    rows_q, rows_k, rows_v = (x[None].transpose(0, 2, 1, 3) for x in (q, k, v))
    arrays = Arrays(rows_q, rows_k, rows_v, None, sinks, None, None, "bhsd", packed=True)
    sizes = core.sizes_of(*arrays.inputs[:3], packing)
    same = bool((lengths_q == lengths_k).all())
    corner: Causal = "top_left" if causal is True and same else causal
    if query_offset is None and same and window is not None and not causal:
        query_offset = 0
    options = options_for(
        sizes,
        causal=corner,
        window=window,
        query_lengths=lengths_q,
        key_lengths=lengths_k,
        query_offset=query_offset,
        scale=scale,
        softcap=softcap,
        dropout=dropout,
        seed=seed,
    )
    out = np.empty((*q.shape[:2], v.shape[2]), arrays.dtype)
    done = core.forward(
        *arrays.inputs,
        options,
        keep=False,
        threads=threads,
        out=out[None].transpose(0, 2, 1, 3),
        lse=return_lse,
        packing=packing,
    )
    if not return_lse:
        return arrays.typed(out)
    assert done.lse is not None
    pieces = [done.lse[b, :, :n].T for b, n in enumerate(lengths_q)]
    return arrays.typed(out), np.concatenate([np.zeros((0, q.shape[1]), arrays.dtype), *pieces])


NAMES = ("query", "key", "value")


def _array(name: str, x: Any) -> np.ndarray:
    if is_tensor(x):
        raise refuse(name, "a NumPy array, as 'query' is", "a PyTorch tensor")
    array = np.asarray(x)
    if not _is_float(array.dtype):
        raise refuse(name, "of float32, float64, float16 or bfloat16", array.dtype)
    return array


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.char in "fde" or dtype.name == "bfloat16"


def _starts(name: str, given: Any, rows: int) -> np.ndarray:
    starts = np.asarray(given)
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
        numbers = np.atleast_1d(np.arange(count) if given is None else np.asarray(given))
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
        layout: Layout,
        packed: bool = False,
    ) -> None:
        q, k, v = _array("query", query), _array("key", key), _array("value", value)
        if not q.dtype == k.dtype == v.dtype:
            name, x = ("key", k) if k.dtype != q.dtype else ("value", v)
            raise refuse(name, f"of {q.dtype}, as 'query' is", x.dtype)
        self.given_dtype = q.dtype
        self.dtype = FLOAT64 if q.dtype.char == "d" else FLOAT32
        self.layout = layout
        self.flat = q.ndim == 3
        if layout not in LAYOUTS:
            near = suggest(layout, LAYOUTS) if isinstance(layout, str) else ""
            raise refuse("layout", "'bhsd' or 'bshd'", f"{layout!r}.{near}")
        if self.flat:
            q, k, v = self._parted(q, k, v, num_heads, num_kv_heads)
        else:
            if num_heads is not None or num_kv_heads is not None:
                self._check_heads(q, k, num_heads, num_kv_heads)
            for name, x in zip(NAMES, (q, k, v), strict=True):
                if x.ndim != 4:
                    raise refuse(
                        name,
                        "of four axes [B, H, S, D], or three with num_heads",
                        list(x.shape),
                    )
            if layout == "bshd":
                q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
        q, k, v = (x if x.dtype == self.dtype else x.astype(self.dtype) for x in (q, k, v))
        _check_shapes(q, k, v, packed)
        self.sizes = core.sizes_of(q, k, v)
        self.given_bias = None if bias is None else np.asarray(bias)
        self.inputs = (q, k, v, self._bias(), self._sinks(sinks))

    @staticmethod
    def _check_heads(
        q: np.ndarray, k: np.ndarray, num_heads: int | None, num_kv_heads: int | None
    ) -> None:
        for name, said in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads)):
            if said is not None:
                raise refuse(
                    name,
                    "left out for arrays of four axes, which have their heads",
                    said,
                    "It is for [B, S, heads·width].",
                )

    def _parted(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        num_heads: int | None,
        num_kv_heads: int | None,
    ) -> tuple[np.ndarray, ...]:
        if num_heads is None:
            raise refuse(
                "num_heads", "given for arrays of three axes [B, S, heads·width]", num_heads
            )
        parted = []
        shared = num_heads if num_kv_heads is None else num_kv_heads
        counts = (("num_heads", num_heads), ("num_kv_heads", shared), ("num_kv_heads", shared))
        for name, x, (counted, heads) in zip(NAMES, (q, k, v), counts, strict=True):
            if x.ndim != 3:
                raise refuse(name, "of three axes, as 'query' is", list(x.shape))
            whole = isinstance(heads, int) and not isinstance(heads, bool) and heads > 0
            if not whole or x.shape[2] % heads:
                raise refuse(
                    counted, f"a whole number that divides the width {x.shape[2]} of {name}", heads
                )
            B, S, E = x.shape
            parted.append(x.reshape(B, S, heads, E // heads).transpose(0, 2, 1, 3))
        return tuple(parted)

    def _bias(self) -> np.ndarray | None:
        if self.given_bias is None:
            return None
        bias = self.given_bias
        if bias.dtype.kind == "b":
            raise refuse("bias", "of floats, added to the scores", bias.dtype, "Is it a 'mask'?")
        if bias.dtype.kind not in "fiu" and not _is_float(bias.dtype):
            raise refuse("bias", "of floats", bias.dtype)
        whole = broadcastable("bias", bias, self.sizes).astype(self.dtype, copy=False)
        item = whole.itemsize
        if not whole.flags.aligned or any(step % item for step in whole.strides):
            return np.ascontiguousarray(whole)
        return whole

    def _sinks(self, sinks: Any) -> np.ndarray | None:
        if sinks is None:
            return None
        array = np.asarray(sinks)
        if array.shape != (self.sizes.H,) or array.dtype.kind not in "fiu":
            raise refuse(
                "sinks",
                f"numbers [H] = [{self.sizes.H}]",
                f"{array.dtype} of shape {list(array.shape)}",
            )
        return np.ascontiguousarray(array, self.dtype)

    def empty_out(self) -> np.ndarray:
        """In the caller's order."""
        n = self.sizes
        if self.flat:
            return np.empty((n.B, n.S, n.H * n.F), self.dtype)
        if self.layout == "bshd":
            return np.empty((n.B, n.S, n.H, n.F), self.dtype)
        return np.empty((n.B, n.H, n.S, n.F), self.dtype)

    def inside(self, x: np.ndarray) -> np.ndarray:
        """An output in the caller's order, seen as [B, H, S, F]."""
        n = self.sizes
        if self.flat:
            return x.reshape(n.B, n.S, n.H, n.F).transpose(0, 2, 1, 3)
        return x.transpose(0, 2, 1, 3) if self.layout == "bshd" else x

    def outside(self, x: np.ndarray) -> np.ndarray:
        """[B, H, S, D] in the caller's order."""
        if self.flat:
            B, H, S, D = x.shape
            return x.transpose(0, 2, 1, 3).reshape(B, S, H * D)
        return np.ascontiguousarray(x.transpose(0, 2, 1, 3)) if self.layout == "bshd" else x

    def typed(self, x: np.ndarray) -> np.ndarray:
        return x if x.dtype == self.given_dtype else x.astype(self.given_dtype)

    def gradient_of_out(self, d_out: Any, shape: tuple[int, ...]) -> np.ndarray:
        array = np.asarray(d_out)
        if array.shape != shape:
            raise refuse("d_out", f"of the shape of out, {list(shape)}", list(array.shape))
        if array.dtype.kind not in "fiu" and not _is_float(array.dtype):
            raise refuse("d_out", "of floats", array.dtype)
        return self.inside(np.asarray(array, self.dtype))

    def given_back(self, found: tuple[np.ndarray | None, ...]) -> Gradients:
        dq, dk, dv, d_bias, d_sinks = found
        dq, dk, dv = (None if x is None else self.typed(self.outside(x)) for x in (dq, dk, dv))
        if d_bias is not None:
            assert self.given_bias is not None
            d_bias = d_bias.reshape(self.given_bias.shape)
        return Gradients(dq, dk, dv, d_bias, d_sinks)


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
