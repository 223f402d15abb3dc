"""undivided.attention for tensors that are not in the CPU's memory: PyTorch's own operator.

Until there are kernels for them, they go through `scaled_dot_product_attention` with everything
that may not be attended to in one mask. Weights and log-sum-exp are found by their formulas; what
cannot be said there is refused.

    allowed[b,h,i,j] = mask ∧ i < query_length ∧ j < key_length ∧ p − left ≤ j ≤ p + right
                       p = i + offset: where query i stands among the keys

A row that is allowed nothing attends to everything there and is cleared afterwards, which clears
its gradients too. So are keys and values that no query may attend to, so that NaN in padding
reaches nothing; NaN in a key that some queries see is PyTorch's matter here.
"""

# B batch, H heads, Hkv key/value heads, S queries, T keys, D width of queries and keys, F of values
#
# query  [B, H, S, D]      key  [B, Hkv, T, D]      value  [B, Hkv, T, F]
# mask, bias  four axes, each as long as its own or 1      lengths, offset  [B, 1, 1, 1] or one
# sinks  [H]

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from undivided._operator.attention import Order, Wanted, heads_first, packed_options
from undivided._operator.masks import Mask
from undivided._operator.options import (
    UNBOUNDED,
    Options,
    Sizes,
    broadcastable,
    options_for,
    refuse,
)
from undivided.errors import ArgumentError

__all__ = ["attention", "attention_varlen"]


class Rules(NamedTuple):
    """Which query may attend to which key."""

    mask: Tensor | None = None
    query_lengths: Any = None
    key_lengths: Any = None
    offset: Any = 0
    left: int = UNBOUNDED
    right: int = UNBOUNDED

    @property
    def plain(self) -> bool:
        """Whether they are all or causal from the top left, which PyTorch has words for."""
        arrays = (self.mask, self.query_lengths, self.key_lengths)
        at_start = not isinstance(self.offset, Tensor) and self.offset == 0
        shape = self.left == UNBOUNDED and self.right in (0, UNBOUNDED)
        return at_start and shape and all(x is None for x in arrays)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias: Tensor | None = None,
    sinks: Tensor | None = None,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    return_weights: Any = False,
    return_lse: bool = False,
    layout: Any = "bhsd",
    threads: int | None = None,  # there are none to choose
    **given: Any,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """out, weights and lse, of which the last two are None unless asked for."""
    _refuse_what_is_not_there(query, given)
    order, q, k, v = heads_first(query, key, value, num_heads, num_kv_heads, layout)
    sizes = order.sizes
    options = options_for(sizes, **_constants(given))
    mask = given["mask"]
    if options.blocks is not None:
        mask = torch.from_numpy(options.blocks.to_array(sizes.S, sizes.T)).to(query.device)
    rules = Rules(
        None if mask is None else _mask(mask, sizes, query),
        _per_sample(given["query_lengths"], query),
        _per_sample(given["key_lengths"], query),
        _offset(given, options, query, sizes),
        options.left,
        options.right,
    )
    if bias is not None:
        if not bias.is_floating_point():
            raise refuse("bias", "of floats", bias.dtype)
        bias = broadcastable("bias", bias, sizes)  # type: ignore[arg-type,assignment]
    added = bias, _sinks(sinks, sizes), rules, options, sizes
    out = _outside(_attend(q, k, v, *added), order)
    wanted = Wanted(return_weights, sizes)
    if not wanted.any and not return_lse:
        return out, None, None
    weights, lse = _weights(q, k, *added)
    if wanted.any:
        heads, rows = (torch.from_numpy(n).to(out.device) for n in (wanted.heads, wanted.rows))
        weights = weights[:, heads[:, None], rows[None, :]].to(out.dtype)
    return out, weights if wanted.any else None, lse if return_lse else None


def attention_varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: tuple[Any, Any],
    *,
    sinks: Tensor | None = None,
    return_lse: bool = False,
    **given: Any,
) -> tuple[Tensor, None, Tensor | None]:
    """As `undivided.attention_varlen`: sequences side by side there and end to end again."""
    _refuse_what_is_not_there(query, given)
    order, q, k, v = heads_first(query, key, value, None, None, "packed")
    if given["dropout"]:
        given["seed"] = 0
    sizes = order.sizes
    starts_q, starts_k = (
        x.numpy(force=True) if isinstance(x, Tensor) else np.asarray(x) for x in starts
    )
    if isinstance(given["query_offset"], Tensor):
        given["query_offset"] = given["query_offset"].numpy(force=True)
    options, packing = packed_options(sizes, starts_q, starts_k, **given)
    each = sizes._replace(
        B=len(packing.query_start), S=packing.longest_query, T=packing.longest_key
    )
    rules = Rules(
        None,
        _per_sample(options.query_lengths, query),
        _per_sample(options.key_lengths, query),
        options.offset if options.offsets is None else _per_sample(options.offsets, query),
        options.left,
        options.right,
    )
    rows_q = packing.query_start[:, None] + np.arange(each.S)
    rows_k = packing.key_start[:, None] + np.arange(each.T)
    q, k, v = (
        x[0][:, torch.from_numpy(rows.clip(0, max(x.shape[2] - 1, 0))).to(x.device)].movedim(1, 0)
        for x, rows in ((q, rows_q), (k, rows_k), (v, rows_k))
    )  # [sequences, heads, longest, width]
    added = None, _sinks(sinks, sizes), rules, options, each
    out = _attend(q, k, v, *added)
    assert options.query_lengths is not None
    real = np.nonzero(np.arange(each.S) < options.query_lengths[:, None])
    sequence, row = (torch.from_numpy(n).to(query.device) for n in real)
    lse = _weights(q, k, *added)[1].transpose(1, 2)[sequence, row] if return_lse else None
    return out.transpose(1, 2)[sequence, row], None, lse


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    sinks: Tensor | None,
    rules: Rules,
    options: Options,
    sizes: Sizes,
) -> Tensor:
    """out [B, H, S, F]."""
    shared: dict[str, Any] = {
        "dropout_p": options.dropout,
        "scale": options.scale,
        "enable_gqa": sizes.Hkv != sizes.H,
    }
    if bias is None and sinks is None and rules.plain:
        causal = rules.right == 0
        return scaled_dot_product_attention(query, key, value, is_causal=causal, **shared)
    allowed = _allowed(rules, bias, sizes, query.device)
    reaches = allowed.any(dim=-1, keepdim=True)
    query, key, value = _without_padding(allowed, sizes, query, key, value)
    if sinks is not None:  # one more key, which is nothing and has no value
        key, value = pad(key, (0, 0, 0, 1)), pad(value, (0, 0, 0, 1))
        scores = query.new_zeros(()) if bias is None else bias.to(query.dtype)
        scores = scores.masked_fill(~allowed, -torch.inf).expand(-1, sizes.H, sizes.S, sizes.T)
        column = sinks.to(query.dtype)[:, None, None].expand(len(scores), -1, sizes.S, 1)
        return scaled_dot_product_attention(
            query, key, value, attn_mask=torch.cat([scores, column], dim=-1), **shared
        )
    if bias is None:
        attn_mask = allowed | ~reaches
    else:
        attn_mask = bias.to(query.dtype).masked_fill(~allowed, -torch.inf)
        attn_mask = attn_mask.masked_fill(~reaches, 0)
    attn_mask = attn_mask.expand(-1, -1, sizes.S, sizes.T)
    out = scaled_dot_product_attention(query, key, value, attn_mask=attn_mask, **shared)
    return out.masked_fill(~reaches, 0)


def _weights(
    query: Tensor,
    key: Tensor,
    bias: Tensor | None,
    sinks: Tensor | None,
    rules: Rules,
    options: Options,
    sizes: Sizes,
) -> tuple[Tensor, Tensor]:
    """Weights [B, H, S, T] and lse [B, H, S] by their formulas, in float32 at least."""
    allowed = _allowed(rules, bias, sizes, query.device)
    query, key = _without_padding(allowed, sizes, query, key)
    dtype = torch.float64 if query.dtype is torch.float64 else torch.float32
    query, key = query.to(dtype), key.to(dtype)
    key = key.repeat_interleave(sizes.H // max(sizes.Hkv, 1), dim=1)
    scores = query @ key.mT * options.scale
    if bias is not None:
        scores = scores + bias.to(dtype)
    scores = scores.masked_fill(~allowed, -torch.inf)
    column = scores.new_full((*scores.shape[:3], 1), -torch.inf)
    if sinks is not None:
        column = sinks.to(dtype)[:, None, None].expand_as(column)
        if rules.query_lengths is not None:
            row = torch.arange(sizes.S, device=query.device)[:, None]
            column = column.masked_fill(row >= rules.query_lengths, -torch.inf)
    scores = torch.cat([scores, column], dim=-1)
    empty = (scores == -torch.inf).all(dim=-1, keepdim=True)
    scores = scores.masked_fill(empty, 0)
    weights = scores.softmax(dim=-1)[..., : sizes.T].masked_fill(~allowed, 0)
    return weights, scores.logsumexp(dim=-1).masked_fill(empty[..., 0], -torch.inf)


def _allowed(rules: Rules, bias: Tensor | None, sizes: Sizes, device: torch.device) -> Tensor:
    """[B or 1, H or 1, S, T] bool."""
    i = torch.arange(sizes.S, device=device)[:, None]
    j = torch.arange(sizes.T, device=device)
    allowed = torch.ones((1, 1, sizes.S, sizes.T), dtype=torch.bool, device=device)
    if rules.query_lengths is not None:
        allowed = allowed & (i < rules.query_lengths)
    if rules.key_lengths is not None:
        allowed = allowed & (j < rules.key_lengths)
    position = i + rules.offset
    if rules.left < UNBOUNDED:
        allowed = allowed & (j >= position - rules.left)
    if rules.right < UNBOUNDED:
        allowed = allowed & (j <= position + rules.right)
    if rules.mask is not None:
        allowed = allowed & rules.mask
    return allowed if bias is None else allowed & (bias != -torch.inf)


def _without_padding(
    allowed: Tensor, sizes: Sizes, query: Tensor, *keys_and_values: Tensor
) -> tuple[Tensor, ...]:
    """0 in queries that may attend to nothing, and in keys and values that nobody may attend to."""
    blind = ~allowed.any(dim=-1, keepdim=True)
    unseen = ~_of_shared_heads(allowed.any(dim=-2), sizes)[..., None]
    return query.masked_fill(blind, 0), *(x.masked_fill(unseen, 0) for x in keys_and_values)


def _of_shared_heads(seen: Tensor, sizes: Sizes) -> Tensor:
    """[B, H, T] → [B, Hkv, T]: by any of the query heads that read it."""
    if seen.shape[1] == 1 or sizes.Hkv == sizes.H:
        return seen
    return seen.unflatten(1, (sizes.Hkv, sizes.H // sizes.Hkv)).any(dim=2)


# Options.


def _refuse_what_is_not_there(query: Tensor, given: dict[str, Any]) -> None:
    said = {"softcap": given["softcap"], "seed": given["seed"] if given["dropout"] else None}
    asked = [name for name, value in said.items() if value is not None]
    if asked:
        raise ArgumentError(
            f"On {query.device} attention is PyTorch's scaled_dot_product_attention, which has no "
            f"{' and no '.join(repr(name) for name in asked)}. Leave it out, or move the tensors "
            "with .cpu().",
            argument=asked[0],
        )


def _constants(given: dict[str, Any]) -> dict[str, Any]:
    """What options_for can check: all but what lies in another memory."""
    constants = dict(given)
    for name in ("mask", "query_lengths", "key_lengths", "query_offset"):
        if isinstance(given[name], Tensor):
            constants[name] = 0 if name == "query_offset" else None
    if not isinstance(constants["mask"], Mask):
        constants["mask"] = None
    if given["dropout"]:
        constants["seed"] = 0  # of which PyTorch makes no use
    return constants


def _mask(mask: Any, sizes: Sizes, query: Tensor) -> Tensor:
    if isinstance(mask, np.ndarray):
        mask = torch.from_numpy(mask).to(query.device)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        found = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        expected = "a boolean tensor, True where a query may attend, or made by undivided.masks"
        raise refuse("mask", expected, found)
    return broadcastable("mask", mask, sizes)  # type: ignore[arg-type,return-value]


def _sinks(sinks: Tensor | None, sizes: Sizes) -> Tensor | None:
    if sinks is not None and tuple(sinks.shape) != (sizes.H,):
        raise refuse("sinks", f"numbers [H] = [{sizes.H}]", f"shape {list(sinks.shape)}")
    return sinks


def _per_sample(numbers: Any, query: Tensor) -> Any:
    """[B, 1, 1, 1]."""
    if numbers is None:
        return None
    array = numbers if isinstance(numbers, Tensor) else np.array(numbers)  # may be read-only
    return torch.as_tensor(array, device=query.device).reshape(-1, 1, 1, 1)


def _offset(given: dict[str, Any], options: Options, query: Tensor, sizes: Sizes) -> Any:
    if given["causal"] == "bottom_right":
        lengths = given["key_lengths"], given["query_lengths"]
        keys, queries = (_per_sample(x, query) for x in lengths)
        return (sizes.T if keys is None else keys) - (sizes.S if queries is None else queries)
    if isinstance(given["query_offset"], Tensor):
        return _per_sample(given["query_offset"], query)
    return options.offset if options.offsets is None else _per_sample(options.offsets, query)


def _outside(out: Tensor, order: Order) -> Tensor:
    """[B, H, S, F] in the caller's order."""
    if order.form == "bhsd":
        return out
    out = out.transpose(1, 2)
    return out.flatten(2) if order.form == "flat" else out.contiguous()
