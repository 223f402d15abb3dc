"""`undivided export c` and `undivided describe --target`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from small_program import Run


@pytest.fixture
def trained(run: Run, folder: Path) -> Path:
    """The folder, with small.safetensors in it."""
    run("train", "small.neural", "--quiet")
    return folder


def test_it_writes_and_says_bytes(run: Run, trained: Path) -> None:
    output = run("export", "c", "small.safetensors", "--out", "device").stdout
    assert output.startswith("Wrote device/undivided.h\nWrote device/undivided.c\n")
    assert "RAM            512 bytes: the arena\n" in output
    assert "Flash        1,420 bytes: the weights; the code comes on top\n" in output
    assert sorted(path.name for path in Path("device").iterdir()) == ["undivided.c", "undivided.h"]


@pytest.mark.parametrize("data", [(), ("--data", "random"), ("--data", "small.npz")])
def test_the_check_passes(run: Run, trained: Path, data: tuple[str, ...]) -> None:
    command = ["export", "c", "small.safetensors", "--out", ".", "--check", "--name", "tiny"]
    assert "Wrote tiny_check.c\n" in run(*command, *data).stdout
    if shutil.which("gcc") is None:
        pytest.skip("not installed: gcc")
    subprocess.run(["gcc", "-std=c99", "tiny.c", "tiny_check.c", "-lm", "-o", "tiny"], check=True)
    done = subprocess.run(["./tiny"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("16 samples, bits ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("c", "small.safetensors"), "Missing option '--out'"),
        (("c", "smal.safetensors", "--out", "x"), "Did you mean 'small.safetensors'?"),
        (("c", "small.safetensors", "--out", "x", "--name", "a-b"), "--name must be letters"),
        (("c", "small.safetensors", "--out", "x", "--data", "mnist"), "Give --check too."),
        (("cc", "small.safetensors"), "A model cannot be exported to 'cc'."),
    ],
)
def test_a_wrong_call(run: Run, trained: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in run("export", *arguments, code=2).stderr
    assert not Path("x").exists()


def test_what_cannot_be_done(run: Run, trained: Path) -> None:
    assert (
        "cannot be made"
        in run("export", "c", "small.safetensors", "--out", "small.npz/x", code=1).stderr
    )
    Path("ragged.neural").write_text(
        'network R { input: (None, 4) data: "r.npz" layers: GlobalAveragePooling1D Output(2) }'
    )
    text = run("describe", "ragged.neural", "--target", "rp2040", code=1).stderr
    assert "A C file is for samples of one fixed size; the input of R is (None, 4)." in text


def test_describe_says_whether_it_fits(run: Run) -> None:
    page = run("describe", "small.neural", "--target", "rp2040").stdout
    assert "On rp2040 (RP2040, Cortex-M0+ without FPU: 264 KB of RAM, 2 MB of flash)" in page
    assert page.count("\nFits: ") == 2
    facts = json.loads(run("describe", "small.neural", "--json", "--target", "rp2040").stdout)
    assert facts["target"]["predict"]["fits"] is True
    assert "target" not in json.loads(run("describe", "small.neural", "--json").stdout)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--target", "esp32s2"), "There is no target 'esp32s2'. Did you mean 'esp32s3'?"),
        (("--target", "esp32s3", "--graph"), "--target and --graph are two answers."),
    ],
)
def test_describe_called_wrongly(run: Run, flags: tuple[str, ...], message: str) -> None:
    assert message in run("describe", "small.neural", *flags, code=2).stderr
