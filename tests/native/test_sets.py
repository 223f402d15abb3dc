"""Every instruction set that the machine has computes the same thing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import compact_run
import pytest
from native_cases import CASES, compact
from small_models import NETWORKS, engine_for

from undivided import _native
from undivided.engines.native import NativeEngine, instruction_set
from undivided.errors import ArgumentError

SETS = _native.instruction_sets()


def forced(set_: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "UNDIVIDED_ISA": set_},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("set_", SETS)
def test_a_forced_set_agrees(set_: str) -> None:
    done = forced(set_, str(Path(compact_run.__file__)))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["set"] == set_
    assert found["wrong"] == []
    assert found["same"], "threads change bits"
    assert found["otherwise"] == [], "what is kept changes bits"
    assert found["stained"] == []
    assert found["compared"] >= 2000


def test_the_compact_run_meets_every_primitive_and_option() -> None:
    assert {case.key[:2] for case in compact()} == {case.key[:2] for case in CASES}


def test_the_widest_set_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNDIVIDED_ISA", raising=False)
    lanes = [_native.lanes(each) for each in SETS]
    assert lanes == sorted(lanes, reverse=True) and len(set(lanes)) == len(lanes)
    assert instruction_set() == SETS[0] == engine_for("table").instruction_set


@pytest.mark.parametrize("name", ["avx", "X86-64-V3", "x86-64-v9", " ", "0"])
def test_an_unknown_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDIVIDED_ISA", name)
    with pytest.raises(ArgumentError) as caught:
        NativeEngine(NETWORKS["table"].plan())
    assert str(caught.value) == (
        "UNDIVIDED_ISA must be one of the instruction sets of this machine: "
        f"{', '.join(SETS)}. Got {name!r}."
    )


def test_an_unknown_set_in_a_fresh_process() -> None:
    """Importing works; what needs the set says so."""
    assert forced("avx", "-c", "import undivided.engines.native").returncode == 0
    make = "import undivided as u; u.Model(u.recipe('digits-attention'))"
    done = forced("avx", "-c", make)
    assert done.returncode == 1
    assert "ArgumentError: UNDIVIDED_ISA must be one of" in done.stderr


def test_an_empty_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDIVIDED_ISA", "")
    assert instruction_set() == SETS[0]
