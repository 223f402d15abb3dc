"""What docs/export.md says is so: its Python runs, its commands work, its C compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from c_programs import STRICT, need
from click.testing import CliRunner

import undivided
from undivided.cli import main
from undivided.export.targets import TARGETS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "export.md").read_text("utf-8")


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)


def commands(text: str) -> list[list[str]]:
    return [line.split()[1:] for line in text.splitlines() if line.startswith("undivided ")]


def run(command: list[str]) -> str:
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder to work in, with a short training."""
    monkeypatch.chdir(tmp_path)
    train = undivided.Model(undivided.recipe("digits-attention"), engine="reference")
    train.save("digits.safetensors")
    return tmp_path


def test_the_python_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in blocks("python"):
        exec(compile(code, "export.md", "exec"), names)
    assert "['digits.h', 'digits.c', 'digits_check.c'] 10240 38440" in capsys.readouterr().out


def test_the_commands_of_the_page_work(folder):
    trained, exported = commands(blocks("sh")[0])
    assert trained[:2] == ["train", "digits-attention"]
    assert run(exported) == blocks("text")[0]
    need("gcc")
    done = subprocess.run(blocks("sh")[1], shell=True, capture_output=True, text=True)
    shown = re.sub(r"[0-9a-f]{8}|\d\.\d+e-\d+", "#", blocks("text")[1])
    assert re.sub(r"[0-9a-f]{8}|\d\.\d+e-\d+", "#", done.stdout) == shown
    (described,) = commands(blocks("sh")[2])
    assert "On cortex-m4 (" in run(described)
    for target in TARGETS:
        assert f"`{target.name}`" in PAGE


def test_the_c_of_the_page_compiles_and_the_excerpt_is_one(folder):
    run(commands(blocks("sh")[0])[1])
    program, excerpt = blocks("c")
    assert excerpt in (folder / "device" / "digits.c").read_text()
    need("gcc")
    (folder / "device" / "mine.c").write_text(program)
    command = ["gcc", *STRICT, "-c", "device/mine.c", "-o", "mine.o"]
    subprocess.run(command, check=True)


def test_the_example_for_cortex_m_runs(folder):
    need("arm-none-eabi-gcc", "qemu-system-arm", "make")
    example = ROOT / "examples" / "cortex-m"
    for path in example.iterdir():
        shutil.copy(path, folder)
    _, exported = commands(blocks("sh", (example / "README.md").read_text("utf-8"))[0])
    run(exported)
    done = subprocess.run(["make", "run"], capture_output=True, text=True)
    if "cannot read spec" in done.stderr:
        pytest.skip("the C library of arm-none-eabi-gcc is not installed")
    assert done.returncode == 0, done.stderr
    assert "16 samples, bits " in done.stdout + done.stderr
