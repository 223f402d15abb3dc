"""Short calls of tensors: see `short.py`. PyTorch's own part of forward and backward is most of
what remains of them."""

# B batch, H heads, S queries, T keys, F width of values

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undivided import _native
from undivided._operator import core, short
from undivided._operator.short import Seven
from undivided._operator.torch_autograd import no_second_derivative

__all__ = ["attention"]

PLAIN = (Tensor, torch.nn.Parameter)


def attention(query: Tensor, key: Any, value: Any, causal: bool, threads: int | None) -> Any:
    """out, or None where a call is not short."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return None
    if not (_plain(query) and _plain(key) and _plain(value)):
        return None
    sizes = short.sizes_of(query.shape, key.shape, value.shape, causal)
    if sizes is None:
        return None
    workers = short.workers_for(sizes, threads)
    if torch.is_grad_enabled() and (
        query.requires_grad or key.requires_grad or value.requires_grad
    ):
        width = short.kept_width(sizes)
        if width is None:
            return None
        return ShortAttention.apply(query, key, value, sizes, width, causal, workers)
    out = _empty((*query.shape[:3], sizes[6]))
    places = (query.data_ptr(), key.data_ptr(), value.data_ptr(), out.data_ptr())
    short.run(core.FORWARD, workers, sizes, causal, *places)
    return out


def _plain(x: Any) -> bool:
    return type(x) in PLAIN and x.dtype is torch.float32 and x.is_cpu and x.is_contiguous()


def _empty(shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(_native.recycled(shape))


class ShortAttention(torch.autograd.Function):
    """Probabilities are kept, and backward reads no more than them and the inputs."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        sizes: Seven,
        width: int,
        causal: bool,
        workers: int,
    ) -> Tensor:
        B, H, _, S, _, _, F = sizes
        out, kept = _empty((B, H, S, F)), _empty((B, H, S, width))
        short.run(
            core.FORWARD,
            workers,
            sizes,
            causal,
            query.data_ptr(),
            key.data_ptr(),
            value.data_ptr(),
            out.data_ptr(),
            kept.data_ptr(),
        )
        ctx.save_for_backward(query, key, value, kept)
        ctx.call = sizes, causal, workers
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        gradients: Any = ShortBackward.apply if torch.is_grad_enabled() else gradients_of
        found = gradients(d_out, *ctx.saved_tensors, ctx.call, ctx.needs_input_grad)
        return (*found, None, None, None, None)


def gradients_of(
    d_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kept: Tensor,
    call: tuple[Seven, bool, int],
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    sizes, causal, workers = call
    d_out = d_out.contiguous()
    dq = _empty(query.shape) if needs[0] else None
    dk = _empty(key.shape) if needs[1] else None
    dv = _empty(value.shape) if needs[2] else None
    short.run(
        core.BACKWARD,
        workers,
        sizes,
        causal,
        query.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        0,
        kept.data_ptr(),
        d_out.data_ptr(),
        0 if dq is None else dq.data_ptr(),
        0 if dk is None else dk.data_ptr(),
        0 if dv is None else dv.data_ptr(),
    )
    return dq, dk, dv


class ShortBackward(torch.autograd.Function):
    """The backward pass where its own gradient might be asked for, to refuse that."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor | None, ...]:
        return gradients_of(*arguments)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> None:
        raise no_second_derivative()
