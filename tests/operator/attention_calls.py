"""Calls of the operator, described, so that native code and the reference are given the same one.

A `Call` says everything but the numbers: sizes, type, layout, the views in which arrays come, the
options. Its numbers follow from its seed. `Call.check` compares everything that the operator says
(out, weights, lse, all gradients) with the reference, by the rule of `agreement.py`; for float64
the definition is computed in NumPy's long double, and float64 shows what rounding does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from agreement import MANY, NEAR, Result

import undivided
from undivided._operator import core, short
from undivided._operator.masks import Mask
from undivided._operator.options import Sizes
from undivided.engines.reference.attention import (
    gathered,
    look,
    spread,
    summed_to,
    transpose,
)

__all__ = ["PATHS", "UNITS", "Call", "arranged", "back", "on_path", "results_agree"]

# B batch, H heads, Hkv key/value heads, S queries, T keys, D width of queries and keys, F of values

PATHS = {
    "kept": {},
    "again": {"KEPT_BYTES": -1},
    "tiles": {"WHOLE_KEYS": -1},
}
"""What is forced on a call: rows of probabilities kept, computed again, or keys taken in tiles."""

UNITS = {"float32": 2.0**-24, "float64": 2.0**-53}
EXACT = {"float32": np.float64, "float64": np.longdouble}
VIEWS = ("plain", "apart", "backwards", "turned", "room", "unaligned")
NAMES = ("query", "key", "value", "bias", "sinks")


@contextmanager
def on_path(path: str) -> Iterator[None]:
    """Whatever is called inside takes this path."""
    before = {name: getattr(core, name) for name in PATHS[path]}
    short.sizes_of.cache_clear()  # which remembers whom it lets pass
    for name, value in PATHS[path].items():
        setattr(core, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(core, name, value)
        short.sizes_of.cache_clear()


def arranged(x: np.ndarray, layout: str = "bhsd", view: str = "plain") -> np.ndarray:
    """[B, H, S, D] as a caller may have it, NaN between numbers that are not side by side."""
    if layout != "bhsd":
        x = x.swapaxes(1, 2)
    if layout == "flat":
        x = x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])
    x = np.asarray(x, order="C")
    if view == "plain" or x.ndim == 0:
        return x
    if view == "turned":
        return np.asfortranarray(x)
    if view == "backwards":
        back = (slice(None, None, -1),) * x.ndim
        return np.ascontiguousarray(x[back])[back]
    if view == "unaligned":
        bytes_ = np.zeros(x.nbytes + 1, np.uint8)
        odd = bytes_[1:].view(x.dtype).reshape(x.shape)
        odd[...] = x
        return odd
    factor = {"apart": (2,) * x.ndim, "room": (1,) * (x.ndim - 1) + (3,)}[view]
    large = np.full([n * m for n, m in zip(x.shape, factor, strict=True)], np.nan, x.dtype)
    where = (
        tuple(slice(None, None, 2) for _ in x.shape)
        if view == "apart"
        else (..., slice(x.shape[-1], 2 * x.shape[-1]))
    )
    large[where] = x
    return large[where]


def back(x: np.ndarray, layout: str, heads: int) -> np.ndarray:
    """[B, H, S, D] of what came in a caller's layout."""
    if layout == "flat":
        x = x.reshape(*x.shape[:2], heads, x.shape[2] // heads)
    return x if layout == "bhsd" else x.swapaxes(1, 2)


@dataclass(frozen=True)
class Call:
    sizes: Sizes
    dtype: str = "float32"
    path: str = "kept"
    layout: str = "bhsd"
    view: str = "plain"
    mask: Mask | tuple[int, ...] | None = None
    """An object, or the shape of an array."""
    share: float = 0.7
    """Of the cells of a mask array: how many are allowed."""
    bias: tuple[int, ...] | None = None
    """Its shape."""
    forbidding: bool = False
    """Whether the bias is −∞ here and there."""
    sinks: bool = False
    options: tuple[tuple[str, Any], ...] = ()
    gain: float = 1.0
    """How large scores are."""
    seed: int = 0

    @property
    def given(self) -> dict[str, Any]:
        """The options as they are called, but bias and sinks."""
        options = dict(self.options)
        if isinstance(self.mask, tuple):
            random = np.random.default_rng([self.seed, 1])
            options["mask"] = random.random(self.mask) < self.share
        elif self.mask is not None:
            options["mask"] = self.mask
        return options

    def inputs(self, neighbour: int = 0) -> dict[str, np.ndarray]:
        """d_out, query, key, value and what else has a gradient, [B, H, S, D]."""
        B, H, Hkv, S, T, D, F = self.sizes
        random = np.random.default_rng([self.seed, 2])
        near = np.random.default_rng([self.seed, 3, neighbour])
        shapes: dict[str, tuple[int, ...]] = {
            "d_out": (B, H, S, F),
            "query": (B, H, S, D),
            "key": (B, Hkv, T, D),
            "value": (B, Hkv, T, F),
        }
        if self.bias is not None:
            shapes["bias"] = self.bias
        if self.sinks:
            shapes["sinks"] = (H,)
        arrays = {}
        for name, shape in shapes.items():
            x = random.normal(size=shape)
            if name == "query":
                x *= self.gain
            if neighbour:
                x *= 1 + NEAR * near.normal(size=shape)
            arrays[name] = x.astype(self.dtype)
        if self.forbidding:
            at = np.random.default_rng([self.seed, 4]).random(shapes["bias"]) < 0.2
            arrays["bias"] = np.where(at, arrays["bias"].dtype.type(-np.inf), arrays["bias"])
        return arrays

    def by_definition(self, arrays: dict[str, np.ndarray], dtype: Any) -> dict[str, np.ndarray]:
        """What the reference says, computed in that type."""
        d_out, *qkv = (arrays[name].astype(dtype) for name in ("d_out", "query", "key", "value"))
        extra = {name: arrays[name].astype(dtype) for name in NAMES[3:] if name in arrays}
        options = {**self.given, **extra}
        out, p, lse = undivided.reference.attention(
            *qkv, **options, return_weights=True, return_lse=True
        )
        found = undivided.reference.attention_backward(d_out, *qkv, **options)
        gradients = zip(NAMES, found, strict=True)
        said = {f"d_{name}": x for name, x in gradients if x is not None}
        return {"out": out, "weights": p, "lse": lse, **said}

    def by_operator(
        self, arrays: dict[str, np.ndarray], threads: int | None = None
    ) -> dict[str, np.ndarray]:
        """What `undivided.attention` and `attention_vjp` say, in the caller's layout and back."""
        _, H, Hkv, *_ = self.sizes
        qkv = [arranged(arrays[name], self.layout, self.view) for name in ("query", "key", "value")]
        options = {**self.given, "threads": threads}
        options.update({name: arrays[name] for name in NAMES[3:] if name in arrays})
        if "bias" in arrays and self.view != "room":
            options["bias"] = arranged(arrays["bias"], view=self.view)
        if self.layout == "flat":
            options.update(num_heads=H, num_kv_heads=Hkv)
        else:
            options["layout"] = self.layout
        with on_path(self.path):
            out, p, lse = undivided.attention(*qkv, **options, return_weights=True, return_lse=True)
            again, pullback = undivided.attention_vjp(*qkv, **options)
            alone = undivided.attention(*qkv, **options)
            np.testing.assert_array_equal(again, out, "weights asked for change a bit of out")
            np.testing.assert_array_equal(alone, out, "weights asked for change a bit of out")
            found = pullback(arranged(arrays["d_out"], self.layout, self.view))
        said = {"out": back(out, self.layout, H), "weights": p, "lse": lse}
        for name, x in zip(NAMES, found, strict=True):
            if x is not None and name in ("query", "key", "value"):
                x = back(x, self.layout, H if name == "query" else Hkv)
            if x is not None:
                said[f"d_{name}"] = x
        return said

    def check(self, least: int = 1) -> dict[str, Result]:
        """Everything compared; raises where it does not agree."""
        results: dict[str, Result] = {}
        for number in range(MANY):
            arrays = self.inputs(number)
            found = self.by_operator(arrays)
            exact = self.by_definition(arrays, EXACT[self.dtype])
            rounded = self.by_definition(arrays, self.dtype)
            assert list(found) == list(exact)
            for name, x in found.items():
                assert x.dtype == self.dtype, name
                results.setdefault(name, Result(unit=UNITS[self.dtype])).meet(
                    *(_finite(each[name], exact[name]) for each in (found, exact, rounded))
                )
            for name, size in self.left_over(arrays).items():
                results[name].size = max(results[name].size, size)
            if number + 1 >= least and all(result.ratio <= 1 for result in results.values()):
                break
        results_agree(results)
        return results

    def left_over(self, arrays: dict[str, np.ndarray]) -> dict[str, float]:
        """What gradients that are exactly 0 are left over from: the size of the terms of that sum.

        Where a row sees but one key its weight is 1 whatever its score: dZ = P∘(dP − Δ) is 0. So
        is the sum of dZ over a row, which is the gradient of a bias that all keys share: softmax
        does not see what is added to a whole row. What an engine says of these is rounding and
        nothing else, and no result tells how large that may be.
        """
        wide = {name: x.astype(np.float64) for name, x in arrays.items()}
        extra = {name: wide[name] for name in ("bias", "sinks") if name in wide}
        at = look(wide["query"], wide["key"], **self.given, **extra)
        key, value = (abs(spread(wide[name], self.sizes.H)) for name in ("key", "value"))
        terms = at.p * at.kept * (abs(wide["d_out"]) @ transpose(value))
        alone = np.where(at.allowed.sum(axis=-1, keepdims=True) == 1, terms, 0)
        through = abs(alone * at.slope)
        sizes = {
            "d_query": through @ key,
            "d_key": gathered(transpose(through) @ abs(wide["query"]), self.sizes.Hkv),
        }
        if self.bias is not None:
            shared = (1, *self.bias)[-1] == 1
            sizes["d_bias"] = summed_to(terms if shared else alone, self.bias)
        return {name: float(x.max(initial=0)) for name, x in sizes.items()}

    def on(self, path: str) -> Call:
        return replace(self, path=path)


def _finite(x: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The log-sum-exp of a row that may attend to nothing is −∞ everywhere or nowhere."""
    empty = exact == -np.inf
    assert (np.asarray(x)[empty] == -np.inf).all()
    return np.where(empty, 0, x)


def results_agree(results: dict[str, Result]) -> None:
    wrong = {name: round(r.ratio, 2) for name, r in results.items() if not r.ratio <= 1}
    assert not wrong, f"not within what rounding explains: {wrong}"
