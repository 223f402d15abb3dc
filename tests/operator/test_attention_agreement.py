"""undivided.attention against the reference: every option with every other."""

from __future__ import annotations

import pytest
from attention_calls import Call
from hypothesis import HealthCheck, given, settings
from random_calls import calls

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
