"""benchmarks/train_networks.py: its arguments, and that all systems train the same network."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not beside these tests", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import train_networks  # noqa: E402
from peers import ENCODERS  # noqa: E402
from peers.encoder import Encoder, network_of, samples_of  # noqa: E402
from train_networks import Case  # noqa: E402

TINY = Encoder(D=16, H=2, L=1, S=6, B=4, steps=2)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {
        "small": Case(TINY, 2.5),
        "small-ragged": Case(Encoder(D=16, H=2, L=1, S=6, B=4, steps=2, ragged=True)),
        "long-linear": Case(replace(TINY, S=128, linear=True)),
        "long-linear-causal": Case(replace(TINY, S=128, linear=True, causal=True)),
    }
    monkeypatch.setattr(train_networks, "CASES", cases)
    monkeypatch.setattr(train_networks, "USUAL", list(cases))


@pytest.mark.parametrize("peer", ["torch", "jax"])
def test_a_peer_trains_the_same_network(
    peer: str, tiny: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their losses are compared by the benchmark itself, which fails where they differ."""
    if not ENCODERS[peer].installed:
        pytest.skip(f"{peer} is not installed")
    flags = [
        "--cases",
        "small,small-ragged,long-linear,long-linear-causal",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--json",
    ]
    assert train_networks.main([*flags, "--systems", f"undivided,{peer}"]) == 0
    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [case["best_peer"] for case in cases.values()] == [peer] * 4
    assert all(case["losses_apart"] < 1e-5 for case in cases.values())


def test_the_page(tiny: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_networks.main(["--systems", "undivided", "--rounds", "1", "--threads", "1"]) == 0
    page = capsys.readouterr().out
    assert "D=16, H=2, L=1, S=6, B=4, ragged" in page and "% of the peak" in page


def test_unknown_cases_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        train_networks.main(["--cases", "tiny"])
    assert caught.value.code == 2
    assert "'tiny' is not one of small, small-dropout" in capsys.readouterr().err


def test_ragged_samples_keep_their_lengths() -> None:
    task = Encoder(D=16, H=2, L=1, S=12, B=4, steps=8, ragged=True)
    x, y, lengths = samples_of(task)
    assert x.shape == (32, 12, 16) and len(y) == 32
    assert lengths.min() >= 3 and lengths.max() <= 12
    assert all((x[i, n:] == 0).all() for i, n in enumerate(lengths))
    assert network_of(task).input == (None, 16)


def test_the_language_model_beside_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    """Both learn the same: equal losses in every turn, and equal bits of what is held out."""
    import char_gpt

    if not ENCODERS["torch"].installed:
        pytest.skip("torch is not installed")
    flags = ["--megabytes", "0.05", "--steps", "4", "--turn", "3", "--threads", "1"]
    char_gpt.main([*flags, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [turn["steps"] for turn in found["turns"]] == [3, 1]
    for turn in found["turns"]:
        assert turn["loss"]["undivided"] == pytest.approx(turn["loss"]["torch"], rel=1e-4)
    assert found["bits_apart"] < 1e-3
    assert found["windows"] == {"train": 351, "held_out": 39}
    page = char_gpt.text(found)
    assert "char-gpt on 0.05 MB of the Python library: 4 steps, 1 threads" in page
    assert found["sample"].startswith("def ") and len(found["sample"]) > 100


def test_the_librarys_source_is_the_same_text_every_time() -> None:
    from corpus import library_source

    text = library_source(100_000)
    assert len(text) == 100_000 and text == library_source(200_000)[:100_000]
    assert b"def " in text
    with pytest.raises(ValueError, match="fewer than"):
        library_source(10**10)
