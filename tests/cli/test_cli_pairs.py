"""Networks with two inputs, samples with padding and classes with names, through every command."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from small_program import Run

import undivided

PAIRS = """network Pairs {
  input: { source: (5), target: (4) }
  layers:
    Embedding(7, 8%s)
    TransformerEncoder(num_heads=2, dff=16)
    TransformerDecoder(num_heads=2, dff=16)
    Dense(7)
  train { epochs: 2 batch_size: 16 }
}"""


def pairs(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    source = random.integers(1, 7, (count, 5))
    y = source[:, :4]
    return {"source": source, "target": np.roll(y, 1, axis=1), "y": y}


@pytest.fixture
def pairs_file(folder: Path) -> Path:
    (folder / "pairs.neural").write_text(PAIRS % "")
    tests = {f"{name}_test": array for name, array in pairs(20, 1).items()}
    np.savez(folder / "pairs.npz", **pairs(40), **tests)
    return folder / "pairs.npz"


def test_a_network_with_two_inputs(run: Run, pairs_file: Path) -> None:
    output = run("train", "pairs.neural", "--data", "pairs.npz").stdout
    assert "40 training and 20 test samples of source 5 and target 4" in output
    assert "on 20 test samples of pairs.npz" in run("evaluate", "pairs.safetensors").stdout
    lines = run("predict", "pairs.safetensors").stdout.splitlines()
    assert lines[0].startswith("index,position,label,predicted,probability_0,")
    assert len(lines) == 1 + 20 * 4
    model = undivided.load("pairs.safetensors")
    given = pairs(20, 1)
    found = model.predict((given["source"], given["target"]))
    assert [line.split(",")[3] for line in lines[1:]] == [str(c) for row in found for c in row]
    page = run("view", "pairs.safetensors", "--samples", "2").stdout
    assert page.startswith("Wrote pairs.html")
    alone = {name: array for name, array in given.items() if name != "y"}
    np.savez("new.npz", **alone)
    again = run("predict", "pairs.safetensors", "--data", "new.npz").stdout.splitlines()
    assert again[1].split(",")[2] == lines[1].split(",")[3]
    assert run("view", "pairs.safetensors", "--data", "new.npz").stdout.startswith("Wrote")


def test_random_data_for_two_inputs(run: Run, pairs_file: Path) -> None:
    output = run("train", "pairs.neural", "--data", "random", "--epochs", "1").stdout
    assert "random, 1,024 training and 128 test samples of source 5 and target 4" in output


def test_lengths_of_either_input(run: Run, pairs_file: Path) -> None:
    """What fills up is not there, in the targets' positions either."""
    arrays = pairs(40)
    lengths = {"source_lengths": np.arange(40) % 5 + 1, "target_lengths": np.arange(40) % 4 + 1}
    np.savez("short.npz", **arrays, **lengths)
    run("train", "pairs.neural", "--data", "short.npz", "--out", "a.safetensors", "--quiet")
    for name in ("source", "target"):
        S = arrays[name].shape[1]
        arrays[name] = np.where(np.arange(S) < lengths[f"{name}_lengths"][:, None], arrays[name], 0)
    np.savez("short.npz", **arrays, **lengths)
    run("train", "pairs.neural", "--data", "short.npz", "--out", "b.safetensors", "--quiet")
    assert Path("a.safetensors").read_bytes() == Path("b.safetensors").read_bytes()
    assert run("view", "a.safetensors").stdout.startswith("Wrote a.html")
    rows = run("predict", "a.safetensors").stdout.splitlines()
    assert len(rows) == 1 + lengths["target_lengths"].sum()


def test_what_two_inputs_lack(run: Run, pairs_file: Path) -> None:
    np.savez("half.npz", source=pairs(8)["source"], y=pairs(8)["y"])
    said = run("train", "pairs.neural", "--data", "half.npz", code=1).stderr
    assert "half.npz: expected the arrays source, target and y" in said
    assert "target is missing" in said
    said = run("train", "pairs.neural", "--data", "digits", code=1).stderr
    assert "The samples of digits are 8×8, and Pairs takes source 5 and target 4." in said
    np.savez("long.npz", **{**pairs(8), "source": np.ones((8, 6), int)})
    said = run("train", "pairs.neural", "--data", "long.npz", code=1).stderr
    assert "are source 6 and target 4, and Pairs takes source 5 and target 4" in said


NAMED = """network Named {
  input: (None, 2)
  layers: Dense(8) TransformerEncoder(2, dff=8) GlobalAveragePooling1D() Output(3)
  train { epochs: 2 batch_size: 8 }
}"""


def named(count: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    names = np.array(["calm, dry", "rain", 'a "storm"'])
    x = random.normal(size=(count, 6, 2)).astype(np.float32)
    lengths = random.integers(2, 7, count)
    return {"x": x, "y": np.arange(count) % 3, "lengths": lengths, "classes": names}


def test_classes_go_by_their_names(run: Run, folder: Path) -> None:
    (folder / "named.neural").write_text(NAMED)
    np.savez("named.npz", **named(30))
    run("train", "named.neural", "--data", "named.npz", "--quiet")
    model = undivided.load("named.safetensors")
    assert model.class_names == ("calm, dry", "rain", 'a "storm"')
    lines = run("predict", "named.safetensors").stdout.splitlines()
    assert lines[0] == (
        'index,label,predicted,"probability_calm, dry",probability_rain,"probability_a ""storm"""'
    )
    assert lines[1].startswith('0,"calm, dry",')
    run("view", "named.safetensors", "--samples", "3")
    assert '"label":"calm, dry"' in (folder / "named.html").read_text()
    # Padding counts for nothing, and what was learned is enough to name what is predicted.
    arrays = named(30)
    expected = model.predict(arrays["x"], lengths=arrays["lengths"])
    fills = np.arange(6) >= arrays["lengths"][:, None]
    arrays["x"][fills] = 99
    np.savez("new.npz", x=arrays["x"], lengths=arrays["lengths"])
    lines = run("predict", "named.safetensors", "--data", "new.npz").stdout.splitlines()
    wanted = [model.class_names[c] for c in expected]
    found = [
        re.sub(r'""', '"', re.match(r'\d+,("(?:[^"]|"")*"|[^,]*)', line)[1]) for line in lines[1:]
    ]
    assert [name.strip('"') for name in found] == [name.strip('"') for name in wanted]


def test_words_are_on_the_page_of_the_text_classifier(run: Run, folder: Path) -> None:
    run("train", "text-classifier", "--epochs", "1", "--set", "data.count=512", "--quiet")
    run("view", "text-classifier.safetensors", "--samples", "2")
    page = (folder / "text-classifier.html").read_text()
    assert '"the","' in page and ('"label":"right"' in page or '"label":"wrong"' in page)
