"""docs/attention.md tells the truth: its code runs, and prints what the page says it prints."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import undivided

PAGE = Path(__file__).parents[2] / "docs" / "attention.md"
TEXT = PAGE.read_text("utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.M | re.S)


def run(capsys: pytest.CaptureFixture[str], *, with_torch: bool) -> int:
    """All blocks one after the other, as a reader would type them; how many there were."""
    names: dict[str, object] = {}
    count = 0
    for block in BLOCK.finditer(TEXT):
        code, printed = block.groups()
        if "torch" in code and not with_torch:
            continue
        count += 1
        line = TEXT.count("\n", 0, block.start(1))
        exec(compile("\n" * line + code, str(PAGE), "exec"), names)
        shown = capsys.readouterr().out
        assert shown == (printed or "")
    return count


def test_the_page_runs_without_torch(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, with_torch=False) >= 12


def test_the_page_runs_with_torch(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    assert run(capsys, with_torch=True) > 15


def test_every_argument_stands_in_the_table() -> None:
    table = "\n".join(line for line in TEXT.splitlines() if line.startswith("| `"))
    listed = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", table, re.M))))
    arguments = set(inspect.signature(undivided.attention).parameters)
    assert arguments - {"query", "key", "value"} == listed


def test_every_mask_is_named() -> None:
    named = set(re.findall(r"^    (\w+)\(|  (\w+)\(", TEXT, re.M))
    known = {name for name in undivided.masks.__all__ if name.islower()}
    assert known <= {a or b for a, b in named}
