"""linear_attention: attention whose cost grows with the length and not with its square.

    out = φ(Q)·C / n        [C, z] = φ(K)ᵀ·[V, 1]        n = φ(Q)·z

The definition, with all its S×T weights, is `undivided.reference.linear_attention`. The work is
done in `linear_numpy.py`; here is the way in and out, for NumPy arrays and PyTorch tensors.
"""

# B batch, H heads, Hkv key/value heads, S queries, T keys, D width of queries and keys, F of values

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from undivided._operator.linear_numpy import How, backward, forward
from undivided._operator.tensors import is_tensor
from undivided.engines.reference.linear_attention import FeatureMap, feature_functions
from undivided.errors import ArgumentError, suggest

__all__ = ["LinearGradients", "linear_attention", "linear_attention_vjp"]

FLOATS = ("float16", "bfloat16", "float32", "float64")


class LinearGradients(NamedTuple):
    """What `pullback` gives."""

    query: Any
    key: Any
    value: Any


def linear_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    feature_map: FeatureMap = "elu",
    causal: bool = False,
    key_lengths: Any = None,
    layout: Literal["bhsd", "bshd"] = "bhsd",
) -> Any:
    """out [B, H, S, F]: each query's mean of the values, weighted by φ(query)·φ(key).

    query        [B, H, S, D], a NumPy array or a PyTorch CPU tensor, as key and value are
    key, value   [B, Hkv, T, D] and [B, Hkv, T, F]; Hkv divides H, and query head h reads head
                 h // (H // Hkv)
    feature_map  φ: "elu" (elu(x) + 1), "relu", "identity", or a function of an array whose last
                 axis is the width of a head and may change; for gradients in NumPy a pair
                 (function, backward) with backward(d_features, x) → dx
    causal       query i sees the keys 0 … i; as many queries as keys
    key_lengths  [B]: keys from there on are padding and reach nothing
    layout       "bshd" takes and gives [B, S, H, D]

    Time and memory are O(S). A query whose weights sum to 0 gives 0. float16 and bfloat16 are
    computed in float32 and returned in their type. Through tensors autograd works.
    """
    how = How(feature_map, causal, _check(query, key, value, causal, key_lengths, layout))
    call = _through_torch if is_tensor(query) else _through_numpy
    query, key, value = (_heads_first(x, layout) for x in (query, key, value))
    return _as_it_came(call(query, key, value, how), layout)


def linear_attention_vjp(
    query: Any,
    key: Any,
    value: Any,
    *,
    feature_map: FeatureMap = "elu",
    causal: bool = False,
    key_lengths: Any = None,
    layout: Literal["bhsd", "bshd"] = "bhsd",
) -> tuple[Any, Callable[[Any], LinearGradients]]:
    """out, and `pullback`: given d_out, the gradients of query, key and value in O(S).

    The arguments are those of `linear_attention`. pullback reads query, key and value again: leave
    them as they are until then.
    """
    how = How(feature_map, causal, _check(query, key, value, causal, key_lengths, layout))
    if is_tensor(query):
        return _vjp_through_torch(query, key, value, how, layout)
    if feature_functions(feature_map)[1] is None:
        raise ArgumentError(
            "linear_attention_vjp of NumPy arrays needs the backward of the 'feature_map' too. Got "
            "a function alone: give the pair (function, backward), where backward(d_features, x) "
            "is dx.",
            argument="feature_map",
        )
    dtype = query.dtype
    query, key, value = (_computed(_heads_first(x, layout)) for x in (query, key, value))
    out, n = forward(query, key, value, how)

    def pullback(d_out: np.ndarray) -> LinearGradients:
        _check_d_out(d_out, result)
        d_out = _heads_first(d_out, layout).astype(query.dtype, copy=False)
        found = backward(d_out, query, key, value, out, n, how)
        return LinearGradients(*(_as_it_came(x.astype(dtype, copy=False), layout) for x in found))

    result = _as_it_came(out.astype(dtype), layout)  # a copy: `out` is kept for pullback
    return result, pullback


# The way in and out.


def _through_numpy(query: np.ndarray, key: np.ndarray, value: np.ndarray, how: How) -> np.ndarray:
    out, _ = forward(_computed(query), _computed(key), _computed(value), how)
    return out.astype(query.dtype, copy=False)


def _through_torch(*arguments: Any) -> Any:
    from undivided._operator.linear_torch import attend

    return attend(*arguments)


def _vjp_through_torch(
    query: Any, key: Any, value: Any, how: How, layout: str
) -> tuple[Any, Callable[[Any], LinearGradients]]:
    """By autograd, on tensors of its own: the caller's graph stays as it is."""
    import torch

    own = tuple(x.detach().requires_grad_() for x in (query, key, value))
    with torch.enable_grad():
        out = _through_torch(*(_heads_first(x, layout) for x in own), how)
        out = _as_it_came(out, layout)

    def pullback(d_out: Any) -> LinearGradients:
        _check_d_out(d_out, out)
        return LinearGradients(*torch.autograd.grad(out, own, d_out, retain_graph=True))

    return out.detach(), pullback


def _computed(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def _heads_first(x: Any, layout: str) -> Any:
    return x.swapaxes(1, 2) if layout == "bshd" else x


def _as_it_came(x: Any, layout: str) -> Any:
    """Contiguous in the caller's layout."""
    if layout == "bshd":
        x = x.swapaxes(1, 2)
    return x.contiguous() if is_tensor(x) else np.ascontiguousarray(x)


# What is refused.


def _check(query: Any, key: Any, value: Any, causal: bool, key_lengths: Any, layout: str) -> Any:
    """Refuse what does not fit together; the key lengths as an array."""
    if layout not in ("bhsd", "bshd"):
        _refuse(
            "layout", "be 'bhsd' or 'bshd'", repr(layout), suggest(str(layout), ["bhsd", "bshd"])
        )
    given = {"query": query, "key": key, "value": value}
    for name, x in given.items():
        _check_array(name, x, query)
    shapes = {name: _heads_first_shape(x, layout) for name, x in given.items()}
    B, H, S, D = shapes["query"]
    K, T = shapes["key"][1:3]
    if shapes["key"][0] != B or shapes["key"][3] != D:
        _refuse(
            "key",
            f"have the batch {B} and the width {D} of the query {list(query.shape)}",
            list(key.shape),
        )
    if shapes["value"][:3] != (B, K, T):
        _refuse(
            "value",
            f"have batch {B}, {K} heads and {T} keys, as the key {list(key.shape)}",
            list(value.shape),
        )
    if (H % K if K else H) != 0:
        _refuse("key", f"have a number of heads that divides the {H} of the query", K)
    if not isinstance(causal, (bool, np.bool_)):
        _refuse("causal", "be True or False", repr(causal))
    if causal and S != T:
        _refuse(
            "causal",
            "be False where the numbers of queries and keys differ",
            f"True with {S} queries and {T} keys",
        )
    if key_lengths is None:
        return None
    if is_tensor(key_lengths) and _in_a_program():  # there are no numbers yet
        return key_lengths
    return _checked_lengths(key_lengths, B, T)


def _check_array(name: str, x: Any, query: Any) -> None:
    """One of query, key and value: of a kind, type and device that can be computed with."""
    if not (is_tensor(x) or isinstance(x, np.ndarray)):
        _refuse(name, "be a NumPy array or PyTorch tensor", type(x).__name__)
    if is_tensor(x) != is_tensor(query):
        kinds = ["a NumPy array", "a PyTorch tensor"]
        _refuse(name, f"be {kinds[is_tensor(query)]}, as the query is", kinds[is_tensor(x)])
    if is_tensor(x) and x.device.type != "cpu":
        _refuse(name, "be on the CPU", x.device, " Move it with .cpu().")
    if x.ndim != 4:
        _refuse(name, "have 4 axes, [batch, heads, seq, dim] or as 'layout' says", list(x.shape))
    dtype = _dtype_name(x)
    if dtype not in FLOATS:
        _refuse(name, "hold floating-point numbers", dtype)
    if dtype != _dtype_name(query):
        _refuse(name, f"have the type of the query, {_dtype_name(query)}", dtype)


def _checked_lengths(key_lengths: Any, B: int, T: int) -> np.ndarray:
    if is_tensor(key_lengths):
        key_lengths = key_lengths.detach().cpu().numpy()
    lengths = np.asarray(key_lengths)
    wanted = f"be whole numbers [{B}], one a sample, from 0 to {T}"
    if lengths.shape != (B,) or (lengths.dtype.kind not in "iu" and B):
        _refuse("key_lengths", wanted, f"{lengths.dtype.name} {list(lengths.shape)}")
    outside = (lengths < 0) | (lengths > T)
    if outside.any():
        first = int(np.argmax(outside))
        _refuse("key_lengths", wanted, f"{lengths[first]} (sample {first})")
    return lengths.astype(np.int64)


def _in_a_program() -> bool:
    """Whether torch.compile writes this call down."""
    return bool(sys.modules["torch"].compiler.is_compiling())


def _check_d_out(d_out: Any, out: Any) -> None:
    fits = isinstance(d_out, type(out)) and d_out.shape == out.shape
    if not fits or _dtype_name(d_out) not in FLOATS:
        found = f"{_dtype_name(d_out)} {list(d_out.shape)}" if hasattr(d_out, "dtype") else d_out
        kind = "PyTorch tensor" if is_tensor(out) else "NumPy array"
        raise ArgumentError(
            f"The 'd_out' of pullback must be a {kind} of floating-point numbers "
            f"{list(out.shape)}, as out is. Got {type(d_out).__name__}: {found!s:.80}.",
            argument="d_out",
        )


def _heads_first_shape(x: Any, layout: str) -> tuple[int, ...]:
    batch, first, second, width = x.shape
    return (batch, second, first, width) if layout == "bshd" else (batch, first, second, width)


def _dtype_name(x: Any) -> str:
    return str(x.dtype).removeprefix("torch.")


def _refuse(name: str, wanted: str, found: Any, advice: str = "") -> None:
    raise ArgumentError(
        f"The {name!r} of linear_attention must {wanted}. Got {found}.{advice}", argument=name
    )
