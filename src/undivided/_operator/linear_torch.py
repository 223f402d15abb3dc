"""linear_attention for PyTorch CPU tensors: the NumPy operator as an autograd function.

Imported only when a tensor is passed. Tensors and arrays share their memory, so nothing is copied
on the way in or out. What backward reads is kept by `save_for_backward`, which notices when it was
changed in between.
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
        number = torch.from_numpy(how.lengths)[:, None, None, None]
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
