"""The README tells the truth: its code runs, its networks parse, its commands exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import undivided

README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text("utf-8"), re.M | re.S)


def test_the_python_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for code in blocks("python"):
        if "import torch" in code and importlib.util.find_spec("torch") is None:
            continue
        exec(compile(code, "README.md", "exec"), names)
    assert len(blocks("python")) >= 4
    assert "after" in capsys.readouterr().out
    assert (tmp_path / "digits.safetensors").exists()


def test_the_network_of_the_page_is_the_recipe_that_it_says():
    (text,) = blocks("neural")
    assert undivided.parse(text) == undivided.recipe("digits-attention")


def test_the_error_of_the_page_is_the_one_that_is_given():
    (shown,) = [block for block in blocks("text") if "activaton" in block]
    text = 'network M {\n  input: (4)\n  layers:\n\n\n\n    Dense(16, activaton="relu")\n}'
    with pytest.raises(undivided.LanguageError) as refused:
        undivided.parse(text, file="mine.neural")
    assert str(refused.value) == shown.strip()


def test_the_commands_of_the_page_exist():
    from undivided.cli import main

    used = re.findall(r"^undivided (\w+)", "\n".join(blocks("sh")), re.M)
    assert {"describe", "train", "predict"} <= set(used)
    for name in used:
        assert name in main.commands


@pytest.mark.parametrize("name", ["demo", "test"])
def test_the_commands_that_are_run_for_every_change_stand_on_the_page(name):
    text = README.read_text("utf-8")
    command = re.search(rf"<!-- ci: {name} -->\n```sh\n(.*?)\n```", text, re.S)
    assert command and command[1].startswith("pip install")
