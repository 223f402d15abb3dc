"""Attention once more and otherwise: cell by cell where it may attend, PyTorch for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from undivided.training.generators import philox4x32

__all__ = [
    "allowed_by_cell",
    "attention_by_row",
    "kept_by_cell",
    "torch_attention",
    "torch_layer",
]


def allowed_by_cell(shape: tuple[int, ...], **options: Any) -> np.ndarray:
    """[B, H, S, T]: may query i of head h of sample b attend to key j?"""
    B, _, S, T = shape
    mask = options.get("mask")
    mask = np.broadcast_to(True if mask is None else mask, shape)
    bias = options.get("bias")
    bias = np.broadcast_to(0.0 if bias is None else np.asarray(bias), shape)
    allowed = np.zeros(shape, bool)
    for b in range(B):
        queries = _of_sample(options.get("query_lengths"), b, S)
        keys = _of_sample(options.get("key_lengths"), b, T)
        offset = _of_sample(options.get("query_offset"), b, 0)
        causal = options.get("causal", False)
        if causal == "bottom_right":
            offset = keys - queries
        left, right = options.get("window") or (None, None)
        for i in range(min(queries, S)):
            for j in range(min(keys, T)):
                behind = i + offset - j
                if causal and behind < 0:
                    continue
                if left not in (None, -1) and behind > left:
                    continue
                if right not in (None, -1) and -behind > right:
                    continue
                allowed[b, :, i, j] = mask[b, :, i, j] & (bias[b, :, i, j] != -np.inf)
    return allowed


def _of_sample(numbers: Any, b: int, otherwise: int) -> int:
    if numbers is None:
        return otherwise
    return int(numbers) if np.ndim(numbers) == 0 else int(numbers[b])


def kept_by_cell(shape: tuple[int, ...], rate: float, seed: int | None) -> np.ndarray:
    kept = np.ones(shape, bool)
    if not rate:
        return kept
    assert seed is not None
    B, H, S, T = shape
    for b, h, i, j in np.ndindex(B, H, S, T):
        counter = [j // 64 * 16 + j % 16, i, b * H + h, 0x61747465]
        key = (seed % 2**32, seed // 2**32)
        words = philox4x32(np.array([counter], np.uint32), key)[0]
        kept[b, h, i, j] = int(words[j % 64 // 16]) >= int(rate * 2**32)
    return kept


@np.errstate(invalid="ignore")
def attention_by_row(
    d_out: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray,
    allowed: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """out, dq, dk, dv and dbias, row by row, of the keys that a row may attend to and no other.

    Where nothing else is touched, nothing that is not finite can come from there.
    """
    out = np.zeros_like(d_out)
    dq, dk, dv, dbias = (np.zeros_like(x) for x in (query, key, value, bias))
    scale = query.shape[-1] ** -0.5
    for b, h, i in np.ndindex(query.shape[:3]):
        to = np.flatnonzero(allowed[b, h, i])
        if not len(to):
            continue
        k, v = key[b, h, to], value[b, h, to]
        z = (query[b, h, i] * k).sum(axis=1) * scale + bias[b, h, i, to]
        e = np.exp(z - z.max())
        p = e / e.sum()
        dp = (d_out[b, h, i] * v).sum(axis=1)
        dz = p * (dp - (p * dp).sum())
        out[b, h, i] = (p[:, None] * v).sum(axis=0)
        dv[b, h, to] += p[:, None] * d_out[b, h, i]
        dq[b, h, i] = (dz[:, None] * k).sum(axis=0) * scale
        dk[b, h, to] += dz[:, None] * query[b, h, i] * scale
        dbias[b, h, i, to] = dz
    return out, dq, dk, dv, dbias


def torch_attention(query: Any, key: Any, value: Any, **options: Any) -> Any:
    """out, of tensors and differentiable, out of PyTorch's smallest parts."""
    import torch

    B, H, S, D = query.shape
    T = key.shape[2]
    key, value = (x.repeat_interleave(H // x.shape[1], dim=1) for x in (key, value))
    scale = options.get("scale")
    scores = query @ key.mT * (max(D, 1) ** -0.5 if scale is None else scale)
    if softcap := options.get("softcap"):
        scores = softcap * torch.tanh(scores / softcap)
    bias = options.get("bias")
    if bias is not None:
        scores = scores + bias
    plain = {**options, "bias": None if bias is None else bias.detach().numpy()}
    allowed = torch.tensor(allowed_by_cell((B, H, S, T), **plain))
    scores = scores.masked_fill(~allowed, -torch.inf)
    sinks = options.get("sinks")
    sinks = torch.full((H,), -torch.inf, dtype=query.dtype) if sinks is None else sinks
    scores = torch.cat([scores, sinks.view(1, H, 1, 1).expand(B, H, S, 1)], dim=-1)
    empty = (scores == -torch.inf).all(dim=-1, keepdim=True)
    weights = scores.masked_fill(empty, 0.0).softmax(dim=-1)[..., :T].masked_fill(empty, 0.0)
    rate = options.get("dropout", 0.0)
    kept = options.get("kept")
    if kept is None:
        kept = torch.tensor(kept_by_cell((B, H, S, T), rate, options.get("seed")))
    return (weights * kept / (1 - rate)) @ value


def torch_layer(
    query: Any, key: Any, value: Any, table: Any = None, *, heads: int, **options: Any
) -> Any:
    """As a plan has it: heads side by side, scores that know the distance by rule or table."""
    import torch

    key_heads = options.pop("key_heads", None) or heads
    q, k, v = (
        x.unflatten(-1, (number, -1)).transpose(1, 2)
        for x, number in ((query, heads), (key, key_heads), (value, key_heads))
    )
    S, T, offset = q.shape[2], k.shape[2], options.pop("offset", 0)
    options["query_offset"] = offset
    i, j = torch.arange(offset, offset + S)[:, None], torch.arange(T)[None, :]
    if options.pop("alibi", False):  # heads are a power of two here
        slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1, dtype=q.dtype) / heads)
        options["bias"] = -slopes[:, None, None] * (i - j).abs()
    if table is not None:
        far, causal = options.pop("max_distance"), bool(options.get("causal"))
        ahead = (j - i).tolist()
        buckets = [[_bucket(n, len(table), far, causal) for n in row] for row in ahead]
        options["bias"] = table[torch.tensor(buckets)].permute(2, 0, 1)
    if (pattern := options.pop("pattern", None)) is not None:
        options["mask"] = pattern.sized(offset + S, T).allows(i.numpy(), j.numpy())
    if options.get("kept") is None:
        options.pop("dropout", None)
    return torch_attention(q, k, v, **options).transpose(1, 2).flatten(2)


def _bucket(ahead: int, count: int, far: int, causal: bool) -> int:
    """T5's bucket of a key so far ahead of its query: near ones singly, far ones by logarithm."""
    first, distance = 0, max(-ahead, 0)
    if not causal:
        count //= 2
        first, distance = (count if ahead > 0 else 0), abs(ahead)
    singly = count // 2
    if distance < singly:
        return first + distance
    share = np.log(distance / singly) / np.log(far / singly)
    return first + min(count - 1, singly + int(share * (count - singly)))


def torch_linear_layer(
    query: Any, key: Any, value: Any, *, heads: int, key_heads: int | None = None, **options: Any
) -> Any:
    """As a plan has it: heads side by side."""
    q, k, v = (
        x.unflatten(-1, (number, x.shape[-1] // number)).transpose(1, 2)
        for x, number in ((query, heads), (key, key_heads or heads), (value, key_heads or heads))
    )
    return torch_linear_attention(q, k, v, **options).transpose(1, 2).flatten(2)


def torch_linear_attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    feature_map: str = "elu",
    causal: bool = False,
    key_lengths: Any = None,
) -> Any:
    """The running sums of its recurrence, token by token where it is causal."""
    import torch

    F = torch.nn.functional
    phi = {"elu": lambda x: F.elu(x) + 1, "relu": F.relu, "identity": lambda x: x}[feature_map]
    groups = query.shape[1] // key.shape[1]
    k, v = (x.repeat_interleave(groups, dim=1) for x in (phi(key), value))
    if key_lengths is not None:
        lengths = torch.as_tensor(key_lengths)[:, None, None, None]
        k = k * (torch.arange(k.shape[2])[:, None] < lengths)
    states = k[..., :, None] * torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)[..., None, :]
    states = states.cumsum(dim=2) if causal else states.sum(dim=2, keepdim=True)
    y = (phi(query)[..., None, :] @ states)[..., 0, :]
    mean, n = y[..., :-1], y[..., -1:]
    return torch.where(n == 0, 0, mean / torch.where(n == 0, 1, n))
