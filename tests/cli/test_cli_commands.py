"""The other commands: recipes, describe, evaluate, predict, demo; help and the program itself."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_program import ENGINES, NETWORK, Run, arrays

import undivided


@pytest.fixture
def model(run: Run) -> undivided.Model:
    """small.safetensors, trained."""
    run("train", "small.neural", "--quiet")
    return undivided.load("small.safetensors")


class TestProgram:
    def test_version(self, run: Run) -> None:
        assert run("--version").stdout == f"undivided {undivided.__version__}\n"

    @pytest.mark.parametrize("flag", ["--help", "-h"])
    def test_help(self, run: Run, flag: str) -> None:
        output = run(flag).stdout
        commands = [
            "demo",
            "describe",
            "evaluate",
            "generate",
            "predict",
            "recipes",
            "train",
            "view",
            "debug",
        ]
        for command in commands:
            assert f"\n  {command} " in output
            help_text = run(command, flag).stdout
            assert help_text.startswith(f"Usage: undivided {command} ")
        assert "..." not in output.split("Commands:")[1]  # each summary is whole

    def test_every_flag_says_what_it_is(self, run: Run) -> None:
        from undivided.cli.commands import main

        for command in main.commands.values():
            for parameter in command.params:
                if parameter.param_type_name == "option":
                    assert parameter.help, parameter.name  # type: ignore[attr-defined]

    def test_an_unknown_command(self, run: Run) -> None:
        text = run("trian", code=2).stderr
        assert (
            "There is no command 'trian'. Did you mean 'train'? The commands are debug, demo,"
            in text
        )

    def test_as_a_module(self, folder: Path) -> None:
        command = [sys.executable, "-m", "undivided", "recipes"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and "mnist-attention" in done.stdout


class TestRecipes:
    def test_they_are_listed(self, run: Run) -> None:
        page, _, of_the_guide = run("recipes").stdout.partition("\n\n")
        names = of_the_guide.splitlines()[1:]
        assert len(names) == 10 and "  guide/NLPAttention" in names
        lines = page.splitlines()
        names = [line.split()[0] for line in lines]
        assert names == list(undivided.recipes())
        assert {"digits-attention", "mnist-attention", "mnist-attention-64"} <= set(names)
        assert len({line.index("  ", max(map(len, names))) for line in lines}) == 1  # one column

    def test_one_is_printed_as_it_is(self, run: Run) -> None:
        output = run("recipes", "digits-attention").stdout
        assert output.startswith("# ")
        assert undivided.parse(output) == undivided.recipe("digits-attention")

    def test_an_unknown_one(self, run: Run) -> None:
        text = run("recipes", "digit-attention", code=2).stderr
        assert (
            "There is no recipe named 'digit-attention'. Did you mean 'digits-attention'?" in text
        )


class TestEvaluate:
    def test_on_the_test_samples_of_its_own_data(self, run: Run, model: undivided.Model) -> None:
        expected = model.evaluate(undivided.datasets.open_data("small.npz").test)
        assert run("evaluate", "small.safetensors").stdout == (
            "Small on 32 test samples of small.npz\n"
            f"loss={expected.loss:.6f} | test_acc={100 * expected.accuracy:.2f}%\n"
        )

    @pytest.mark.parametrize("engine", ENGINES)
    def test_on_other_data(self, run: Run, model: undivided.Model, engine: str) -> None:
        x, y = arrays(11, 5)
        np.savez("other.npz", x=x, y=y)
        output = run(
            "evaluate", "small.safetensors", "-d", "other.npz", "--engine", engine, "--threads", 1
        ).stdout
        expected = model.evaluate((x, y))
        assert output.startswith("Small on 11 samples of other.npz\n")
        assert f"test_acc={100 * expected.accuracy:.2f}%" in output

    def test_refusals(self, run: Run, model: undivided.Model) -> None:
        text = run("evaluate", "smal.safetensors", code=2).stderr
        assert "There is no model file 'smal.safetensors'. Did you mean 'small.safetens" in text
        text = run("evaluate", "small.npz", code=1).stderr
        assert "Error: small.npz: expected a whole safetensors file, found" in text
        text = run("evaluate", "small.safetensors", "--data", "digits", code=1).stderr
        assert "Error: The samples of digits are 8×8, and Small takes 4×4." in text
        os.remove("small.npz")
        text = run("evaluate", "small.safetensors", code=1).stderr
        assert "small.npz: there is no such file or folder." in text
        assert "--threads must be" in run("evaluate", "x", "--threads", "no", code=2).stderr


class TestPredict:
    def read(self, text: str) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(text)))

    def test_the_columns(self, run: Run, model: undivided.Model) -> None:
        rows = self.read(run("predict", "small.safetensors").stdout)
        test = undivided.datasets.open_data("small.npz").test
        assert list(rows[0]) == [
            "index", "label", "predicted", "probability_0", "probability_1", "probability_2",
        ]  # fmt: skip
        assert [int(row["index"]) for row in rows] == list(range(32))
        assert [int(row["label"]) for row in rows] == test.y.tolist()
        assert [int(row["predicted"]) for row in rows] == model.predict(test.x).tolist()
        probabilities = [[float(row[f"probability_{i}"]) for i in range(3)] for row in rows]
        assert np.allclose(probabilities, model.predict_proba(test.x), atol=1e-5)

    def test_into_a_file(self, run: Run, model: undivided.Model) -> None:
        output = run("predict", "small.safetensors", "--out", "p.csv").stdout
        assert output == "Wrote 32 predictions to p.csv\n"
        assert Path("p.csv").read_text() == run("predict", "small.safetensors").stdout

    def test_samples_without_labels(self, run: Run, model: undivided.Model) -> None:
        x, _ = arrays(7, 5)
        np.savez_compressed("x.npz", x=x.astype(float))
        rows = self.read(run("predict", "small.safetensors", "--data", "x.npz").stdout)
        assert "label" not in rows[0]
        assert [int(row["predicted"]) for row in rows] == model.predict(x).tolist()

    def test_many_samples(self, run: Run, model: undivided.Model) -> None:
        x, y = arrays(5000, 5)
        np.savez("many.npz", x=x, y=y)
        rows = self.read(run("predict", "small.safetensors", "--data", "many.npz").stdout)
        assert [int(row["index"]) for row in rows] == list(range(5000))

    def test_refusals(self, run: Run, model: undivided.Model) -> None:
        arguments = ("predict", "small.safetensors", "--data")
        np.savez("x.npz", x=np.full((2, 4, 4), np.nan))
        assert "is nan, which is not finite" in run(*arguments, "x.npz", code=1).stderr
        np.savez("x.npz", x=np.ones((2, 4, 4), int))
        assert "must be uint8 or floating point" in run(*arguments, "x.npz", code=1).stderr
        np.savez("x.npz", x=np.ones(()))
        assert "Error: " in run(*arguments, "x.npz", code=1).stderr
        np.savez("x.npz", x=np.ones((2, 5, 4)))
        assert "The samples of x.npz are 5×4" in run(*arguments, "x.npz", code=1).stderr
        np.savez("x.npz", z=np.ones((2, 4, 4)))
        assert "x and y are missing" in run(*arguments, "x.npz", code=1).stderr
        text = run("predict", "small.safetensors", "--out", "no/p.csv", code=1).stderr
        assert "'no/p.csv' cannot be written: there is no folder" in text
        assert "There is no model file 'none'." in run("predict", "none", code=2).stderr


class TestDescribe:
    @pytest.fixture(autouse=True)
    def page(self) -> None:
        pytest.importorskip("undivided.plan.describe")

    def test_a_file_a_recipe_and_a_model(self, run: Run, model: undivided.Model) -> None:
        page = run("describe", "small.neural").stdout
        assert page == undivided.read("small.neural").describe() + "\n"
        assert run("describe", "small.safetensors").stdout == page
        assert "3,114" in run("describe", "mnist-attention").stdout

    def test_json_and_graph(self, run: Run) -> None:
        assert isinstance(json.loads(run("describe", "small.neural", "--json").stdout), dict)
        assert "flowchart" in run("describe", "small.neural", "--graph").stdout
        text = run("describe", "small.neural", "--graph", "--json", code=2).stderr
        assert "--json and --graph are two answers. Ask for one." in text

    def test_refusals(self, run: Run) -> None:
        assert "nor a file named 'none'" in run("describe", "none", code=2).stderr
        assert "no model file" in run("describe", "none.safetensors", code=2).stderr
        Path("bad.neural").write_text(NETWORK + "}")
        assert "Error: bad.neural:" in run("describe", "bad.neural", code=1).stderr


class TestDemo:
    def test_it_learns_the_digits(self, run: Run) -> None:
        output = run("demo", "--engine", ENGINES[-1]).stdout
        accuracy = float(output.split("Final test accuracy: ")[1].split("%")[0])
        assert accuracy >= 95
        assert sorted(os.listdir("undivided-demo")) == [
            "digits.html",
            "digits.safetensors",
            "log.csv",
        ]
        assert "undivided-demo/digits.html shows what every head looks at" in output
        log = Path("undivided-demo/log.csv").read_text().splitlines()
        assert len(log) == 1 + undivided.recipe("digits-attention").train.epochs
        assert f"{accuracy:.2f}" == log[-1].split(",")[-1]
        evaluated = run("evaluate", "undivided-demo/digits.safetensors").stdout
        assert f"test_acc={accuracy:.2f}%" in evaluated
        # What it says to try next is there.
        suggested = output.split("Try next:")[1]
        for command in ("evaluate", "predict", "describe", "recipes", "train"):
            assert f"  undivided {command} " in suggested

    def test_where_no_folder_can_be_made(self, run: Run) -> None:
        Path("undivided-demo").write_text("in the way")
        assert "The folder 'undivided-demo' cannot be made here" in run("demo", code=1).stderr


class TestValues:
    """A network whose targets are values: training, testing and predicting say so."""

    TEXT = """
        network Line {
          input: (2)
          layers: Dense(2)
          loss: mse
          optimizer: SGD(learning_rate=0.1)
          train { epochs: 30 log: "log.csv" }
        }
    """

    def test_from_training_to_predictions(self, run: Run, folder: Path) -> None:
        (folder / "line.neural").write_text(self.TEXT)
        x = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
        y = np.stack([x[:, 0] - x[:, 1], 2 * x[:, 1]], axis=1)
        weights = np.ones(200)
        np.savez("line.npz", x=x, y=y, weights=weights, x_test=x[:3], y_test=y[:3])
        output = run("train", "line.neural", "--data", "line.npz").stdout
        assert "| test_mae=" in output
        assert "Final test loss: 0.000000 | test_mae=" in output
        assert Path("log.csv").read_text().startswith("epoch,loss,time,test_mae,test_r2\n1,")
        output = run("evaluate", "line.safetensors", "--data", "line.npz").stdout
        assert output.splitlines()[1].startswith("loss=0.000000 | test_mae=")
        assert output.endswith("| test_r2=1\n")
        table = run("predict", "line.safetensors", "--data", "line.npz").stdout.splitlines()
        assert table[0] == "index,target_0,target_1,predicted_0,predicted_1"
        cells = np.array([[float(cell) for cell in row.split(",")] for row in table[1:]])
        np.testing.assert_allclose(cells[:, 1:3], y[:3], rtol=1e-6)
        np.testing.assert_allclose(cells[:, 3:], y[:3], atol=1e-3)

    def test_targets_that_do_not_fit(self, run: Run, folder: Path) -> None:
        (folder / "line.neural").write_text(self.TEXT)
        np.savez("line.npz", x=np.ones((5, 2), "f4"), y=np.ones((5, 3), "f4"))
        text = run("train", "line.neural", "--data", "line.npz", code=1).stderr
        assert (
            "train.y must have a number for each output, shape (5, 2); its shape is (5, 3)." in text
        )
        np.savez("line.npz", x=np.ones((5, 2), "f4"), y=np.ones((5, 2)), weights=np.ones(4))
        text = run("train", "line.neural", "--data", "line.npz", code=1).stderr
        assert "line.npz: weights must have one number for each sample, shape (5,)" in text

    def test_yes_or_no_for_each_position(self, run: Run, folder: Path) -> None:
        (folder / "yes.neural").write_text(
            'network Yes { input: (3, 2) layers: Dense(1) loss: "binary_crossentropy" }'
        )
        x = np.random.default_rng(0).normal(size=(20, 3, 2)).astype(np.float32)
        np.savez("yes.npz", x=x, y=(x[:, :, 0] > 0).astype("f4"))
        run("train", "yes.neural", "--data", "yes.npz", "--quiet")
        table = run("predict", "yes.safetensors", "--data", "yes.npz").stdout.splitlines()
        assert table[0] == "index,position,target,predicted,probability_0"
        assert len(table) == 1 + 20 * 3
        assert table[4].startswith("1,0,")


def test_a_text_is_data_for_a_language_model(run: Run, folder: Path) -> None:
    (folder / "words.txt").write_text("the cat sat on the mat. " * 60)
    (folder / "words.neural").write_text(
        """
        network Words {
          input: (16)
          layers: Embedding(256, 8) TransformerDecoder(num_heads=2, d_model=8, dff=16) Dense(256)
          metrics: bits_per_character
          train { epochs: 2 }
        }
        """
    )
    output = run("train", "words.neural", "--data", "words.txt").stdout
    assert "81 training and 8 test samples of 16" in output
    assert "| test_bits_per_character=" in output
    text = run("train", "words.neural", "--data", "none.txt", code=1).stderr
    assert "none.txt: expected a text file; there is no such file" in text


def test_random_data_for_any_network(run: Run, folder: Path) -> None:
    (folder / "any.neural").write_text(
        "network Any { input: (3, 4) layers: Dense(5) Flatten Output(2) train { epochs: 1 } }"
    )
    output = run("train", "any.neural", "--data", "random").stdout
    assert "random, 1,024 training and 128 test samples of 3×4" in output
