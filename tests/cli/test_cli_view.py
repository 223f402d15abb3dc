"""`undivided view` and `undivided debug --attention-weights`."""

from __future__ import annotations

import json
import re
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_program import NETWORK, Run


def page(path: str) -> dict[str, Any]:
    text = Path(path).read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    return json.loads(found[1])


@pytest.fixture
def model(run: Run) -> str:
    run("train", "small.neural", "--quiet")
    return "small.safetensors"


class TestView:
    def test_the_page_is_about_the_first_test_samples(self, run: Run, model: str) -> None:
        output = run("view", model).stdout
        assert re.fullmatch(r"Wrote small.html \([\d,]+ bytes\): open it in a browser\n", output)
        found = page("small.html")
        assert len(found["samples"]) == 12
        assert found["source"] == "small.safetensors on small.npz"
        with np.load("small.npz") as arrays:
            labels = [s["answer"]["positions"][0]["label"] for s in found["samples"]]
            assert labels == list(map(str, arrays["y_test"][:12]))

    def test_as_many_samples_as_one_wants_and_there_are(self, run: Run, model: str) -> None:
        run("view", model, "--samples", 2, "--out", "two.html")
        assert len(page("two.html")["samples"]) == 2
        run("view", model, "--samples", 1000)
        assert len(page("small.html")["samples"]) == 32
        refused = run("view", model, "--samples", 1001, code=1).stderr
        assert "--samples must be at most 1,000. Got 1,001." in refused

    def test_samples_without_labels(self, run: Run, model: str) -> None:
        np.savez("new.npz", x=np.ones((1, 4, 4), np.float32))
        run("view", model, "--data", "new.npz")
        (sample,) = page("small.html")["samples"]
        assert sample["answer"]["positions"][0]["label"] is None

    def test_samples_of_another_shape(self, run: Run, model: str) -> None:
        assert "8×8" in run("view", model, "--data", "digits", code=1).stderr

    def test_it_opens_a_browser_when_asked(
        self, run: Run, model: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: list[str] = []
        monkeypatch.setattr(webbrowser, "open", opened.append)
        run("view", model)
        assert opened == []
        run("view", model, "--open")
        assert opened == [Path("small.html").resolve().as_uri()]

    def test_where_it_cannot_be_written(self, run: Run, model: str) -> None:
        assert "there is no folder" in run("view", model, "--out", "no/x.html", code=1).stderr


class TestDebug:
    def test_it_trains_first(self, run: Run) -> None:
        output = run("debug", "small.neural", "--attention-weights").stdout
        assert "Epoch 3 |" in output and "Wrote small.html" in output
        assert Path("small.safetensors").exists()
        assert page("small.html")["facts"][1] == ["trained", "3 epochs"]

    def test_or_takes_a_model(self, run: Run, model: str) -> None:
        before = Path(model).read_bytes()
        output = run("debug", "small.neural", "--attention-weights", "--model", model).stdout
        assert output.startswith("Wrote small.html")
        assert Path(model).read_bytes() == before

    def test_a_model_of_another_network(self, run: Run, model: str) -> None:
        Path("other.neural").write_text(NETWORK.replace("Dense(8)", "Dense(6)"))
        wrong = run("debug", "other.neural", "--attention-weights", "--model", model, code=2).stderr
        assert "small.safetensors is a model of another network than other.neural" in wrong

    def test_nothing_to_look_at(self, run: Run) -> None:
        wrong = run("debug", "small.neural", code=2).stderr
        assert "Say what to look at: --attention-weights." in wrong
