"""What is not allowed is not looked at: ten thousand random masks, with NaN and infinity behind."""

from __future__ import annotations

import numpy as np
import pytest
from attention_calls import PATHS, on_path

import undivided

# B batch, H heads, Hkv key/value heads, S queries, T keys, D width of queries and keys, F of values

COUNT = 10_000
POISONS = (np.nan, np.inf, -np.inf)
NAMES = ("query", "key", "value", "bias", "sinks")
SIZES = [(1, 1), (1, 5), (3, 4), (6, 6), (7, 17), (20, 33), (9, 66)]


def drawn(number: int) -> tuple[dict[str, np.ndarray], np.ndarray, bool]:
    """Numbers for a few samples, a mask with rows and columns that nobody may attend to, causal."""
    random = np.random.default_rng([number, 5])
    S, T = SIZES[number % len(SIZES)]
    B, H, Hkv = [(4, 2, 1), (8, 1, 1), (2, 2, 2)][number % 3]
    D, F = [(3, 5), (4, 16), (16, 2)][number // 3 % 3]
    shapes = {
        "query": (B, H, S, D),
        "key": (B, Hkv, T, D),
        "value": (B, Hkv, T, F),
        "d_out": (B, H, S, F),
        "bias": (1, H, S, T),
        "sinks": (H,),
    }
    given = {name: random.normal(size=n).astype(np.float32) for name, n in shapes.items()}
    mask = random.random((B, H, S, T)) < random.random((B, H, 1, 1))
    mask[random.random((B, H, S)) < 0.2] = False
    if number % 4:
        del given["bias"]
    if number % 5:
        del given["sinks"]
    return given, mask, number % 2 == 0 and S == T


def run(given: dict[str, np.ndarray], mask: np.ndarray, causal: bool) -> dict[str, np.ndarray]:
    """Everything that the operator says."""
    arrays = dict(given)
    d_out = arrays.pop("d_out")
    q, k, v = (arrays.pop(name) for name in NAMES[:3])
    arguments = {**arrays, "mask": mask, "causal": causal}
    out, weights, lse = undivided.attention(
        q, k, v, **arguments, return_weights=True, return_lse=True
    )
    _, pullback = undivided.attention_vjp(q, k, v, **arguments)
    found = zip(NAMES, pullback(d_out), strict=True)
    said = {f"d_{name}": x for name, x in found if x is not None}
    return {"out": out, "weights": weights, "lse": lse, **said}


def reached(mask: np.ndarray, poisoned: np.ndarray, Hkv: int) -> dict[str, np.ndarray]:
    """Where a poison in these rows of a key/value head may show, by the mask alone."""
    B, H, _, T = mask.shape
    behind = poisoned.repeat(H // Hkv, axis=1)[:, :, None, :]  # [B, H, 1, T]
    rows = (mask & behind).any(axis=-1)  # queries that may attend to one
    keys = (mask & rows[..., None]).any(axis=2)  # whom such a query may attend to
    keys = keys.reshape(B, Hkv, H // Hkv, T).any(axis=2)
    return {
        "out": rows,
        "lse": rows,
        "weights": mask & rows[..., None],
        "d_query": rows,
        "d_key": keys,
        "d_value": keys,
        "d_bias": (mask & rows[..., None]).any(axis=0, keepdims=True),
        "d_sinks": rows.any(axis=(0, 2)),
    }


@pytest.mark.parametrize("path", PATHS)
def test_nothing_behind_a_mask_is_seen(path: str) -> None:
    """Also where a mask leaves a row nothing; each sample of a call has masks of its own."""
    masks, number = 0, 0
    while masks < COUNT // len(PATHS) + 1:
        given, mask, causal = drawn(number)
        B, H, S, T = mask.shape
        Hkv = given["key"].shape[1]
        masks += B * H
        number += 1
        with on_path(path), np.errstate(invalid="ignore"):
            clean = run(given, mask, causal)
            allowed = mask & (np.tri(S, T, dtype=bool) if causal else True)
            empty = ~allowed.any(axis=-1)
            assert (clean["out"][empty] == 0).all() and (clean["weights"][~allowed] == 0).all()
            assert (clean["d_query"][empty] == 0).all()
            unseen = ~allowed.any(axis=2).reshape(B, Hkv, H // Hkv, T).any(axis=2)
            assert (clean["d_key"][unseen] == 0).all() and (clean["d_value"][unseen] == 0).all()
            if "sinks" not in given:
                assert (clean["lse"][empty] == -np.inf).all()

            random = np.random.default_rng([number, 6])
            poisoned = random.random((B, Hkv, T)) < 0.2
            which = ("key", "value")[number % 2]
            bad = given[which].copy()
            columns = random.random(bad.shape) < 0.5
            columns[..., 0] = True
            bad[poisoned[..., None] & columns] = POISONS[number % 3]
            found = run({**given, which: bad}, mask, causal)
        free = reached(allowed, poisoned, Hkv)
        for name, x in found.items():
            kept = ~free[name]
            np.testing.assert_array_equal(
                x[kept], clean[name][kept], f"{name}, {which}, case {number - 1}"
            )
        if number % 3 == 0:  # NaN does reach who may attend to it; infinite keys may get no weight
            assert np.isnan(found["out"][free["out"]]).any(axis=-1).all()
    assert masks * len(PATHS) >= COUNT


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("which", ["query", "d_out", "bias"])
def test_nothing_else_spreads_either(path: str, which: str) -> None:
    """A query, a row of dO or a number of the bias reaches its own row, and from there its keys."""
    for number in range(0, 240, 4):
        given, mask, causal = drawn(number)
        B, H, S, T = mask.shape
        Hkv = given["key"].shape[1]
        random = np.random.default_rng([number, 7])
        allowed = mask & (np.tri(S, T, dtype=bool) if causal else True)
        bad = given[which].copy()
        at = random.random(bad.shape[:-1] if which != "bias" else bad.shape) < 0.15
        bad[at] = POISONS[number // 4 % 3]
        with on_path(path), np.errstate(invalid="ignore"):
            clean = run(given, mask, causal)
            found = run({**given, which: bad}, mask, causal)
        rows = (allowed & at).any(axis=-1) if which == "bias" else at & allowed.any(axis=-1)
        keys = (allowed & rows[..., None]).any(axis=2)
        keys = keys.reshape(B, Hkv, H // Hkv, T).any(axis=2)
        cells = allowed & rows[..., None]
        free = {
            "out": rows,
            "lse": rows,
            "weights": cells,
            "d_query": rows,
            "d_key": keys,
            "d_value": keys,
            "d_bias": cells.any(axis=0, keepdims=True),
            "d_sinks": rows.any(axis=(0, 2)),
        }
        for name, x in found.items():
            kept = ~free[name]
            np.testing.assert_array_equal(x[kept], clean[name][kept], f"{name}, case {number}")


@pytest.mark.parametrize("path", PATHS)
def test_padding_is_never_read(path: str) -> None:
    """NaN beyond the lengths changes no bit of what is before them, and its gradients are 0."""
    random = np.random.default_rng(8)
    B, H, Hkv, S, T, D, F = 4, 4, 2, 9, 70, 8, 5
    given = {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in {
            "query": (B, H, S, D),
            "key": (B, Hkv, T, D),
            "value": (B, Hkv, T, F),
            "d_out": (B, H, S, F),
        }.items()
    }
    queries, keys = np.array([9, 3, 0, 1]), np.array([70, 0, 65, 12])
    lengths = {"query_lengths": queries, "key_lengths": keys}
    bad = {name: x.copy() for name, x in given.items()}
    for b in range(B):
        bad["query"][b, :, queries[b] :] = bad["d_out"][b, :, queries[b] :] = np.nan
        bad["key"][b, :, keys[b] :] = bad["value"][b, :, keys[b] :] = np.inf
    with on_path(path):
        for more in ({}, {"softcap": 3.0}, {"causal": "bottom_right"}):
            said = []
            for each in (given, bad):
                q, k, v, d_out = (each[n] for n in ("query", "key", "value", "d_out"))
                out, pullback = undivided.attention_vjp(q, k, v, **lengths, **more)
                said.append((out, *pullback(d_out)[:3]))
            for clean, found in zip(*said, strict=True):
                np.testing.assert_array_equal(found, clean)
            out, dq, dk, dv = said[1]
            for b in range(B):
                assert not out[b, :, queries[b] :].any() and not dq[b, :, queries[b] :].any()
                assert not dk[b, :, keys[b] :].any() and not dv[b, :, keys[b] :].any()
