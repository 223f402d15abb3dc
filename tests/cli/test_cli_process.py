"""The program as a process: Ctrl-C, a pager that is closed, a terminal, an odd environment."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_program import ENGINES

import undivided

PROGRAM = [sys.executable, "-m", "undivided"]
ENDLESS = ["train", "small.neural", "--epochs", "1000000"]


def start(*arguments: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,  # type: ignore[call-overload]
    )


class TestCtrlC:
    @pytest.mark.parametrize("engine", ENGINES)
    def test_what_was_learned_is_saved(self, folder: Path, engine: str) -> None:
        process = start(*ENDLESS, "--engine", engine, "--out", "kept.safetensors")
        assert process.stdout is not None
        while "Epoch 2 " not in (line := process.stdout.readline()):
            assert line, process.communicate()
        process.send_signal(signal.SIGINT)
        interrupted = time.monotonic()
        _, errors = process.communicate(timeout=30)
        assert time.monotonic() - interrupted < 5  # at once, on a machine that is busy
        assert process.returncode == 130
        found = re.fullmatch(
            r"\s*Stopped\. What was learned so far, (\S+) epochs and (\S+) steps in all, "
            r"is saved in kept\.safetensors\.\s*",
            errors,
        )
        assert found, errors
        model = undivided.load("kept.safetensors", engine="reference")
        assert f"{model.epochs:,}" == found[1] and f"{model.steps:,}" == found[2]
        assert model.epochs >= 2


class TestOutput:
    def test_a_closed_pager_is_no_error(self, folder: Path) -> None:
        process = start("train", "small.neural", "--epochs", "100000")
        assert process.stdout is not None and process.stderr is not None
        for _ in range(8):
            process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        assert process.wait(timeout=30) == 1
        assert "Traceback" not in errors and "BrokenPipe" not in errors
        assert undivided.load("small.safetensors", engine="reference").steps > 0

    def test_a_terminal_of_few_signs(self, folder: Path) -> None:
        environment = os.environ | {"PYTHONIOENCODING": "cp1252"}  # which has × and not ≥
        process = start("train", "small.neural", "--epochs", "0", env=environment)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "--epochs must be a whole number ? 1. Got '0'." in errors

    @pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
    def test_no_output_at_all(self, folder: Path, closed: str) -> None:
        command = f"{sys.executable} -m undivided train small.neural {closed}"
        assert subprocess.run(command, shell=True).returncode == 0
        assert os.path.exists("small.safetensors")

    def test_a_full_disk(self, folder: Path) -> None:
        with open("/dev/full", "w") as full:
            command = [*PROGRAM, "recipes"]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1
        assert "No space left on device" in done.stderr and "Traceback" not in done.stderr


class TestTerminal:
    def on_terminal(self, *arguments: str) -> str:
        """Everything that the program writes to a terminal of its own."""
        child, terminal = pty.fork()
        if not child:
            os.environ |= {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
            os.execv(sys.executable, [*PROGRAM, *arguments])
        output = b""
        while select.select([terminal], [], [], 60)[0]:
            try:
                piece = os.read(terminal, 1 << 16)
            except OSError:  # how a terminal says that nobody writes any more
                break
            if not piece:
                break
            output += piece
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return output.decode()

    def test_a_live_bar_and_lines_that_remain(self, folder: Path) -> None:
        output = self.on_terminal("train", "small.neural", "--epochs", "150")
        bars = re.findall(
            r"Epoch (\d+)/150 .*loss=\d\.\d{4} \| [\d,]+ samples/s \| \d+:\d\d left", output
        )
        assert bars and all(1 <= int(epoch) <= 150 for epoch in bars)
        lines = re.findall(
            r"Epoch (\d+) \| loss=\d\.\d{6} \| time=\d+\.\d{3}s \| test_acc=", output
        )
        assert [int(number) for number in lines] == list(range(1, 151))
        assert "\x1b[?25h" in output  # the cursor is back
        assert "samples/s" not in output.split("Final test accuracy")[1]

    def test_quiet_is_quiet_there_too(self, folder: Path) -> None:
        assert self.on_terminal("train", "small.neural", "--quiet") == ""
