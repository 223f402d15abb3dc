"""linear_attention for PyTorch CPU tensors: the NumPy operator as an autograd function.

Imported only when a tensor is passed. Tensors and arrays share their memory, so nothing is copied
on the way in or out. What backward reads is kept by `save_for_backward`, which notices when it was
changed in between. In programs that torch.compile writes down the same stands as two operators,
undivided::linear_attention and undivided::linear_attention_backward.
"""

# the letters of `linear_numpy.py`

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from undivided._operator import linear_numpy
from undivided._operator.linear_numpy import How
from undivided.engines.reference.linear_attention import feature_functions
from undivided.errors import ArgumentError

__all__ = ["attend"]


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, how: How) -> torch.Tensor:
    """out [B, H, S, F]. A function as feature map is run by PyTorch, for autograd to go through."""
    dtype = query.dtype
    if dtype in (torch.float16, torch.bfloat16):
        query, key, value = (x.to(torch.float32) for x in (query, key, value))
    if not isinstance(how.feature_map, str):
        query, key = _mapped(query, key, how)
        how = how._replace(feature_map="identity")
    if torch.compiler.is_compiling():
        lengths = None if how.lengths is None else torch.as_tensor(how.lengths)
        constants = str(how.feature_map), bool(how.causal)
        out, _ = torch.ops.undivided.linear_attention(query, key, value, lengths, *constants)
        return out.to(dtype)
    return LinearAttention.apply(query, key, value, how).to(dtype)


class LinearAttention(torch.autograd.Function):
    """`linear_numpy.forward` and `linear.backward`, with a feature map of the operator's own."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, how: How
    ) -> torch.Tensor:
        q, k, v = (x.detach().numpy() for x in (query, key, value))
        out, n = (torch.from_numpy(x) for x in linear_numpy.forward(q, k, v, how))
        ctx.save_for_backward(query, key, value, out, n)
        ctx.how = how
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        dy, q, k, v, y, n = (x.detach().numpy() for x in (d_out, *ctx.saved_tensors))
        found = linear_numpy.backward(dy, q, k, v, y, n, ctx.how)
        return (*(torch.from_numpy(np.ascontiguousarray(x)) for x in found), None)


# The same for programs that are compiled.


def _forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    lengths: torch.Tensor | None,
    feature_map: str,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    how = How(feature_map, causal, _lengths(lengths, key))
    q, k, v = (x.numpy(force=True) for x in (query, key, value))
    out, n = linear_numpy.forward(q, k, v, how)
    return torch.from_numpy(np.ascontiguousarray(out)), torch.from_numpy(np.ascontiguousarray(n))


def _forward_shapes(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    rows = query.shape[:3]
    return value.new_empty((*rows, value.shape[3])), value.new_empty((*rows, 1))


def _backward(
    d_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    n: torch.Tensor,
    lengths: torch.Tensor | None,
    feature_map: str,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    how = How(feature_map, causal, _lengths(lengths, key))
    dy, q, k, v, y, divisor = (x.numpy(force=True) for x in (d_out, query, key, value, out, n))
    dq, dk, dv = linear_numpy.backward(dy, q, k, v, y, divisor, how)
    dq, dk, dv = (np.ascontiguousarray(x) for x in (dq, dk, dv))
    return torch.from_numpy(dq), torch.from_numpy(dk), torch.from_numpy(dv)


def _backward_shapes(
    d_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in (query, key, value))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    query, key, value, lengths, *ctx.constants = inputs
    ctx.save_for_backward(query, key, value, *output, lengths)
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, d_out: torch.Tensor, _: Any) -> tuple[Any, ...]:
    found = torch.ops.undivided.linear_attention_backward(d_out, *ctx.saved_tensors, *ctx.constants)
    return *found, None, None, None


def _lengths(lengths: torch.Tensor | None, key: torch.Tensor) -> np.ndarray | None:
    """As `linear.py` checks them where it can."""
    if lengths is None:
        return None
    found: np.ndarray = lengths.numpy(force=True).astype(np.int64)
    B, T = key.shape[0], key.shape[2]
    if found.shape != (B,) or (found < 0).any() or (found > T).any():
        raise ArgumentError(
            f"The 'key_lengths' of linear_attention must be whole numbers [{B}], one a sample, "
            f"from 0 to {T}. Got {found.tolist()}.",
            argument="key_lengths",
        )
    return found


def _register() -> None:
    inputs = "Tensor query, Tensor key, Tensor value"
    constants = "Tensor? lengths, str feature_map, bool causal"
    operator = torch.library.custom_op(
        "undivided::linear_attention",
        _forward,
        mutates_args=(),
        device_types="cpu",
        schema=f"({inputs}, {constants}) -> (Tensor, Tensor)",
    )
    operator.register_fake(_forward_shapes)
    operator.register_autograd(_gradients, setup_context=_save)
    backward = torch.library.custom_op(
        "undivided::linear_attention_backward",
        _backward,
        mutates_args=(),
        device_types="cpu",
        schema=f"(Tensor d_out, {inputs}, Tensor out, Tensor n, {constants}) "
        "-> (Tensor, Tensor, Tensor)",
    )
    backward.register_fake(_backward_shapes)


_register()


def _mapped(query: torch.Tensor, key: torch.Tensor, how: How) -> tuple[torch.Tensor, torch.Tensor]:
    """φ of queries and keys; padding goes in as 0, so that what it holds reaches no gradient."""
    phi, phi_backward = feature_functions(how.feature_map)
    if phi_backward is not None:
        raise ArgumentError(
            "The 'feature_map' of linear_attention must be a function alone for PyTorch tensors: "
            "autograd finds its backward. Got a pair.",
            argument="feature_map",
        )
    if how.lengths is not None:
        number = torch.as_tensor(how.lengths)[:, None, None, None]
        query = query.masked_fill(number == 0, 0)
        key = key.masked_fill(torch.arange(key.shape[2])[:, None] >= number, 0)
    query_features, key_features = phi(query), phi(key)
    if query_features.dtype != query.dtype or key_features.dtype != key.dtype:
        raise ArgumentError(
            f"The 'feature_map' of linear_attention must keep the type {query.dtype}. "
            f"Got {query_features.dtype} and {key_features.dtype}.",
            argument="feature_map",
        )
    for name, x, features in (("query", query, query_features), ("key", key, key_features)):
        linear_numpy.check_features(name, x.shape, features, key_features.shape[-1])
    return query_features, key_features
