"""The benchmarks: their arguments, their arithmetic, what they write. Never how long they took."""

import gzip
import json
import math
import struct
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import undivided

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not beside these tests", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import comparison  # noqa: E402
import conditions  # noqa: E402
import report  # noqa: E402
import startup  # noqa: E402
import train_mnist  # noqa: E402
from comparison import MODELS, Comparison, Orders, Peak, Settings, Timing  # noqa: E402
from peers import SYSTEMS, Apart, Entry, Task, patches  # noqa: E402

D16, D64 = MODELS["d16"], MODELS["d64"]
IMAGES = 160


@pytest.fixture(scope="module")
def small_mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with IDX files of a few random pictures."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    for part, count in (("train", IMAGES), ("t10k", 32)):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = random.integers(0, 10, count, dtype=np.uint8)
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
            file = folder / f"{part}-{name}-ubyte.gz"
            file.write_bytes(gzip.compress(header + array.tobytes()))
    return folder


@pytest.fixture
def data(small_mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDIVIDED_DATA", str(small_mnist))


def quietly(line: str) -> None:
    pass


def settings(*systems: str, rounds: int = 1, fraction: float = 1.0) -> Settings:
    return Settings(systems, rounds, fraction, threads=1)


# Arguments.


def test_what_is_measured_unless_told_otherwise() -> None:
    options = train_mnist.parse([])
    assert options.models == ["d16", "d64"]
    assert options.systems == list(SYSTEMS)
    assert (options.rounds, options.fraction) == (5, 1.0)
    assert not (options.busy or options.memory or options.spread or options.json)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--models", "d32"], "'d32' is not one of d16, d64"),
        (["--systems", "torch"], "'torch' is not one of undivided, torch-eager,"),
        (["--systems", ","], "expected some of undivided"),
        (["--rounds", "0"], "expected a whole number from 1, got '0'"),
        (["--threads", "two"], "expected a whole number from 1, got 'two'"),
        (["--spread", "-3"], "--spread"),
        (["--fraction", "0"], "expected a number above 0, at most 1, got '0'"),
        (["--fraction", "nan"], "expected a number above 0, at most 1, got 'nan'"),
        (["--isa", "z80"], "invalid choice: 'z80'"),
    ],
)
def test_arguments_that_are_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        train_mnist.parse(arguments)
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_names_are_taken_once() -> None:
    assert train_mnist.parse(["--systems", "jax, undivided,jax"]).systems == ["jax", "undivided"]


# Arithmetic.


def test_executed_operations() -> None:
    """By hand, for D16: 49·(256 + 512 + 1568 + 512) + 512 + 160 = 140,224 forward, twice that
    backward less the 49·256 of the input's gradient; for D64 in the same way."""
    narrow, wide = (
        comparison.executed_multiply_adds(undivided.recipe(model.recipe)) for model in (D16, D64)
    )
    assert (narrow, wide) == (408_128, 2_855_168)
    assert narrow == 3 * (49 * (256 + 512 + 1568 + 512) + 512 + 160) - 49 * 256
    epochs = [Comparison(model, 60_000, n, 0.0, {}) for model, n in ((D16, narrow), (D64, wide))]
    assert [round(each.operations / 1e9, 1) for each in epochs] == [49.0, 342.6]


def test_share_of_the_peak() -> None:
    peak = Peak(threads=1)
    peak.multiply_adds = 100e9
    assert peak.share(operations=50e9, seconds=0.5) == 0.5


def test_the_peak_is_the_best_window(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter([1e9, 3e9, 2e9])
    monkeypatch.setattr(comparison._native, "measure_peak", lambda *_: next(rates))
    peak = Peak(threads=2)
    peak.watch(windows=3)
    assert (peak.multiply_adds, peak.windows) == (3e9, 3)


@pytest.mark.parametrize(
    ("fraction", "samples"), [(1.0, 60_000), (0.1, 6016), (0.5, 30_016), (1e-9, 32)]
)
def test_a_fraction_is_whole_batches(fraction: float, samples: int) -> None:
    task = comparison.task_of(D16, settings("undivided", fraction=fraction), 60_000)
    assert task == Task("mnist-attention", 1, samples, 32, 0.01, 1)


def test_patches_are_those_of_the_plan() -> None:
    image = np.arange(28 * 28).reshape(1, 28, 28).astype(np.uint8)
    cut = patches(image)
    assert cut.shape == (1, 49, 16) and cut.dtype == np.float32
    for token, pixel in ((0, 5), (8, 0), (48, 15), (13, 7)):
        row, column = 4 * (token // 7) + pixel // 4, 4 * (token % 7) + pixel % 4
        assert cut[0, token, pixel] == np.float32(image[0, row, column]) / np.float32(255)


def test_orders_are_those_of_the_reference_programs() -> None:
    orders = Orders(undivided.recipe("mnist-attention"))
    first = orders.next(60_000)
    assert first[:8].tolist() == [35522, 25316, 21571, 57718, 9393, 49857, 58711, 1311]
    assert sorted(orders.next(60_000).tolist()) == list(range(60_000))
    assert len(orders.parameters) == 15


def timings(**seconds: list[float]) -> dict[str, Timing]:
    return {
        name.replace("_", "-"): Timing(1.0, each, [2.0] * len(each), [0.0] * len(each))
        for name, each in seconds.items()
    }


def test_bars_are_held_against_the_best_peer_by_medians() -> None:
    found = timings(
        undivided=[0.2, 0.1, 9.0],
        jax=[1.4, 1.5, 0.3],
        jax_pooled=[1.2, 1.0, 1.1],
        torch_eager=[2.0, 2.0, 2.0],
    )
    measured = Comparison(D16, 60_000, 408_128, 0.0, found)
    assert measured.best_peer("jax") == ("jax-pooled", pytest.approx(5.5))
    peak = Peak(threads=1)
    peak.multiply_adds = 1e12
    bars = report.comparison_json(measured, peak)["bars"]
    assert [(bar["against"], bar["holds"]) for bar in bars] == [
        ("jax-pooled", True),
        ("torch-eager", True),
    ]
    found["torch-eager"].epoch_seconds[:] = [1.2, 1.2, 1.2]
    assert report.comparison_json(measured, peak)["bars"][1]["holds"] is False


def test_with_narrower_instructions_the_bar_is_to_beat_jax(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report, "instruction_set", lambda: "narrow")
    measured = Comparison(D64, 60_000, 1, 0.0, timings(undivided=[1.0], jax=[1.1]))
    peak = Peak(threads=1)
    peak.multiply_adds = 1e12
    (bar,) = report.comparison_json(measured, peak)["bars"]
    assert (bar["bar"], bar["holds"]) == (1.0, True)


# Systems that compute the same thing.


class Fake:
    def __init__(self, name: str, loss: float) -> None:
        self.name, self.loss = name, loss

    def epoch(self, order: np.ndarray) -> float:
        return 0.0


def test_systems_that_disagree_are_not_timed() -> None:
    order = np.arange(32, dtype=np.uint32)
    close = [Fake("a", 2.3), Fake("b", 2.30001)]
    assert comparison._check(close, order) == pytest.approx(1e-5)  # type: ignore[arg-type]
    for loss in (2.3002, math.nan):
        with pytest.raises(RuntimeError, match="do not compute the same thing"):
            comparison._check([Fake("a", 2.3), Fake("b", loss)], order)  # type: ignore[list-item]


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("name", ["torch-eager-pooled", "torch-sdpa", "jax", "jax-pooled"])
def test_a_peer_trains_the_same_model(name: str) -> None:
    if find_spec(SYSTEMS[name].library) is None:
        pytest.skip(f"{SYSTEMS[name].library} is not installed")
    result = comparison.compare(D64, settings("undivided", name, rounds=2), Peak(1), quietly)
    assert result.first_loss_apart <= 1e-5
    assert result.losses_apart <= 1e-5
    losses = result.timings[name].losses
    assert len(losses) == 2 and losses[1] < losses[0]


@pytest.mark.usefixtures("data")
def test_an_error_in_a_systems_process_is_told() -> None:
    task = comparison.task_of(D16, settings("undivided"), IMAGES)
    wrong = [p + 1 for p in Orders(undivided.recipe("mnist-attention")).parameters]
    with (
        Apart("undivided") as system,
        pytest.raises(RuntimeError, match=r"undivided failed:\n(.|\n)*are not those"),
    ):
        system.prepare(task, wrong)


# What is written.


@pytest.mark.usefixtures("data")
def test_json_and_page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SYSTEMS, "absent", Entry("no_such_library", "peers.absent", "Absent"))
    monkeypatch.setenv("UNDIVIDED_ISA", "")
    narrowest = train_mnist._native.instruction_sets()[-1]
    arguments = ["--models", "d16", "--systems", "undivided,absent", "--rounds", "2"]
    arguments += ["--fraction", "0.4", "--threads", "1", "--isa", narrowest, "--json"]
    assert train_mnist.main(arguments) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert "D16/FF32 round 2 of 2: undivided" in printed.err
    assert set(result) == {"machine", "rounds", "fraction", "skipped", "peak", "comparisons"}
    assert result["skipped"] == ["absent"]
    assert result["machine"]["instruction_set"] == narrowest
    assert result["machine"]["versions"]["undivided"] == undivided.__version__
    measured = result["comparisons"]["d16"]
    assert measured["executed_multiply_adds_per_sample"] == 408_128
    assert measured["samples"] == IMAGES
    system = measured["systems"]["undivided"]
    assert len(system["epoch_seconds"]) == len(system["losses"]) == 2
    assert system["times_undivided"] == 1.0
    assert 0 < measured["share_of_peak"] < 1
    assert measured["bars"] == []
    page = report.text(result)
    assert "Only 40 % of each epoch was run; seconds are scaled up" in page
    assert "Not installed, so left out: absent." in page
    assert "% of the peak." in page


@pytest.mark.usefixtures("data")
def test_without_undivided_there_are_no_ratios() -> None:
    found = report.comparison_json(
        Comparison(D16, 60_000, 408_128, 0.0, timings(jax=[1.0])), Peak(threads=1)
    )
    assert found["share_of_peak"] is None and found["bars"] == []
    machine = report.machine_json(settings())
    page = report.text(
        {"machine": machine, "fraction": 1.0, "rounds": 1, "comparisons": {"d16": found}}
    )
    assert "jax" in page and "of the peak" not in page


def test_a_machine_that_is_not_quiet_is_named() -> None:
    found = timings(undivided=[1.0], jax=[5.0])
    found["jax"].others[:] = [0.31]
    measured = report.comparison_json(Comparison(D16, 60_000, 408_128, 0.0, found), _peak())
    result = {"rounds": 1}
    assert "NOT A QUIET MACHINE: other processes had up to 31 %" in report._comparison_text(
        measured, result
    )


def _peak() -> Peak:
    peak = Peak(threads=1)
    peak.multiply_adds = 1e12
    return peak


def test_missing_data_are_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNDIVIDED_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert train_mnist.main(["--systems", "undivided", "--threads", "1"]) == 1
    assert "train_mnist.py: MNIST was not found." in capsys.readouterr().err


@pytest.mark.usefixtures("data")
def test_busy_memory_and_spread_take_the_place_of_the_comparison(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--busy", "--memory", "--spread", "2", "--models", "d16", "--rounds", "1"]
    assert train_mnist.main([*arguments, "--threads", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert "comparisons" not in result and "peak" not in result
    busy = result["busy"]["d16"]
    assert busy["ratio"] == busy["busy_median_seconds"] / busy["idle_median_seconds"]
    assert 10e6 < result["memory"]["bytes"] < 1e9
    spread = result["spread"]
    assert (spread["seeds"], spread["epochs"], len(spread["accuracies"])) == (2, 5, 2)
    assert 0 <= spread["min"] <= spread["median"] <= spread["max"] <= 1
    page = report.text(result)
    assert "38.55 % (Rust, seeded from the clock), 24.53 % (Swift, seed 1)" in page
    assert "beside a process that keeps one core busy" in page
    assert "seeds 1 to 2: lowest" in page


def test_busy_is_a_ratio_of_medians() -> None:
    assert conditions.Busy([1.0, 1.0, 5.0], [2.0, 1.0, 9.0]).ratio == 2.0


# startup.py.


def test_time_of_the_import(capsys: pytest.CaptureFixture[str]) -> None:
    assert startup.main(["--runs", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["runs"] == 1 and result["bar"] == 0.15
    assert 0 < result["modules_of_undivided"] < result["modules"]
    assert result["modules_of_numpy_alone"] < result["modules"]
    assert "bare interpreter" in startup.time_text(result)


def test_size_of_a_wheel_and_its_dependencies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pip")
    wheel = tmp_path / "undivided-9.0-py3-none-any.whl"
    record = "undivided-9.0.dist-info"
    needs = ["numpy>=1.26", "click (>=8) ; python_version >= '3'", 'torch ; extra == "bench"']
    needs += ["no-such-package; sys_platform == 'nowhere'"]
    lines = ["Metadata-Version: 2.1", "Name: undivided", "Version: 9.0"]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("undivided/data.bin", bytes(123_456))
        archive.writestr(
            f"{record}/METADATA", "\n".join(lines + [f"Requires-Dist: {each}" for each in needs])
        )
        archive.writestr(
            f"{record}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        names = ["undivided/data.bin", *(f"{record}/{n}" for n in ("METADATA", "WHEEL", "RECORD"))]
        archive.writestr(f"{record}/RECORD", "".join(f"{name},,\n" for name in names))
    assert startup.main(["--size", "--wheel", str(wheel), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["packages"]) == {"undivided", "click"}
    assert 123_456 < result["packages"]["undivided"] < 130_000
    assert result["bytes"] == sum(result["packages"].values())
    assert result["holds"] is True
    assert "click" in startup.size_text(result)


def test_what_cannot_be_measured_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        startup.main(["--wheel", "x.whl"])
    pytest.importorskip("pip")
    assert startup.main(["--size", "--wheel", str(tmp_path / "missing.whl")]) == 1
    assert "startup.py: " in capsys.readouterr().err


def test_recipes_have_bars_and_meet_them(capsys: pytest.CaptureFixture[str]) -> None:
    """One that is trained in a moment; the others are left to the script."""
    import recipes

    assert {bar.recipe for bar in recipes.BARS} <= set(undivided.recipes())
    assert recipes.main(["iris-attention", "--seeds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("iris-attention       % of held-out rows")
    assert "MISSED" not in "".join(lines)


def test_recipes_of_series_beside_an_mlp(capsys: pytest.CaptureFixture[str]) -> None:
    if find_spec("aeon") is None:
        pytest.skip("aeon is not installed")
    import recipes

    assert recipes.main(["time-series-motions", "--seeds", "1"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("time-series-motions: accuracy of attention ")
    assert ", MLP-1 " in last and ", MLP-2 " in last and last.endswith(": attention wins.")


@pytest.mark.parametrize("name", ["text-classifier", "time-series"])
def test_rivals_are_as_large_and_without_attention(name: str) -> None:
    import recipes

    network = undivided.override(
        undivided.recipe(name), {"data.count": 40, "data.test": 10, "train.epochs": 1}
    )
    data = recipes.open_network_data(network)
    size = network.plan().parameter_count
    found = recipes.rivals(network, data, size)
    assert list(found) == ["MLP-1", "MLP-2"] + ["bag of words"] * (name == "text-classifier")
    for rival, given in found.values():
        plan = rival.plan()
        assert abs(plan.parameter_count - size) < 0.02 * size
        assert not any(operation.kind == "attention" for operation in plan.operations)
        undivided.Model(rival).fit(given.train, given.test)
