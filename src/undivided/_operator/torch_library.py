"""The operator as PyTorch's own machinery knows it: torch.compile, torch.export, fake tensors.

    undivided::attention            out, weights, lse, probabilities, wide
    undivided::attention_backward   the gradients of query, key, value, bias and sinks

A compiled program calls these two and nothing in between. What varies from call to call is a
tensor, everything else a constant of the graph: numbers, words, and masks as numbers. Results that
nobody asked for are empty. `wide` is out before it was rounded to a narrower type; backward reads
it where it does not have the probabilities.

Outside of compiled programs `torch_autograd.py` does the same for a fraction of the cost of a call.
"""

# B batch, H heads, S queries, T keys, D width of queries and keys, F of values

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from undivided._operator import core
from undivided._operator.attention import FLOAT32, FLOAT64, Order, heads_first, side_by_side
from undivided._operator.mask_numbers import mask_of, numbers_of
from undivided._operator.masks import Mask
from undivided._operator.options import Options, Sizes
from undivided._operator.torch_autograd import (
    HALVES,
    Call,
    attention_backward,
    compute,
    how_of,
    no_second_derivative,
)

__all__ = ["attention"]

TENSORS = (
    "Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? sinks, "
    "Tensor? mask, Tensor? query_lengths, Tensor? key_lengths, Tensor? query_offset, "
    "Tensor? seed, Tensor? cu_query, Tensor? cu_key"
)
CONSTANTS = (
    "int[]? blocks, str causal, int[]? window, float? scale, float? softcap, float dropout, "
    "int? num_heads, int? num_kv_heads, str layout, int? threads"
)
ASKED = (
    "Tensor? weight_heads, Tensor? weight_rows, *, bool return_weights, bool return_lse, bool keep"
)
RESULTS = "Tensor? d_out, Tensor? d_weights, Tensor? d_lse"
KEPT = (
    "Tensor? weight_heads, Tensor? weight_rows, Tensor? lse, Tensor? probabilities, Tensor? out, "
    "*, bool[] needs, bool return_weights"
)
GIVEN = 12  # tensors that both directions take first
SQUARE = "one corner"
"""The word for causal=True among the words for corners; the empty word is False."""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    sinks: Tensor | None,
    *,
    given: dict[str, Any],
    starts: tuple[Any, Any] = (None, None),
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    return_weights: Any = False,
    return_lse: bool = False,
    layout: str = "bhsd",
    threads: int | None = None,
    keep: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """out, weights and lse, of which the last two are None unless asked for."""
    mask, causal, window, dropout = (given.get(n) for n in ("mask", "causal", "window", "dropout"))
    asked = return_weights is not False and return_weights is not None
    heads, rows = return_weights if isinstance(return_weights, tuple | list) else (None, None)
    seed = given["seed"]
    if seed is not None and not isinstance(seed, Tensor):
        seed = seed - (1 << 64) if seed >= 1 << 63 else seed  # the same bits with a sign
    out, weights, lse, _, _ = torch.ops.undivided.attention(
        query,
        key,
        value,
        bias,
        sinks,
        None if isinstance(mask, Mask) else _tensor(mask),
        _tensor(given.get("query_lengths")),
        _tensor(given.get("key_lengths")),
        _tensor(given["query_offset"]),
        _tensor(seed),
        _tensor(starts[0]),
        _tensor(starts[1]),
        _numbers(heads),
        _numbers(rows),
        return_weights=asked,
        return_lse=return_lse,
        keep=keep,
        blocks=numbers_of(mask) if isinstance(mask, Mask) else None,
        causal=(SQUARE if causal else "") if isinstance(causal, bool) else causal,
        window=None if window is None else [-1 if side is None else side for side in window],
        scale=given["scale"],
        softcap=given["softcap"],
        dropout=dropout,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        layout=layout,
        threads=threads,
    )
    return out, weights if asked else None, lse if return_lse else None


def _tensor(x: Any) -> Tensor | None:
    return None if x is None else torch.as_tensor(x)


def _numbers(x: Any) -> Tensor | None:
    return None if x is None else torch.atleast_1d(torch.as_tensor(x))


# Forward.


def _forward(
    *tensors: Any, return_weights: bool, return_lse: bool, keep: bool, **constants: Any
) -> tuple[Tensor, ...]:
    query, key, value, bias, sinks = tensors[:5]
    packed = constants["layout"] == "packed"
    call = _call(tensors[5:GIVEN], constants)._replace(
        return_weights=tuple(map(_array, tensors[GIVEN:])) if return_weights else False,
        return_lse=return_lse or (packed and keep),
    )
    done = compute(query, key, value, bias, sinks, call, keep=keep)
    lse, probabilities, _ = done.kept
    if packed:  # as long as the longest sequence is, which nobody knows beforehand
        lse, probabilities = None, None
    reads_out = keep and (probabilities is None or sinks is not None)
    wide = done.wide if reads_out and query.dtype in HALVES else None
    found = (done.weights, done.lse if lse is None else lse, probabilities, wide)
    return done.out, *(query.new_empty(0) if x is None else x.contiguous() for x in found)


def _forward_shapes(
    *tensors: Any, return_weights: bool, return_lse: bool, keep: bool, **constants: Any
) -> tuple[Tensor, ...]:
    query, key, value, _, sinks = tensors[:5]
    weight_heads, weight_rows = tensors[GIVEN:]
    order, sizes = _order(query, key, value, constants)
    B, H, _, S, T, _, _ = sizes
    dtype = torch.float64 if query.dtype is torch.float64 else torch.float32
    out = query.new_empty(order.shape_of_out())
    weights, lse, probabilities, wide = (query.new_empty(0) for _ in range(4))
    if return_weights:
        heads = H if weight_heads is None else weight_heads.numel()
        rows = S if weight_rows is None else weight_rows.numel()
        weights = query.new_empty(B, heads, rows, T)
    packed = order.form == "packed"
    if keep or return_lse:
        lse = query.new_empty((S, H) if packed else (B, H, S), dtype=dtype)
    if keep:
        options = Options(1.0, dropout=constants["dropout"], softcap=constants["softcap"] or 0.0)
        shape = core.kept_shape(sizes, options, _numpy_type(dtype), return_weights)
        if shape is not None and not packed:
            probabilities = query.new_empty(shape, dtype=dtype)
        if query.dtype in HALVES and (shape is None or packed or sinks is not None):
            wide = query.new_empty(out.shape, dtype=dtype)
    return out, weights, lse, probabilities, wide


# Backward.


def _backward(
    d_out: Tensor | None,
    d_weights: Tensor | None,
    d_lse: Tensor | None,
    *tensors: Any,
    needs: list[bool],
    return_weights: bool,
    **constants: Any,
) -> list[Tensor]:
    query, key, value, bias, sinks = tensors[:5]
    asked, (lse, probabilities, out) = tensors[GIVEN : GIVEN + 2], tensors[GIVEN + 2 :]
    call = _call(tensors[5:GIVEN], constants)._replace(
        return_weights=tuple(map(_array, asked)) if return_weights else False
    )
    how = how_of(query, key, value, call)
    if how.packing is not None:
        lse = torch.from_numpy(side_by_side(lse.numpy(), how.options))
    # A compiled program gives zeros where no gradient comes from.
    d_weights, d_lse = (x if x is not None and x.any() else None for x in (d_weights, d_lse))
    found = attention_backward(
        *(d_out, d_weights, d_lse),
        how,
        needs,
        *(query, key, value, bias, sinks),
        *(lse, probabilities, out),
    )
    wanted = zip(found, tensors[:5], needs, strict=True)
    return [_returned(query, x, of if needed else None) for x, of, needed in wanted]


def _returned(query: Tensor, found: Tensor | None, of: Tensor | None) -> Tensor:
    if of is None:
        return query.new_empty(0)
    return torch.zeros_like(of, memory_format=torch.contiguous_format) if found is None else found


def _backward_shapes(
    d_out: Any, d_weights: Any, d_lse: Any, *tensors: Any, needs: list[bool], **_: Any
) -> list[Tensor]:
    return [
        tensors[0].new_empty(0)
        if x is None or not needed
        else torch.empty_like(x, memory_format=torch.contiguous_format)
        for x, needed in zip(tensors[:5], needs, strict=True)
    ]


# How the one leads to the other.


def _save(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any
) -> None:
    out, _, lse, probabilities, wide = output
    constants = dict(keyword_only_inputs)
    for name in ("return_lse", "keep"):
        del constants[name]
    ctx.constants = constants
    kept_out: Tensor | None = wide if inputs[0].dtype in HALVES else out
    if probabilities.numel() and inputs[4] is None:
        kept_out = None  # backward does not read it
    kept_probabilities = probabilities if probabilities.numel() else None
    ctx.save_for_backward(*inputs, lse, kept_probabilities, kept_out)
    ctx.mark_non_differentiable(probabilities, wide)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, *d_results: Tensor | None) -> tuple[Any, ...]:
    needs = list(ctx.needs_input_grad[:5])
    found = torch.ops.undivided.attention_backward(
        *d_results[:3], *ctx.saved_tensors, needs=needs, **ctx.constants
    )
    given = zip(found, needs, strict=True)
    return *(x if needed else None for x, needed in given), *(None,) * (GIVEN + 2 - 5)


def _refuse_second(ctx: Any, *_: Any) -> None:
    raise no_second_derivative()


# What both directions take, as the operator wants it.


def _call(tensors: tuple[Any, ...], constants: dict[str, Any]) -> Call:
    mask, query_lengths, key_lengths, query_offset, seed, cu_query, cu_key = map(_array, tensors)
    causal = constants["causal"]
    given = {
        "mask": mask if constants["blocks"] is None else mask_of(constants["blocks"]),
        "causal": {"": False, SQUARE: True}.get(causal, causal),
        "window": constants["window"],
        "query_lengths": query_lengths,
        "key_lengths": key_lengths,
        "query_offset": query_offset,
        "scale": constants["scale"],
        "softcap": constants["softcap"],
        "dropout": constants["dropout"],
        "seed": None if seed is None else int(seed) % (1 << 64),
    }
    starts = None
    if constants["layout"] == "packed":
        starts = cu_query, cu_key
        for name in ("mask", "query_lengths", "key_lengths"):
            del given[name]
    return Call(
        given,
        constants["num_heads"],
        constants["num_kv_heads"],
        layout=constants["layout"],
        threads=constants["threads"],
        starts=starts,
    )


def _order(query: Any, key: Any, value: Any, constants: dict[str, Any]) -> tuple[Order, Sizes]:
    heads = constants["num_heads"], constants["num_kv_heads"]
    order = heads_first(query, key, value, *heads, constants["layout"])[0]
    return order, order.sizes


def _array(x: Tensor | None) -> np.ndarray | None:
    return None if x is None else x.numpy(force=True)


def _numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    return FLOAT64 if dtype is torch.float64 else FLOAT32


def _register() -> None:
    operator = torch.library.custom_op(
        "undivided::attention",
        _forward,
        mutates_args=(),
        device_types="cpu",
        schema=f"({TENSORS}, {ASKED}, {CONSTANTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    )
    operator.register_fake(_forward_shapes)
    operator.register_autograd(_gradients, setup_context=_save)
    backward = torch.library.custom_op(
        "undivided::attention_backward",
        _backward,
        mutates_args=(),
        device_types="cpu",
        schema=f"({RESULTS}, {TENSORS}, {KEPT}, {CONSTANTS}) -> Tensor[]",
    )
    backward.register_fake(_backward_shapes)
    backward.register_autograd(_refuse_second)


_register()
