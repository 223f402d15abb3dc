"""undivided.attention against the reference: every option with every other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attention_calls import PATHS, Call
from hypothesis import HealthCheck, given, settings
from random_calls import calls

from undivided import masks
from undivided._operator.core import WHOLE_KEYS
from undivided._operator.options import Sizes

FAMILIES = {
    ("float32", "kept"): 900,
    ("float32", "again"): 150,
    ("float32", "tiles"): 700,
    ("float64", "tiles"): 350,
}
"""How many different calls of each kind are compared at least."""
LEAST = 2000


@pytest.mark.parametrize(("dtype", "path"), FAMILIES)
def test_any_call(dtype: str, path: str) -> None:
    met = set()

    @given(calls(dtype, path))
    @settings(
        max_examples=FAMILIES[dtype, path] * 11 // 10,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def any_call(call: Call) -> None:
        call.check()
        met.add(call)

    any_call()
    assert len(met) >= FAMILIES[dtype, path]


def test_there_are_enough() -> None:
    assert sum(FAMILIES.values()) >= LEAST


SQUARE, WIDE, TALL = (
    Sizes(1, 2, 1, 700, 700, 16, 8),
    Sizes(2, 2, 2, 5, 1090, 8, 20),
    Sizes(2, 1, 1, 900, 70, 4, 4),
)
LONG: list[tuple[Sizes, dict[str, Any]]] = [
    (SQUARE, {}),
    (SQUARE, {"options": (("causal", True),), "sinks": True}),
    (SQUARE, {"options": (("window", (64, 3)), ("softcap", 2.0)), "bias": (2, 1, 700)}),
    (SQUARE, {"mask": masks.window(30) | masks.random(2, seed=3) | masks.global_tokens(1)}),
    (SQUARE, {"mask": masks.documents([i // 150 for i in range(700)]) & masks.causal()}),
    (SQUARE, {"mask": (1, 1, 700, 700), "share": 0.02, "dtype": "float64"}),
    (SQUARE, {"bias": (700, 700), "options": (("dropout", 0.2), ("seed", 9))}),
    (WIDE, {"options": (("causal", "bottom_right"), ("key_lengths", (1090, 515)))}),
    (WIDE, {"options": (("window", (600, 0)), ("query_offset", (700, 3))), "bias": (1, 2, 1, 1)}),
    (WIDE, {"options": (("query_lengths", (5, 2)),), "bias": (2, 1, 5, 1), "sinks": True}),
    (TALL, {"options": (("causal", "top_left"),), "bias": (1, 70)}),
    (TALL, {"options": (("query_lengths", (900, 450)),), "layout": "flat"}),
]


@pytest.mark.parametrize("number", range(len(LONG)))
def test_long_sequences(number: int) -> None:
    """Which way these go is their own length's to say."""
    sizes, more = LONG[number]
    Call(sizes, **more).check()


def test_long_sequences_go_the_long_way() -> None:
    assert min(sizes.T for sizes in (SQUARE, WIDE)) > WHOLE_KEYS > TALL.T
    assert not PATHS["kept"]


@pytest.mark.parametrize("name", ["out", "lse", "d_query", "d_key", "d_value", "d_bias", "d_sinks"])
def test_the_rule_sees_what_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only one of many numbers is off, by a hundred thousandth part of the largest."""
    call = Call(Sizes(2, 2, 1, 9, 30, 8, 4), bias=(9, 30), sinks=True)
    call.check()
    right = Call.by_operator

    def wrong(self: Call, *arguments: Any) -> dict[str, np.ndarray]:
        said = right(self, *arguments)
        said[name].flat[1] += 1e-5 * abs(said[name]).max()
        return said

    monkeypatch.setattr(Call, "by_operator", wrong)
    with pytest.raises(AssertionError, match=name):
        call.check()
