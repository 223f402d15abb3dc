"""The benchmark of the operator: its arguments, its arithmetic, what it writes. Never its times."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not beside these tests", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import attention as benchmark  # noqa: E402
import attention_report as report  # noqa: E402
from peers.attention import (  # noqa: E402
    SYSTEMS,
    VARIANTS,
    Case,
    lengths,
    operations,
    undivided_calls,
)
from peers.attention.case import allowed_pairs  # noqa: E402

SMALL = (2, 2, 80, 16)


def test_what_is_measured_unless_told_otherwise() -> None:
    options = benchmark.parse([])
    assert options.shapes == list(benchmark.SHAPES) and options.variants == list(VARIANTS)
    assert options.systems == list(SYSTEMS) and options.passes == ["forward", "both"]
    quick = benchmark.parse(["--quick", "--shapes", "197"])
    assert quick.shapes == ["197"] and quick.passes == ["both"]
    assert quick.seconds < options.seconds


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--shapes", "50"], "'50' is not one of 49, 49x4,"),
        (["--variants", "all"], "'all' is not one of full,"),
        (["--seconds", "nan"], "expected seconds above 0, got 'nan'"),
        (["--rounds", "0"], "expected a whole number from 1, got '0'"),
    ],
)
def test_arguments_that_are_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        benchmark.parse(arguments)
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("variant", VARIANTS)
def test_operations_count_what_is_allowed(variant: str) -> None:
    case = Case(SMALL, variant, False, 1)
    row = np.arange(80)
    each = {
        "causal": row[:, None] >= row,
        "window": np.abs(row[:, None] - row) <= 64,
        "padding": np.broadcast_to(row < lengths(case)[:, None], (2, 80)),
    }.get(variant, np.ones((80, 80)))
    pairs = int(each.sum()) * (2 * 80 if variant == "padding" else 2 * 2)
    assert allowed_pairs(case) == pairs
    assert operations(case) == 2 * 2 * 16 * pairs
    assert operations(Case(SMALL, variant, True, 1)) == 6 * 2 * 16 * pairs


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("gradient", [False, True])
def test_every_way_computes_the_same(
    variant: str, gradient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("UNDIVIDED_THREADS", "")  # what these set is taken back afterwards
    case = Case(SMALL, variant, gradient, 1)
    arrays = undivided_calls.Arrays(1).forms(case)["attention_vjp" if gradient else "attention"]()
    from peers.attention import torch_calls

    tensors = undivided_calls.Tensors(torch.get_num_threads())
    libraries = [tensors, torch_calls.Sdpa(torch.get_num_threads())]
    libraries.append(torch_calls.Naive(torch.get_num_threads()))
    for library in libraries:
        for form in library.forms(case).values():
            for found, expected in zip(form(), arrays, strict=True):
                assert np.abs(np.asarray(found) - expected).max() < 1e-5


def test_page_and_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(benchmark.SHAPES, "49", SMALL)
    systems = ["undivided-numpy"]
    systems += ["undivided"] if find_spec("torch") else []
    systems += ["jax"] if find_spec("jax") else []
    arguments = ["--shapes", "49", "--variants", "bias", "--passes", "both", "--threads", "1"]
    arguments += ["--systems", ",".join(systems), "--rounds", "1", "--seconds", "0.001", "--json"]
    assert benchmark.main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    (row,) = result["rows"]
    assert list(row["systems"]) == systems and row["apart"] < 1e-5
    page = report.text(result)
    assert row["title"] in page and "Multiply-add peak" in page
    assert row["best_peer"] == ("jax" if "jax" in systems else None)
    if "undivided" in systems:
        assert 0 < row["share_of_peak"] < 1


def test_systems_that_disagree_are_not_timed() -> None:
    case = Case(SMALL, "full", False, 1)
    a, b = [np.ones(4)], [np.array([1, 1, 1, 1.001])]
    assert benchmark._apart(case, {"a": a, "b": a}) == 0
    for wrong in (b, [np.full(4, np.nan)]):
        with pytest.raises(RuntimeError, match="do not compute the same thing: a, b differ"):
            benchmark._apart(case, {"a": a, "b": wrong})


def row(shape: tuple[int, ...], variant: str, **seconds: float) -> dict[str, object]:
    systems = {name.replace("_", "-"): {"median_seconds": x} for name, x in seconds.items()}
    medians = {name: each["median_seconds"] for name, each in systems.items()}
    return {
        "title": variant,
        "shape": shape,
        "variant": variant,
        "gradient": True,
        "systems": systems,
        "best_peer": report.best_peer(medians),
    }


def test_bars_are_held_against_the_best_peer() -> None:
    rows = [
        row((32, 1, 49, 16), "full", undivided=1.0, torch_sdpa=4.0, torch_naive=2.5),
        row((1, 8, 4096, 64), "full", undivided=2.0, jax=3.0),
        row((1, 8, 4096, 64), "causal", undivided=1.0),
        row((1, 8, 4096, 64), "window", undivided=0.1, torch_sdpa=0.5),
    ]
    found = [(bar["against"], bar["bar"], bar["holds"]) for bar in report.bars(rows)]
    assert found == [
        ("torch-naive", 2.0, True),
        ("torch-sdpa", 5.0, False),
        ("jax", 1.4, True),
        ("its own full pass", 1.7, True),
        ("torch-sdpa", 10.0, False),
    ]


def test_what_weights_and_short_calls_cost(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--own", "--shapes", "49", "--seconds", "0.002", "--threads", "1"]
    assert benchmark.main(arguments) == 0
    page = capsys.readouterr().out
    assert "32×1×49×16" in page and "beyond its arithmetic; bar 10 µs" in page
