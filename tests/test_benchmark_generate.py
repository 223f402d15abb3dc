"""benchmarks/generate.py: its arguments and what it prints. Never how long it took."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not beside these tests", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import generate  # noqa: E402

SMALL = ["--windows", "20", "--prompts", "1", "2", "--seconds", "0.001"]


def test_both_ways_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main([*SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["window"], each["prompts"]) for each in found] == [(20, 1), (20, 2)]
    assert all(min(each.values()) > 0 for each in found)
    assert generate.main(SMALL) == 0
    text = capsys.readouterr().out.splitlines()
    assert len(text) == 3 and text[1].startswith("20, 1 prompt ")


def test_a_window_must_hold_more_than_the_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        generate.main(["--windows", "16"])
    assert "--windows must be above 16, the length of a prompt" in capsys.readouterr().err
