"""What docs/view.md says is so: its Python runs and its commands work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from undivided.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "view.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def test_its_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in blocks("python"):
        exec(compile(code, "view.md", "exec"), names)
    assert (tmp_path / "heads.html").exists() and (tmp_path / "sentence.html").exists()
    assert capsys.readouterr().out == "(1, 2, 16, 16) (1, 2, 16, 16)\n"


def test_its_commands_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^undivided (.+)$", "\n".join(blocks("sh")), re.M)
    assert len(commands) == 3
    for command in commands:
        quick = " --epochs 1" if command.startswith("train") else ""
        done = CliRunner().invoke(main, (command + quick).split())
        assert done.exit_code == 0, done.output
    assert (tmp_path / "heads.html").exists()
