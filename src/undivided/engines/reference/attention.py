"""attention: each query's mean of the values, weighted by how well their keys fit the query.

    Z = softcap(Q·Kᵀ·scale) + bias           scores; softcap(x) = c·tanh(x/c)
    P = exp(Z − lse) where allowed, else 0   weights; lse = log(Σ_allowed exp(Z) + exp(sink))
    O = (P∘kept)·V                           kept is 0 or 1/(1 − rate) with dropout, else 1

Backward, from the last line to the first:

    dV = (P∘kept)ᵀ·dO
    dP = (dO·Vᵀ)∘kept
    dZ = P∘(dP − Δ)                          Δ = rowsum(P∘dP) = rowsum(dO∘O)
    dbias = dZ, summed over what the bias was the same for
    dsink = −Σ exp(sink − lse)·Δ             a sink takes weight and gives nothing back
    dQ = dZ∘softcap′·K·scale                 softcap′ = 1 − tanh²
    dK = (dZ∘softcap′)ᵀ·Q·scale

What is not allowed is left out by selection, never by a product with 0: NaN or infinity in a key,
a value, a query or in dO reaches only what may attend to it. A row that is allowed nothing gives 0
and gets no gradient.
"""

# B batch, H heads, G heads that share a key/value head, S queries, T keys, D width of queries and
# keys, F width of values
#
# query          [B, H, S, D]        key    [B, H/G, T, D]
# out            [B, H, S, F]        value  [B, H/G, T, F]
# weights, kept  [B, H, S, T]        sinks  [H]
# lse            [B, H, S]           bias   anything that broadcasts to [B, H, S, T]

from __future__ import annotations

from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from undivided._operator import positions
from undivided.engines.reference.allowed import allowed_cells, per_sample
from undivided.engines.reference.dropout import kept_cells

__all__ = ["Options", "attention", "attention_backward", "backward", "forward", "weights"]


class Options(TypedDict, total=False):
    """What attention and its backward take by name; all of it composes."""

    mask: Any  # bool, broadcasts to [B, H, S, T], or an object of `undivided.masks`
    bias: np.ndarray | None  # added to the scores; −∞ forbids
    causal: bool | str  # keys after the query are not allowed; the corner: see allowed.py
    window: tuple[int | None, int | None] | None  # keys before and after; −1 or None: all
    query_lengths: Any  # [B]: queries from there on are padding and give 0
    key_lengths: Any  # [B]: keys from there on are padding
    query_offset: Any  # a whole number, or [B]: where query 0 stands among the keys
    scale: float | None  # 1/√D unless given
    softcap: float | None  # scores stay between −softcap and softcap
    sinks: np.ndarray | None  # [H]: the score of one more key, which has no value
    dropout: float  # the share of weights that is dropped
    seed: int | None  # which: see dropout.py
    kept: np.ndarray | None  # which, said cell by cell: [B, H, S, T]


class Look(NamedTuple):
    """How much each query takes from each key, and what backward needs of the way there."""

    dots: np.ndarray  # [B, H, S, T], Q·Kᵀ
    z: np.ndarray  # [B, H, S, T], also where it is not allowed
    allowed: np.ndarray  # [B, H, S, T] bool
    p: np.ndarray  # [B, H, S, T]
    kept: np.ndarray  # [B, H, S, T]
    sunk: np.ndarray  # [B, H, S, 1], the weight that the sink takes
    lse: np.ndarray  # [B, H, S, 1]
    slope: np.ndarray | float  # [B, H, S, T], softcap′·scale


def look(
    query: np.ndarray,
    key: np.ndarray,
    bias: np.ndarray | None = None,
    query_lengths: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: np.ndarray | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    kept: np.ndarray | None = None,
    **which: Any,
) -> Look:
    (B, H, S, D), T, dtype = query.shape, key.shape[2], query.dtype
    scale = max(D, 1) ** -0.5 if scale is None else float(scale)
    dots = query @ transpose(spread(key, H))
    z, slope = dots * scale, scale
    if softcap is not None:
        cap = float(softcap)
        bent = np.tanh(z / cap)
        z, slope = bent * cap, (1 - bent * bent) * scale
    allowed = allowed_cells((B, H, S, T), query_lengths=query_lengths, **which)
    if bias is not None:
        added = np.asarray(bias, dtype)
        z, allowed = z + added, allowed & (added != -np.inf)
    sink = np.asarray(np.full(H, -np.inf) if sinks is None else sinks, dtype)[:, None, None]
    padding = np.arange(S)[:, None] >= per_sample(query_lengths, S)
    p, sunk, lse = softmax(np.where(allowed, z, -np.inf), np.where(padding, -np.inf, sink))
    kept = kept_cells((B, H, S, T), dropout, seed) if kept is None else kept
    kept = kept.astype(dtype) / (1 - float(dropout))
    p = np.where(allowed, p, 0)
    return Look(dots=dots, z=z, allowed=allowed, p=p, kept=kept, sunk=sunk, lse=lse, slope=slope)


class Descent(NamedTuple):
    """What backward finds on its way."""

    dv: np.ndarray  # [B, H/G, T, F]
    dp: np.ndarray  # [B, H, S, T]
    dz: np.ndarray  # [B, H, S, T]
    dbias: np.ndarray | None
    dsinks: np.ndarray | None
    dq: np.ndarray  # [B, H, S, D]
    dk: np.ndarray  # [B, H/G, T, D]


@np.errstate(divide="ignore")  # log(0) = −∞: the sum of a row that is allowed nothing
def softmax(z: np.ndarray, sink: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """exp(z − lse), exp(sink − lse) and lse, the log of the sum of all exp of a row.

    Taking the largest score away first changes nothing and keeps exp from overflowing.
    """
    lowest = np.finfo(z.dtype).min  # and not −∞, from which −∞ cannot be taken away
    largest = np.maximum(z.max(axis=-1, keepdims=True, initial=lowest), sink)
    exponentials, of_sink = np.exp(z - largest), np.exp(sink - largest)
    total = exponentials.sum(axis=-1, keepdims=True) + of_sink
    divisor = np.maximum(total, 1)  # the largest alone gives 1, nothing at all gives 0
    return exponentials / divisor, of_sink / divisor, largest + np.log(total)


@np.errstate(invalid="ignore")  # inf − inf and inf·0 are NaN, and that is what they should be
def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    *,
    return_weights: bool = False,
    return_lse: bool = False,
    **options: Unpack[Options],
) -> Any:
    """out, or (out, weights without dropout, lse) of which the last two come when asked for."""
    at = look(query, key, **options)
    out = product(at.p * at.kept, at.allowed, spread(value, query.shape[1]))
    asked = [at.p] * return_weights + [at.lse[..., 0]] * return_lse
    return (out, *asked) if asked else out


@np.errstate(invalid="ignore")
def attention_backward(
    d_out: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    **options: Unpack[Options],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """The gradients of query, key, value, bias and sinks; None for what was not given."""
    d = descend(look(query, key, **options), d_out, query, key, value, **options)
    return d.dq, d.dk, d.dv, d.dbias, d.dsinks


def descend(
    at: Look,
    d_out: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    **options: Unpack[Options],
) -> Descent:
    """The way back, from the last line to the first, with what lies between."""
    H, bias, sinks = query.shape[1], options.get("bias"), options.get("sinks")

    # out = (p∘kept)·v
    dv = product(transpose(at.p * at.kept), transpose(at.allowed), d_out)
    dp = d_out @ transpose(spread(value, H)) * at.kept

    # p = softmax(z): raising one score lowers all the weights of its row, and that of its sink.
    delta = np.where(at.allowed, at.p * dp, 0).sum(axis=-1, keepdims=True)
    dz = np.where(at.allowed, at.p * (dp - delta), 0)
    dbias = None if bias is None else summed_to(dz, np.shape(bias))
    dsinks = None if sinks is None else -(at.sunk * delta).sum(axis=(0, 2, 3))

    # z = softcap(q·kᵀ·scale) + bias
    ddots = np.where(at.allowed, dz * at.slope, 0)
    dq = product(ddots, at.allowed, spread(key, H))
    dk = product(transpose(ddots), transpose(at.allowed), query)
    dk, dv = gathered(dk, key.shape[1]), gathered(dv, key.shape[1])
    return Descent(dv=dv, dp=dp, dz=dz, dbias=dbias, dsinks=dsinks, dq=dq, dk=dk)


def product(cells: np.ndarray, allowed: np.ndarray, x: np.ndarray) -> np.ndarray:
    """cells·x over what is allowed: `cells` is 0 elsewhere, and 0·NaN would not be."""
    finite = np.isfinite(x)
    clean = np.zeros_like(x)
    np.copyto(clean, x, where=finite)
    y = cells @ clean
    for t in np.flatnonzero(~finite.all(axis=(0, 1, 3))):
        reached = allowed[..., t, None] & ~finite[:, :, t, None]
        y = y + np.where(reached, cells[..., t, None] * x[:, :, t, None], 0)
    return y


def transpose(x: np.ndarray) -> np.ndarray:
    """The last two axes swapped."""
    return x.swapaxes(-1, -2)


def spread(x: np.ndarray, heads: int) -> np.ndarray:
    """[B, H/G, T, D] → [B, H, T, D]: each head again for every head that shares it."""
    return x.repeat(heads // x.shape[1], axis=1)


def gathered(dx: np.ndarray, heads: int) -> np.ndarray:
    """[B, H, T, D] → [B, H/G, T, D], the way back: what was used G times gets a sum."""
    B, H, T, D = dx.shape
    return dx.reshape(B, heads, H // heads, T, D).sum(axis=2)


def summed_to(dx: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The sum over the axes along which something of this shape was the same."""
    aligned = (1,) * (dx.ndim - len(shape)) + shape
    same = tuple(axis for axis, n in enumerate(aligned) if n == 1)
    return dx.sum(axis=same).reshape(shape)


# As the plan has it: heads side by side in the last axis, and scores that may know the distance.


class Described(TypedDict, total=False):
    """What an attention operation of a plan says."""

    heads: int
    key_heads: int | None  # fewer than heads: each serves several
    scale: float
    softcap: float | None
    causal: bool
    window: tuple[int | None, int | None] | None
    pattern: Any  # an object of `undivided.masks`
    alibi: bool  # −slope·distance is added to the scores
    dropout: float  # the share of weights that is left out
    kept: np.ndarray | None  # which are not, [B, H, S, T]; without it nothing is left out
    max_distance: int  # beyond which a `relative` table tells distances no more apart
    offset: int  # where query 0 stands among the keys; 0 unless given


def split(x: np.ndarray, heads: int) -> np.ndarray:
    """[B, S, H·D] → [B, H, S, D]."""
    B, S, E = x.shape
    return x.reshape(B, S, heads, E // heads).transpose(0, 2, 1, 3)


def merge(x: np.ndarray) -> np.ndarray:
    """[B, H, S, D] → [B, S, H·D], the way back."""
    B, H, S, D = x.shape
    return x.transpose(0, 2, 1, 3).reshape(B, S, H * D)


def weights(
    query: np.ndarray,
    key: np.ndarray,
    relative: np.ndarray | None = None,
    **layer: Unpack[Described],
) -> np.ndarray:
    """P: how much each query takes from each key."""
    q, k = heads_of(query, key, **layer)
    return look(q, k, **options_of(q, k, relative, **layer)).p


def forward(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    relative: np.ndarray | None = None,
    **layer: Unpack[Described],
) -> np.ndarray:
    q, k, v = heads_of(query, key, value, **layer)
    return merge(attention(q, k, v, **options_of(q, k, relative, **layer)))


def backward(
    dy: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    relative: np.ndarray | None = None,
    **layer: Unpack[Described],
) -> tuple[np.ndarray, ...]:
    d_out, q, k, v = (split(dy, layer["heads"]), *heads_of(query, key, value, **layer))
    options = options_of(q, k, relative, **layer)
    dq, dk, dv, dbias, _ = attention_backward(d_out, q, k, v, **options)
    dinputs = merge(dq), merge(dk), merge(dv)
    if relative is None:
        return dinputs
    assert dbias is not None
    return *dinputs, drelative_of(dbias, relative, **layer)


def heads_of(query: np.ndarray, *keys: np.ndarray, **layer: Any) -> tuple[np.ndarray, ...]:
    """The heads of queries, and of keys and values, which may have fewer."""
    key_heads = layer.get("key_heads") or layer["heads"]
    return split(query, layer["heads"]), *(split(x, key_heads) for x in keys)


def options_of(
    q: np.ndarray, k: np.ndarray, relative: np.ndarray | None, **layer: Any
) -> dict[str, Any]:
    """What the definition above takes by name."""
    S, T, offset = q.shape[2], k.shape[2], layer.get("offset", 0)
    chosen = {name: layer.get(name) for name in ("scale", "softcap", "window")}
    chosen |= {"causal": layer.get("causal", False), "query_offset": offset}
    if layer.get("pattern") is not None:
        chosen["mask"] = layer["pattern"].to_array(offset + S, T)[offset:]
    if layer.get("kept") is not None:
        chosen |= {"dropout": layer["dropout"], "kept": layer["kept"]}
    if layer.get("alibi"):
        chosen["bias"] = positions.alibi(
            q.shape[1], S, T, offset=offset, bidirectional=True, dtype=q.dtype
        )
    elif relative is not None:
        chosen["bias"] = relative.T[:, buckets_of(relative, S, T, **layer)][None]
    return chosen


def buckets_of(relative: np.ndarray, S: int, T: int, **layer: Any) -> np.ndarray:
    """[S, T]: which row of the table `relative` [buckets, H] belongs to a distance."""
    return positions.t5_buckets(
        S,
        T,
        buckets=len(relative),
        max_distance=layer["max_distance"],
        bidirectional=not layer.get("causal", False),
        offset=layer.get("offset", 0),
    )


def drelative_of(dbias: np.ndarray, relative: np.ndarray, **layer: Any) -> np.ndarray:
    """Each number of the table was added to many scores: its gradient is the sum of theirs."""
    index = buckets_of(relative, *dbias.shape[2:], **layer)
    drelative = np.zeros_like(relative)
    np.add.at(drelative, index, dbias[0].transpose(1, 2, 0))
    return drelative
