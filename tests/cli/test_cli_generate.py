"""`undivided generate`."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_program import Run

from undivided import Model, parse

LANGUAGE = """network Language {
  input: (6)
  layers: Embedding(%d, output_dim=16) TransformerDecoder(2, dff=32) Dense(%d)
  optimizer: Adam(learning_rate=0.01)
  %s
}"""

REVERSE = """network Reverse {
  input: (4)
  layers:
    Embedding(5, output_dim=16) TransformerEncoder(2, dff=32) TransformerDecoder(2, dff=32) Dense(5)
  optimizer: Adam(learning_rate=0.01)
}"""


def language(folder: Path, ids: np.ndarray, vocabulary: int, data: str = "") -> None:
    model = Model(parse(LANGUAGE % (vocabulary, vocabulary, data)), seed=1)
    windows = np.lib.stride_tricks.sliding_window_view(ids, 7)
    model.fit((windows[:, :-1], windows[:, 1:]), epochs=12, batch_size=8)
    model.save(folder / "language.safetensors")


def test_bytes_go_on(run: Run, folder: Path) -> None:
    language(folder, np.frombuffer(b"abc " * 40, np.uint8).astype(int), 256)
    said = run("generate", "language.safetensors", "--prompt", "abc a", "--tokens", 9).stdout
    assert said == "abc abc abc ab\n"
    bold = ("--temperature", "0.01", "--top-k", "3", "--top-p", "0.9", "--seed", "4")
    again = run("generate", "language.safetensors", "-p", "abc a", "-n", 9, *bold).stdout
    assert again == said


def test_characters_of_several_bytes_go_on(run: Run, folder: Path) -> None:
    language(folder, np.frombuffer("ä€ ".encode() * 60, np.uint8).astype(int), 256)
    said = run("generate", "language.safetensors", "--prompt", "ä€", "--tokens", 12).stdout
    assert said == "ä€ ä€ ä€\n"
    said = run("generate", "language.safetensors", "--prompt", "ä€", "--tokens", 4).stdout
    assert said == "ä€ ä\N{REPLACEMENT CHARACTER}\n"  # the first byte of three


def test_tokens_are_told_as_they_come_and_kept_at_ctrl_c(folder: Path) -> None:
    language(folder, np.frombuffer(b"abc " * 40, np.uint8).astype(int), 256)
    endless = ("generate", "language.safetensors", "-p", "ab", "--tokens", "1000000000")
    process = subprocess.Popen(
        [sys.executable, "-m", "undivided", *endless],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    begun = process.stdout.read(10)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=30)
    assert begun == "abc abc ab" and rest.endswith("\n")
    assert process.returncode == 130 and errors.strip() == "Stopped."


def test_characters_go_on(run: Run, folder: Path) -> None:
    text = "äbc." * 40
    (folder / "small.txt").write_text(text, "utf-8")
    known = sorted(set(text))
    ids = np.array([known.index(character) for character in text])
    language(folder, ids, len(known), 'data: text("small.txt", unit="characters")')
    said = run("generate", "language.safetensors", "--prompt", "äb", "--tokens", 6).stdout
    assert said == "äbc.äbc.\n"
    output = run("generate", "language.safetensors", "--prompt", "z", code=1).stderr
    assert "The prompt has the character 'z', which is not in small.txt." in output


def test_ids_become_another_sequence(run: Run, folder: Path) -> None:
    model = Model(parse(REVERSE), seed=1)
    x = np.random.default_rng(0).integers(1, 5, (400, 4))
    model.fit((x, x[:, ::-1]), epochs=20, batch_size=16)
    model.save(folder / "reverse.safetensors")
    assert run("generate", "reverse.safetensors", "--prompt", "1 2 3 3").stdout == "3 3 2 1\n"
    assert len(run("generate", "reverse.safetensors", "-p", "1 2", "-n", 3).stdout.split()) == 3
    output = run("generate", "reverse.safetensors", "--prompt", "one two", code=1).stderr
    assert "The prompt must hold ids, whole numbers such as '4 8 15'" in output
    output = run("generate", "reverse.safetensors", "--prompt", "1 9", code=1).stderr
    assert "is 9, and the network's ids are 0 to 4" in output


@pytest.mark.parametrize("prompt", ["", " "])
def test_an_empty_prompt_is_refused(run: Run, folder: Path, prompt: str) -> None:
    Model(parse(LANGUAGE % (5, 5, ""))).save(folder / "language.safetensors")
    output = run("generate", "language.safetensors", "--prompt", prompt, code=1).stderr
    assert "The prompt is empty." in output
