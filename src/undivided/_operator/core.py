"""The attention operator on NumPy arrays: shapes in order, options checked, native code called.

Everything here has four axes, [B, H, S, D], with any strides. `forward` keeps what `backward`
needs: the log-sum-exp of each row and, while they are few, the probabilities themselves; else they
are computed again. Where that changes is measured (benchmarks/LOG.md), and changes no meaning.
"""

# B batch, H heads, Hkv key/value heads, S queries, T keys, D width of queries and keys, F of values

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from undivided import _native
from undivided._operator.options import UNBOUNDED, Options, Sizes
from undivided.engines.native.machine import instruction_set, thread_count

__all__ = [
    "WHOLE_KEYS",
    "Forward",
    "Packing",
    "backward",
    "forward",
    "kept_shape",
    "sizes_of",
    "weights",
]

WHOLE_KEYS = 512
"""Up to so many keys rows of probabilities are whole; beyond, keys are taken in tiles."""
KEPT_BYTES = 1 << 25
"""Up to so many bytes whole rows are kept for backward; more are sooner computed again."""
PAD = 16
TILE = 64
MOST_COPIES = 8
"""Into how many items of work backward is cut where sums are shared, at least."""
COPY_BYTES = 1 << 28
"""Copies of a shared bias' gradient may take about this much memory."""
SMALL = 300_000
"""Calls of fewer multiply-adds are not worth waking another thread for."""

FORWARD, DELTA, BACKWARD, WEIGHTS = range(4)


@dataclass(frozen=True, slots=True)
class Packing:
    """Sequences end to end in one row axis: where each begins, and how long the longest are."""

    query_start: np.ndarray
    key_start: np.ndarray
    longest_query: int
    longest_key: int


class Forward(NamedTuple):
    """What forward computed. `out` has its widths as the caller sees them."""

    out: np.ndarray  # [B, H, S, F]
    lse: np.ndarray | None  # [B, H, S]
    probabilities: np.ndarray | None  # [B, H, S, T padded]


def sizes_of(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, packing: Packing | None = None
) -> Sizes:
    B, H, S, D = query.shape
    _, Hkv, T, _ = key.shape
    if packing is not None:
        B, S, T = len(packing.query_start), packing.longest_query, packing.longest_key
    return Sizes(B, H, Hkv, S, T, D, value.shape[3])


def streams(sizes: Sizes, options: Options, dtype: Any) -> bool:
    """Whether keys are taken in tiles, and backward works the probabilities out again."""
    plain = not options.dropout and not options.softcap and dtype == np.float32
    return sizes.T > WHOLE_KEYS or not plain


def kept_shape(
    sizes: Sizes, options: Options, dtype: Any, asked: bool = False
) -> tuple[int, ...] | None:
    """Of the probabilities that forward keeps for backward; asked: whatever they take."""
    rows = (sizes.B, sizes.H, sizes.S)
    if sizes.T == 0 or math.prod(rows) * sizes.F == 0 or streams(sizes, options, dtype):
        return None
    shape = (*rows, _padded(sizes.T, PAD))
    return shape if asked or math.prod(shape) * dtype.itemsize <= KEPT_BYTES else None


def forward(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray | None,
    sinks: np.ndarray | None,
    options: Options,
    *,
    keep: bool,
    threads: int | None,
    out: np.ndarray | None = None,
    lse: bool = False,
    probabilities: bool = False,
    packing: Packing | None = None,
) -> Forward:
    """keep: what backward needs. out: where to write, else a new array."""
    sizes = sizes_of(query, key, value, packing)
    dtype = query.dtype
    tiled = streams(sizes, options, dtype)
    if out is None:
        out = empty((*query.shape[:3], sizes.F), dtype)
    rows = (sizes.B, sizes.H, sizes.S)
    log_sums = np.empty(rows, dtype) if keep or lse or (probabilities and tiled) else None
    if sizes.F == 0:  # weights and log-sum-exp are still those of queries and keys
        value, to = (np.zeros((*x.shape[:3], PAD), dtype) for x in (value, out))
        done = forward(
            *(query, key, value, bias, sinks, options),
            keep=keep,
            threads=threads,
            out=to,
            lse=lse,
            probabilities=probabilities,
            packing=packing,
        )
        return done._replace(out=out)
    if out.size == 0 or sizes.T == 0:
        return _nothing(out, log_sums, sinks, options, sizes, dtype)
    kept = None
    if keep or probabilities:
        shape = kept_shape(sizes, options, dtype, probabilities)
        kept = None if shape is None else empty(shape, dtype)
    to = out if _fits(out) else np.empty((*out.shape[:3], _padded(sizes.F, PAD)), dtype)
    _call(dtype)(
        instruction_set(),
        FORWARD,
        _threads(threads, sizes),
        sizes.S,
        sizes.T,
        _wide(query),
        _wide(key),
        _wide(value),
        to,
        log_sums,
        kept,
        **_rules(options, sizes, bias, sinks, packing),
        streams=tiled,
    )
    if to is not out:
        out[...] = to[..., : sizes.F]
    return Forward(out, log_sums, kept)


def weights(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray | None,
    sinks: np.ndarray | None,
    options: Options,
    done: Forward,
    heads: np.ndarray,
    rows: np.ndarray,
    *,
    threads: int | None,
) -> np.ndarray:
    """P of some heads and rows, [B, heads, rows, T], from what forward kept of them."""
    sizes = sizes_of(query, key, value)
    if done.probabilities is not None:
        whole = done.probabilities[..., : sizes.T]
        if np.array_equal(heads, range(sizes.H)) and np.array_equal(rows, range(sizes.S)):
            return whole
        return whole[:, heads[:, None], rows[None, :]]
    # What lies beyond a sample's keys is not written.
    make = empty if options.key_lengths is None else zeros
    found = make((sizes.B, len(heads), len(rows), sizes.T), query.dtype)
    if found.size == 0:
        return found
    _call(query.dtype)(
        instruction_set(),
        WEIGHTS,
        _threads(threads, sizes),
        sizes.S,
        sizes.T,
        _wide(query),
        _wide(key),
        _wide(value),
        lse=done.lse,
        weights=found,
        weight_heads=heads,
        weight_rows=rows,
        **_rules(options, sizes, bias, sinks, None),
    )
    return found


def backward(
    d_out: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    bias: np.ndarray | None,
    sinks: np.ndarray | None,
    done: Forward,
    options: Options,
    *,
    threads: int | None,
    needs: tuple[bool, bool, bool, bool, bool] = (True,) * 5,
    packing: Packing | None = None,
) -> tuple[np.ndarray | None, ...]:
    """Gradients of query, key, value, bias and sinks; None for what is not there or not needed."""
    sizes, dtype = sizes_of(query, key, value, packing), query.dtype
    wants_bias, wants_sinks = needs[3] and bias is not None, needs[4] and sinks is not None
    if d_out.size == 0 or sizes.T == 0:
        given = (query, key, value, bias, sinks)
        return tuple(
            np.zeros(x.shape, dtype) if x is not None and wanted else None
            for x, wanted in zip(given, needs, strict=True)
        )
    tiled = streams(sizes, options, dtype)
    assert done.lse is not None
    call = _call(dtype)
    cut = _Cut(sizes, bias.shape if wants_bias and bias is not None else None, tiled, dtype)
    shared: dict[str, Any] = {
        **_rules(options, sizes, bias, sinks, packing),
        "lse": done.lse,
        "d_out": _wide(d_out),
    }
    inputs = (sizes.S, sizes.T, _wide(query), _wide(key), _wide(value))
    workers = _threads(threads, sizes)

    delta = None
    if tiled or wants_sinks:
        delta = np.zeros(done.lse.shape, dtype)
        given_out = _wide(done.out)
        call(instruction_set(), DELTA, workers, *inputs, given_out=given_out, delta=delta, **shared)

    ragged = options.query_lengths is not None or options.key_lengths is not None
    make = zeros if ragged else empty
    dq = dk = dv = None
    if needs[0]:
        dq = (zeros if tiled else make)((cut.parts, *query.shape[:3], _padded(sizes.D, PAD)), dtype)
    if needs[1]:
        dk = make((*key.shape[:3], _padded(sizes.D, PAD)), dtype)
    if needs[2]:
        dv = make((*value.shape[:3], _padded(sizes.F, PAD)), dtype)
    copies = cut.bias_copies()
    if dq is not None or dk is not None or dv is not None or copies is not None:
        call(
            instruction_set(),
            BACKWARD,
            workers,
            *inputs,
            probabilities=done.probabilities,
            d_query=None if dq is None else dq[0],
            d_key=dk,
            d_value=dv,
            d_bias=None if copies is None else copies[0, 0],
            delta=delta,
            streams=tiled,
            slices=cut.slices,
            head_units=cut.head_units,
            parts=cut.parts,
            d_query_part=0 if dq is None else dq.strides[0] // dq.itemsize,
            d_bias_slice=cut.bias_step(copies, 0),
            d_bias_part=cut.bias_step(copies, 1),
            **shared,
        )
    d_query = None if dq is None else dq[0] if cut.parts == 1 else dq.sum(axis=0)
    return (
        _narrow(d_query, sizes.D),
        _narrow(dk, sizes.D),
        _narrow(dv, sizes.F),
        None if copies is None else cut.summed(copies),
        _sink_gradient(sinks, done.lse, delta) if wants_sinks else None,
    )


class _Cut:
    """How backward is cut into items that share no sum, by the shapes alone.

    A bias that is the same for all samples sums over them: a few slices of the samples have a
    copy each. One that is the same for all heads keeps them in one item. Where that leaves few
    items the keys are cut into parts, each with a dQ of its own.
    """

    def __init__(
        self, sizes: Sizes, bias: tuple[int, ...] | None, tiled: bool, dtype: np.dtype[Any]
    ) -> None:
        self.sizes, self.bias, self.dtype = sizes, bias, dtype
        self.one_for_all_samples = bias is not None and bias[0] == 1 and sizes.B > 1
        one_for_all_heads = bias is not None and bias[1] == 1 and sizes.H > 1
        self.head_units = 1 if one_for_all_heads else sizes.Hkv
        self.slices = sizes.B
        if self.one_for_all_samples:
            fit = max(1, COPY_BYTES // max(1, self._copy_size() * dtype.itemsize))
            self.slices = min(sizes.B, MOST_COPIES, fit)
        items = self.slices * self.head_units
        self.parts = 1
        if tiled:
            self.parts = min(-(-sizes.T // TILE), -(-MOST_COPIES // items))

    def _copy_shape(self) -> tuple[int, ...]:
        assert self.bias is not None
        keys = 1 if self.bias[3] == 1 else _padded(self.sizes.T, TILE)
        return (*self.bias[:3], keys)

    def _copy_size(self) -> int:
        return int(np.prod(self._copy_shape(), dtype=np.int64))

    def bias_copies(self) -> np.ndarray | None:
        """[slices, parts, *bias], rows padded to whole tiles; axes that need no copies are 1."""
        if self.bias is None:
            return None
        slices = self.slices if self.one_for_all_samples else 1
        parts = self.parts if self.bias[3] == 1 else 1
        return np.zeros((slices, parts, *self._copy_shape()), self.dtype)

    @staticmethod
    def bias_step(copies: np.ndarray | None, axis: int) -> int:
        if copies is None or copies.shape[axis] == 1:
            return 0
        return copies.strides[axis] // copies.itemsize

    def summed(self, copies: np.ndarray) -> np.ndarray:
        assert self.bias is not None
        total = copies[0, 0] if copies.shape[:2] == (1, 1) else copies.sum(axis=(0, 1))
        return np.ascontiguousarray(total[..., : self.bias[3]])


def _sink_gradient(sinks: Any, lse: np.ndarray, delta: Any) -> np.ndarray:
    """−Σ exp(sink − lse)·Δ over samples and rows; padding has an lse of −∞."""
    real = np.isfinite(lse) | np.isnan(lse)
    away = np.where(real, lse, np.inf).astype(np.float64)
    taken = np.exp(np.asarray(sinks, np.float64)[:, None] - away)
    total = np.where(real, taken * delta, 0).sum(axis=(0, 2))
    return (-total).astype(lse.dtype)


def _nothing(
    out: np.ndarray,
    lse: np.ndarray | None,
    sinks: np.ndarray | None,
    options: Options,
    sizes: Sizes,
    dtype: Any,
) -> Forward:
    """No keys, or no rows at all: zeros, and what a sink alone makes of a row."""
    out[...] = 0
    if lse is not None:
        lse[...] = -np.inf if sinks is None else np.asarray(sinks)[:, None]
        if options.query_lengths is not None:
            padding = np.arange(sizes.S) >= options.query_lengths[:, None, None]
            np.copyto(lse, -np.inf, where=padding)
    kept = np.zeros((sizes.B, sizes.H, sizes.S, 0), dtype) if sizes.T == 0 else None
    return Forward(out, lse, kept)


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array that holds anything, of memory that is used again once the array is gone."""
    return _native.recycled(shape) if dtype == np.float32 else np.empty(shape, dtype)


def zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    found = empty(shape, dtype)
    found.fill(0)
    return found


def _call(dtype: Any) -> Any:
    return _native.attend_float64 if dtype == np.float64 else _native.attend_float32


def _threads(threads: int | None, sizes: Sizes) -> int:
    work = sizes.B * sizes.H * sizes.S * sizes.T * (sizes.D + sizes.F)
    return 1 if work < SMALL and threads is None else thread_count(threads)


def _padded(count: int, to: int) -> int:
    return -(-count // to) * to


def _fits(x: np.ndarray) -> bool:
    """Whether kernels can read and write it where it is: whole vectors, side by side."""
    item = x.itemsize
    return (
        x.shape[3] % PAD == 0
        and x.strides[3] == item
        and x.flags.aligned
        and not (x.strides[0] % item or x.strides[1] % item or x.strides[2] % item)
    )


def _wide(x: np.ndarray) -> np.ndarray:
    """x itself if kernels can read it, else a copy whose rows end in zeros."""
    if _fits(x):
        return x
    wide = np.zeros((*x.shape[:3], _padded(x.shape[3], PAD)), x.dtype)
    wide[..., : x.shape[3]] = x
    return wide


def _narrow(x: np.ndarray | None, width: int) -> np.ndarray | None:
    if x is None or x.shape[3] == width:
        return x
    return np.ascontiguousarray(x[..., :width])


def _rules(
    options: Options,
    sizes: Sizes,
    bias: np.ndarray | None,
    sinks: np.ndarray | None,
    packing: Packing | None,
) -> dict[str, Any]:
    """What the native call takes by name; only what is not the default, which keeps calls short."""
    rules: dict[str, Any] = {"scale": options.scale}
    if options.softcap:
        rules["softcap"] = options.softcap
    if options.mask is not None:
        rules["mask"] = options.mask.view(np.uint8)
    if options.blocks is not None:
        blocks = options.blocks.blocks(sizes.S, sizes.T)
        rules["states"] = blocks.states
        rules["patterns"] = blocks.patterns if len(blocks.patterns) else np.zeros((1, 64), "u8")
    if options.query_lengths is not None:
        rules["query_lengths"] = options.query_lengths
    if options.key_lengths is not None:
        rules["key_lengths"] = options.key_lengths
    if options.offsets is not None:
        rules["offsets"] = options.offsets
    elif options.offset:
        rules["offset"] = options.offset
    if options.left < UNBOUNDED:
        rules["left"] = options.left
    if options.right < UNBOUNDED:
        rules["right"] = options.right
    if options.dropout:
        rules["drop_below"] = int(options.dropout * 2**32)
        rules["kept_factor"] = 1.0 / (1.0 - options.dropout)
        rules["seed"] = options.seed
    if bias is not None:
        rules["bias"] = bias
    if sinks is not None:
        rules["sinks"] = sinks
    if packing is not None:
        rules["query_start"] = packing.query_start
        rules["key_start"] = packing.key_start
    return rules
