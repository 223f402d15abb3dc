"""sdpa: torch.nn.functional.scaled_dot_product_attention, computed by undivided."""

# N… leading axes, H heads, L queries, S keys, E width of queries and keys, V of values

from __future__ import annotations

import torch
from torch import Tensor

from undivided._operator.attention import NAMES, attention
from undivided.errors import ArgumentError

__all__ = ["sdpa"]


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """out [N…, L, V], a drop-in for torch.nn.functional.scaled_dot_product_attention.

    query       [N…, L, E]; the last of the leading axes counts the heads
    key, value  [N…, S, E] and [N…, S, V]
    attn_mask   broadcasts to [N…, L, S]: boolean, True where a query may attend, or numbers that
                are added to the scores
    dropout_p   the share of weights that is dropped, whenever it is above 0
    is_causal   query i sees keys 0 … i: the corner is at the top left; not beside attn_mask
    scale       1/√E unless given
    enable_gqa  query head h of H reads key/value head ⌊h·Hkv/H⌋

    A query that may attend to nothing gives 0, with gradients of 0.
    """
    for name, x in zip(NAMES, (query, key, value), strict=True):
        if not isinstance(x, Tensor) or x.ndim < 2:
            found = f"shape {list(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise _refuse(name, "a tensor [..., rows, width]", found)
        if x.is_nested:
            raise _refuse(
                name,
                "a plain tensor",
                "a nested one",
                "undivided.attention_varlen takes sequences of different lengths end to end.",
            )
    if is_causal and attn_mask is not None:
        raise _refuse("attn_mask", "left out with is_causal=True", "both", "Put one in the other.")
    lead, leads = _leading(query, key, value, enable_gqa)
    q, k, v = (
        _four_axes(x, lead_of) for x, lead_of in zip((query, key, value), leads, strict=True)
    )
    mask, bias = _mask_or_bias(attn_mask, lead, query.shape[-2], key.shape[-2])
    out = attention(
        q,
        k,
        v,
        mask=mask,
        bias=bias,
        causal="top_left" if is_causal else False,
        scale=scale,
        dropout=dropout_p,
    )
    return out.reshape(*lead, *out.shape[2:])


Shape = tuple[int, ...]


def _leading(
    query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool
) -> tuple[Shape, tuple[Shape, Shape, Shape]]:
    """The leading axes of the result, and those that each of the three is seen with."""
    leads = [tuple(x.shape[:-2]) for x in (query, key, value)]
    try:
        if not enable_gqa:
            lead = tuple(torch.broadcast_shapes(*leads))
            return lead, (lead, lead, lead)
        if min(map(len, leads)) == 0:
            raise _refuse("enable_gqa", "left out without an axis for heads", "True")
        batch = tuple(torch.broadcast_shapes(*(lead[:-1] for lead in leads)))
    except RuntimeError:
        shapes = ", ".join(str(list(x.shape)) for x in (query, key, value))
        hint = "" if enable_gqa else "Fewer heads of keys than of queries need enable_gqa=True."
        raise _refuse("query, key and value", "alike in their leading axes", shapes, hint) from None
    q, k, v = ((*batch, lead[-1]) for lead in leads)
    return q, (q, k, v)


def _four_axes(x: Tensor, lead: Shape) -> Tensor:
    """[N…, H, rows, width] as [N, H, rows, width], a view wherever strides allow."""
    if tuple(x.shape[:-2]) != lead:
        x = x.expand(*lead, *x.shape[-2:])
    if len(lead) == 2:
        return x
    heads = lead[-1] if lead else 1
    count = 1
    for n in lead[:-1]:
        count *= n
    return x.reshape(count, heads, *x.shape[-2:])


def _mask_or_bias(
    attn_mask: Tensor | None, lead: Shape, queries: int, keys: int
) -> tuple[Tensor | None, Tensor | None]:
    if attn_mask is None:
        return None, None
    if not isinstance(attn_mask, Tensor):
        raise _refuse("attn_mask", "a tensor", type(attn_mask).__name__)
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise _refuse("attn_mask", "boolean or of floats", attn_mask.dtype)
    whole = (*lead, queries, keys)
    aligned = (1,) * (len(whole) - attn_mask.ndim) + tuple(attn_mask.shape)
    fits = len(aligned) == len(whole) and all(
        n in (1, N) for n, N in zip(aligned, whole, strict=True)
    )
    if not fits:
        raise _refuse(
            "attn_mask", f"of a shape that broadcasts to {list(whole)}", list(attn_mask.shape)
        )
    of_mask = aligned[:-2]
    if all(n == 1 for n in of_mask[:-1]):  # the same for every sample
        mask = attn_mask.reshape(1, of_mask[-1] if of_mask else 1, *aligned[-2:])
    else:  # at least all samples' own, however many axes count them
        every = (*lead[:-1], of_mask[-1])
        mask = _four_axes(attn_mask.reshape(aligned), every)
    return (mask, None) if attn_mask.dtype == torch.bool else (None, mask)


def _refuse(argument: str, expected: str, found: object, hint: str = "") -> ArgumentError:
    text = f"The '{argument}' of sdpa must be {expected}. Got {found}. {hint}"
    return ArgumentError(text.rstrip(), argument=argument)
