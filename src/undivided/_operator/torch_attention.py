"""undivided.attention for PyTorch tensors: what is checked here, and who computes it.

    CPU tensors                the NumPy operator as an autograd function   torch_autograd.py
    … inside torch.compile     the same, registered with PyTorch            torch_library.py
    tensors elsewhere          PyTorch's own operator                       torch_elsewhere.py

Imported only when a tensor is passed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undivided._operator.attention import NAMES
from undivided._operator.options import refuse
from undivided._operator.torch_autograd import Attention, Call, compute
from undivided.errors import ArgumentError

__all__ = ["attention", "attention_varlen"]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
PLAIN = (Tensor, torch.nn.Parameter)
CONSTANT = ("mask", "query_lengths", "key_lengths", "query_offset")


def attention(
    query: Tensor,
    key: Any,
    value: Any,
    *,
    bias: Any = None,
    sinks: Any = None,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    return_weights: Any = False,
    return_lse: bool = False,
    layout: Any = "bhsd",
    threads: int | None = None,
    **given: Any,
) -> Any:
    """As `undivided.attention`, which has the words for it."""
    check(query, key, value)
    bias, sinks = _added("bias", bias, query), _added("sinks", sinks, query)
    if query.device.type != "cpu":
        return _elsewhere(
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
    if given["dropout"] and given["seed"] is None:
        given["seed"] = drawn_seed(query)
    if in_a_program(query):
        from undivided._operator import torch_library

        found = torch_library.attention(
            query,
            key,
            value,
            bias,
            sinks,
            given=given,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            return_weights=return_weights,
            return_lse=return_lse,
            layout=layout,
            threads=threads,
            keep=_has_gradient(query, key, value, bias, sinks),
        )
        return _asked_for(found)
    mask = given["mask"]
    for name in CONSTANT:
        if given[name] is not None:
            given[name] = _constant(name, given[name], query)
    call = Call(
        given,
        num_heads,
        num_kv_heads,
        return_weights,
        return_lse,
        layout,
        threads,
        mask=mask if isinstance(mask, Tensor) else None,
    )
    return _results(query, key, value, bias, sinks, call)


def attention_varlen(
    query: Tensor,
    key: Any,
    value: Any,
    cu_query: Any,
    cu_key: Any,
    *,
    sinks: Any = None,
    return_lse: bool = False,
    threads: int | None = None,
    **given: Any,
) -> Any:
    """As `undivided.attention_varlen`."""
    check(query, key, value)
    sinks = _added("sinks", sinks, query)
    if query.device.type != "cpu":
        from undivided._operator import torch_elsewhere

        starts = cu_query, cu_key
        return _asked_for(
            torch_elsewhere.attention_varlen(
                query, key, value, starts, sinks=sinks, return_lse=return_lse, **given
            )
        )
    if given["dropout"] and given["seed"] is None:
        given["seed"] = drawn_seed(query)
    if in_a_program(query):
        from undivided._operator import torch_library

        found = torch_library.attention(
            query,
            key,
            value,
            None,
            sinks,
            given=given,
            starts=(cu_query, cu_key),
            return_lse=return_lse,
            layout="packed",
            threads=threads,
            keep=_has_gradient(query, key, value, None, sinks),
        )
        return _asked_for(found)
    starts = _constant("cu_query", cu_query, query), _constant("cu_key", cu_key, query)
    if given["query_offset"] is not None:
        given["query_offset"] = _constant("query_offset", given["query_offset"], query)
    call = Call(given, None, None, False, return_lse, "packed", threads, starts)
    return _results(query, key, value, None, sinks, call)


def _elsewhere(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Any:
    from undivided._operator import torch_elsewhere

    for name in CONSTANT:
        x = options[name]
        if isinstance(x, Tensor) and x.device != query.device:
            raise refuse(name, f"on {query.device}, as 'query' is", x.device)
    return _asked_for(torch_elsewhere.attention(query, key, value, **options))


def in_a_program(query: Tensor) -> bool:
    """Whether this call is being written down, to be run later: by torch.compile, for one."""
    return torch.compiler.is_compiling() or type(query) not in PLAIN


def _results(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    sinks: Tensor | None,
    call: Call,
) -> Any:
    if _has_gradient(query, key, value, bias, sinks):
        return _asked_for(Attention.apply(query, key, value, bias, sinks, call))
    return _asked_for(compute(query, key, value, bias, sinks, call, keep=False)[:3])


def _has_gradient(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, sinks: Tensor | None
) -> bool:
    return torch.is_grad_enabled() and (
        query.requires_grad
        or key.requires_grad
        or value.requires_grad
        or (bias is not None and bias.requires_grad)
        or (sinks is not None and sinks.requires_grad)
    )


def _asked_for(found: Any) -> Any:
    """out, or (out, weights, lse) of which the last two come when asked for."""
    if found[1] is None and found[2] is None:
        return found[0]
    return tuple(x for x in found if x is not None)


def check(query: Tensor, key: Any, value: Any) -> None:
    """Three tensors of one type on one device."""
    dtype, device = query.dtype, query.device
    for name, x in zip(NAMES, (query, key, value), strict=True):
        if not isinstance(x, Tensor):
            raise refuse(name, "a PyTorch tensor, as 'query' is", type(x).__name__)
        if x.device != device:
            raise refuse(name, f"on {device}, as 'query' is", x.device)
        if x.dtype != dtype:
            raise refuse(name, f"of {_name(dtype)}, as 'query' is", _name(x.dtype))
    if dtype not in FLOATS:
        raise refuse("query", "of float32, float64, float16 or bfloat16", _name(dtype))
    if torch._C._are_functorch_transforms_active():
        raise ArgumentError(
            "undivided.attention has gradients by .backward() and torch.autograd.grad, and cannot "
            "be transformed by torch.func (grad, vmap, jvp and their like). Samples and heads have "
            "axes of their own, so vmap is seldom needed; for the rest take PyTorch's own "
            "scaled_dot_product_attention."
        )


def _added(name: str, x: Any, query: Tensor) -> Tensor | None:
    """bias or sinks as a tensor, which may have a gradient."""
    if x is None:
        return None
    if not isinstance(x, Tensor):
        x = torch.as_tensor(x)
    elif x.device != query.device:
        raise refuse(name, f"on {query.device}, as 'query' is", x.device)
    return x


def _constant(name: str, x: Any, query: Tensor) -> Any:
    """What has no gradient, as NumPy has it."""
    if not isinstance(x, Tensor):
        return x
    if x.device != query.device:
        raise refuse(name, f"on {query.device}, as 'query' is", x.device)
    return x.numpy(force=True)


def drawn_seed(query: Tensor) -> Any:
    """From PyTorch's generator, so that torch.manual_seed repeats it."""
    seed = torch.randint((1 << 63) - 1, ())
    return seed if in_a_program(query) else int(seed)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
