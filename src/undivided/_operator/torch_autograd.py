"""Attention of PyTorch CPU tensors as an autograd function around the NumPy operator.

Tensors and arrays share their memory, so nothing is copied on the way in or out where strides
allow. What backward reads is kept by `save_for_backward`, which notices when it was changed in
between and lets checkpointing drop it.
"""

# B batch, H heads, S queries, T keys, D width of queries and keys, F of values

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from undivided._operator import core
from undivided._operator.attention import (
    FLOAT32,
    FLOAT64,
    Arrays,
    Order,
    Wanted,
    attend,
    bias_inside,
    end_to_end,
    heads_first,
    packed_options,
    reads_out,
    sinks_inside,
)
from undivided._operator.options import Options, options_for
from undivided.errors import ArgumentError

__all__ = [
    "HALVES",
    "Attention",
    "Call",
    "Computed",
    "How",
    "attention_backward",
    "compute",
    "how_of",
]

HALVES = (torch.float16, torch.bfloat16)
"""Computed in float32."""


class Call(NamedTuple):
    """What a call asks for besides the tensors that may have gradients."""

    given: dict[str, Any]  # what `options_for` takes
    num_heads: int | None = None
    num_kv_heads: int | None = None
    return_weights: Any = False
    return_lse: bool = False
    layout: Any = "bhsd"
    threads: int | None = None
    starts: tuple[Any, Any] | None = None  # where packed sequences begin
    mask: Tensor | None = None  # also in `given`; here to be noticed when it is changed


class How(NamedTuple):
    """What backward needs besides tensors."""

    order: Order
    options: Options
    packing: core.Packing | None
    threads: int | None
    return_weights: Any


class Computed(NamedTuple):
    """What came of a call, in the caller's type, and what backward reads of it."""

    out: Tensor
    weights: Tensor | None
    lse: Tensor | None
    kept: tuple[Tensor | None, ...]  # lse, probabilities, out
    wide: Tensor  # out in the type that it was computed in
    how: How


def compute(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    sinks: Tensor | None,
    call: Call,
    *,
    keep: bool,
) -> Computed:
    arrays = Arrays(
        array_of(query),
        array_of(key),
        array_of(value),
        _or_none(bias),
        _or_none(sinks),
        call.num_heads,
        call.num_kv_heads,
        call.layout,
    )
    packing = None
    if call.starts is None:
        options = options_for(arrays.sizes, **call.given)
    else:
        options, packing = packed_options(arrays.sizes, *call.starts, **call.given)
    done = attend(
        arrays,
        options,
        call.return_weights,
        call.return_lse,
        keep=keep,
        threads=call.threads,
        packing=packing,
    )
    out = torch.from_numpy(done.out)
    lse = None if done.lse is None else torch.from_numpy(done.lse)
    kept: tuple[Tensor | None, ...] = (None, None, None)
    weights, p = done.weights, done.kept.probabilities
    if keep:
        read = reads_out(done.kept, sinks)
        kept = lse, None if p is None else torch.from_numpy(p), out if read else None
        if weights is not None and p is not None and np.may_share_memory(weights, p):
            weights = weights.copy()  # the caller may do with them as he likes
    if call.starts is not None and call.return_lse:
        assert done.lse is not None
        lse = torch.from_numpy(end_to_end(done.lse, options))
    return Computed(
        out.to(query.dtype),
        None if weights is None else torch.from_numpy(weights).to(query.dtype),
        lse if call.return_lse else None,
        kept,
        out,
        How(arrays.order, options, packing, call.threads, call.return_weights),
    )


def how_of(query: Tensor, key: Tensor, value: Tensor, call: Call) -> How:
    """As `compute` found it."""
    order = heads_first(query, key, value, call.num_heads, call.num_kv_heads, call.layout)[0]
    if call.starts is None:
        return How(
            order, options_for(order.sizes, **call.given), None, call.threads, call.return_weights
        )
    options, packing = packed_options(order.sizes, *call.starts, **call.given)
    return How(order, options, packing, call.threads, call.return_weights)


def attention_backward(
    d_out: Tensor | None,
    d_weights: Tensor | None,
    d_lse: Tensor | None,
    how: How,
    needs: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    sinks: Tensor | None,
    lse: Tensor | None,
    probabilities: Tensor | None,
    out: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """The gradients of query, key, value, bias and sinks, None for what is not needed."""
    order, sizes = how.order, how.order.sizes
    dtype = FLOAT64 if query.dtype is torch.float64 else FLOAT32
    inputs = (
        order.inside(array_of(query), sizes.H),
        order.inside(array_of(key), sizes.Hkv),
        order.inside(array_of(value), sizes.Hkv),
        bias_inside(_or_none(bias), sizes, dtype),
        sinks_inside(_or_none(sinks), sizes, dtype),
    )
    found: tuple[np.ndarray | None, ...] = (None,) * 5
    if d_out is not None:
        given_out = order.inside(array_of(d_out), sizes.H)
        found = core.backward(
            given_out,
            *inputs,
            core.Forward(
                given_out if out is None else order.inside(array_of(out), sizes.H),
                _or_none(lse),
                _or_none(probabilities),
            ),
            how.options,
            threads=how.threads,
            needs=needs[:5],
            packing=how.packing,
        )
    if d_weights is not None or d_lse is not None:
        found = _with_what_else(found, _or_none(d_weights), _or_none(d_lse), how, needs, inputs)
    dq, dk, dv, d_bias, d_sinks = found
    return (
        None if dq is None else _like(query, order.outside(dq)),
        None if dk is None else _like(key, order.outside(dk)),
        None if dv is None else _like(value, order.outside(dv)),
        None if d_bias is None or bias is None else _like(bias, d_bias.reshape(bias.shape)),
        None if d_sinks is None or sinks is None else _like(sinks, d_sinks),
    )


def _with_what_else(
    found: tuple[np.ndarray | None, ...],
    d_weights: np.ndarray | None,
    d_lse: np.ndarray | None,
    how: How,
    needs: Any,
    inputs: tuple[Any, ...],
) -> tuple[np.ndarray | None, ...]:
    """What was found, and what the gradients of weights and lse add to it."""
    from undivided._operator import weights_backward as module

    query, key, _, bias, sinks = inputs
    d_bias = None
    if how.packing is None:
        asked = Wanted(how.return_weights, how.order.sizes)
        dq, dk, d_bias, d_sinks = module.weights_backward(
            d_weights, d_lse, asked, query, key, bias, sinks, how.options
        )
    else:
        assert d_lse is not None
        dq, dk, d_sinks = module.lse_backward_packed(
            d_lse, query, key, sinks, how.options, how.packing
        )
    more = (dq, dk, None, d_bias, d_sinks)
    return tuple(
        a if b is None or not needed else b if a is None else a + b
        for a, b, needed in zip(found, more, needs[:5], strict=True)
    )


class Attention(torch.autograd.Function):
    """(out, weights, lse), of which the last two are None unless asked for."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        sinks: Tensor | None,
        call: Call,
    ) -> tuple[Tensor | None, ...]:
        done = compute(query, key, value, bias, sinks, call, keep=True)
        ctx.how = done.how
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(call.mask, query, key, value, bias, sinks, *done.kept)
        return done.out, done.weights, done.lse

    @staticmethod
    def backward(
        ctx: Any, d_out: Tensor | None, d_weights: Tensor | None, d_lse: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        gradients = AttentionBackward.apply if torch.is_grad_enabled() else attention_backward
        _, *kept = ctx.saved_tensors
        given = d_out, d_weights, d_lse, ctx.how, ctx.needs_input_grad
        return (*gradients(*given, *kept), None)


class AttentionBackward(torch.autograd.Function):
    """The backward pass where its own gradient might be asked for, to refuse that."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor | None, ...]:
        return attention_backward(*arguments)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> None:
        raise no_second_derivative()


def no_second_derivative() -> ArgumentError:
    return ArgumentError(
        "undivided.attention has first derivatives only, and the gradient of its gradient was "
        "asked for. Where that is needed (gradient penalties, Hessians), take PyTorch's own: "
        "torch.nn.functional.scaled_dot_product_attention under "
        "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)."
    )


def array_of(x: Tensor) -> np.ndarray:
    """The same memory as an array; float16 and bfloat16 as a copy in float32."""
    return (x.float() if x.dtype in HALVES else x).numpy(force=True)


def _like(x: Tensor, found: np.ndarray) -> Tensor:
    return torch.from_numpy(found).to(x.dtype)


def _or_none(x: Tensor | None) -> np.ndarray | None:
    return None if x is None else array_of(x)
