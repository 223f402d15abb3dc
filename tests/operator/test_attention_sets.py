"""Every instruction set that the machine has computes the same attention."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from undivided import _native

COMPACT = Path(__file__).with_name("compact_calls.py")


@pytest.mark.parametrize("set_", _native.instruction_sets())
def test_a_forced_set_agrees(set_: str) -> None:
    done = subprocess.run(
        [sys.executable, str(COMPACT)],
        env={**os.environ, "UNDIVIDED_ISA": set_, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["set"] == set_
    assert found["wrong"] == []
    assert found["same"], "threads change bits"
    assert found["stained"] == []
    assert found["compared"] >= 200
