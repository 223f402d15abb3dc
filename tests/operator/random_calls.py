"""Calls of the operator with any options together, drawn by hypothesis."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from attention_calls import VIEWS, Call
from hypothesis import strategies as st

from undivided import masks
from undivided._operator.masks import Mask
from undivided._operator.options import Sizes

__all__ = ["calls", "mask_objects"]

FEW = (1, 2, 3, 4, 5, 7, 8)
LENGTHS = (*FEW, *FEW, 15, 16, 17, 31, 33, 48, 63, 64, 65, 96, 100, 129, 0)
WIDTHS = (1, 2, 3, 4, 5, 8, 12, 15, 16, 17, 24, 32, 33, 48, 64)
HEADS = ((1, 1), (1, 1), (2, 2), (2, 1), (3, 3), (3, 1), (4, 2), (6, 2))
CELLS = 16_384
"""B·H·S·T at most: the reference has them all."""


def _any_size(mask: Mask) -> Callable[[int, int], Mask]:
    return lambda S, T: mask


@functools.cache
def _each(low: int, high: int, count: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(low, high)] * count)


OPTIONS = (
    *("causal", "causal", "window", "offset", "offsets", "query lengths", "key lengths", "scale"),
    *("softcap", "dropout", "mask", "mask object", "bias", "bias", "−∞", "sinks"),
)
"""What may be said; twice what should be said more often."""
_SETS = np.random.default_rng(1).random((1000, len(OPTIONS))) < 0.22
SETS = st.sampled_from([frozenset(np.array(OPTIONS)[row].tolist()) for row in _SETS])
"""Many together at once: one choice, where a choice for each would take longer than the call."""
CAUSAL = st.sampled_from((True, "top_left", "bottom_right"))
WHOLE, OFFSET = st.integers(0, 70), st.integers(-5, 70)
WINDOWS = st.tuples(*[st.sampled_from((0, 1, 3, 10, 64, -1, None))] * 2)
RULES: st.SearchStrategy[Callable[[int, int], Mask]] = st.one_of(
    st.builds(masks.causal, st.integers(-9, 70)).map(_any_size),
    st.builds(masks.window, WHOLE, WHOLE).map(_any_size),
    st.builds(masks.strided, st.integers(1, 9)).map(_any_size),
    st.builds(masks.block_local, st.integers(1, 70)).map(_any_size),
    st.builds(masks.global_tokens, st.integers(0, 5)).map(_any_size),
    st.builds(masks.random, st.integers(0, 3), st.sampled_from((1, 5, 64)), WHOLE).map(_any_size),
    st.integers(1, 40).map(
        lambda n: (
            lambda S, T: masks.documents([q // n for q in range(S)], [k // n for k in range(T)])
        )
    ),
)
COMPOSED: tuple[Callable[[Mask, Mask], Mask], ...] = (
    lambda a, b: a & b,
    lambda a, b: a | b,
    lambda a, b: a & ~b,
    lambda a, b: ~a | b,
)


@st.composite
def mask_objects(draw: st.DrawFn, S: int, T: int) -> Mask:
    """One rule, or two or three composed."""
    mask = draw(RULES)(S, T)
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        mask = draw(st.sampled_from(COMPOSED))(mask, draw(RULES)(S, T))
    return mask


@st.composite
def grids(draw: st.DrawFn, sizes: Sizes) -> tuple[int, ...]:
    """Any shape that broadcasts to [B, H, S, T]."""
    whole = (sizes.B, sizes.H, sizes.S, sizes.T)
    one = draw(st.integers(0, 15))
    shape = tuple(1 if one >> axis & 1 else n for axis, n in enumerate(whole))
    first = draw(st.integers(0, 4))
    return shape[first:] if all(n == 1 for n in shape[:first]) else shape


@st.composite
def calls(draw: st.DrawFn, dtype: str = "float32", path: str = "kept") -> Call:
    B = draw(st.integers(1, 3))
    H, Hkv = draw(st.sampled_from(HEADS))
    S = draw(st.sampled_from(LENGTHS))
    T = S if draw(st.booleans()) else draw(st.sampled_from(LENGTHS))
    while B * H * S * T > CELLS:
        B, H, Hkv = (B - 1, H, Hkv) if B > 1 else (1, 1, 1)
        if B * H == 1:
            break
    D, F = draw(st.sampled_from(WIDTHS)), draw(st.sampled_from(WIDTHS))
    sizes = Sizes(B, H, Hkv, S, T, D, F)

    chosen = draw(SETS)
    options: dict[str, Any] = {}
    causal = draw(CAUSAL) if "causal" in chosen else False
    if "window" in chosen:
        options["window"] = draw(WINDOWS)
    if "offset" in chosen and causal != "bottom_right":
        options["query_offset"] = draw(OFFSET)
    if "offsets" in chosen and causal != "bottom_right":
        options["query_offset"] = draw(_each(-5, 70, B))
    if S != T and "query_offset" not in options:
        if causal is True:
            causal = "top_left"
        elif not causal and "window" in options:
            options["query_offset"] = draw(OFFSET)
    if causal:
        options["causal"] = causal
    if "query lengths" in chosen:
        options["query_lengths"] = draw(_each(0, S, B))
    if "key lengths" in chosen:
        options["key_lengths"] = draw(_each(0, T, B))
    if "scale" in chosen:
        options["scale"] = draw(st.sampled_from((0.3, 1.0, -0.5, 0.0)))
    if "softcap" in chosen:
        options["softcap"] = draw(st.sampled_from((0.5, 2.0, 30.0)))
    if "dropout" in chosen:
        options["dropout"] = draw(st.sampled_from((0.1, 0.5, 0.9)))
        options["seed"] = draw(st.sampled_from((0, 3, 2**63 + 11)))
    mask: Any = None
    if "mask" in chosen:
        mask = draw(grids(sizes))
    elif "mask object" in chosen:
        mask = draw(mask_objects(S, T))
    bias = draw(grids(sizes)) if "bias" in chosen else None
    return Call(
        sizes,
        dtype,
        path,
        draw(st.sampled_from(("bhsd", "bhsd", "bshd", "flat"))),
        draw(st.sampled_from(("plain", *VIEWS))),
        mask,
        draw(st.sampled_from((0.2, 0.7, 0.95))) if isinstance(mask, tuple) else 0.0,
        bias,
        bias is not None and "−∞" in chosen,
        "sinks" in chosen,
        tuple(options.items()),
        draw(st.sampled_from((1.0, 1.0, 1.5))),
        draw(st.integers(0, 99)),
    )
