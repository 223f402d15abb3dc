"""A folder with a small network and its data, and the program to run in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from small_program import Run, write_folder

import undivided
from undivided.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with no data of this machine in reach."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UNDIVIDED_DATA", raising=False)
    # Processes that a test starts find the same package, wherever they are.
    monkeypatch.setenv("PYTHONPATH", str(Path(undivided.__file__).parents[1]))
    write_folder(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    """Run the program there; `code` is the exit code that is expected."""

    def run(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        if code:
            assert "Error: " in result.stderr
            assert "Traceback" not in result.output
        else:
            assert result.stderr == ""
        return result

    return run
