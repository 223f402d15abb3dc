"""`undivided train`: what it prints, writes and refuses."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from small_program import ENGINES, NETWORK, Run, arrays

import undivided
from undivided.cli import main
from undivided.training.logs import Log

EPOCH = re.compile(r"Epoch (\d+) \| loss=\d+\.\d{6} \| time=\d+\.\d{3}s \| test_acc=\d+\.\d{2}%")


def epochs_of(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("Epoch ")]


class TestOutput:
    def test_what_it_prints(self, run: Run) -> None:
        lines = run("train", "small.neural").stdout.splitlines()
        parameters = undivided.read("small.neural").plan().parameter_count
        assert lines[:6] == [
            f"Network    Small, {parameters:,} parameters",
            "Data       small.npz, 64 training and 32 test samples of 4×4",
            "Engine     reference",
            "Optimizer  Adam(learning_rate=0.02)",
            "Training   3 epochs, batch 16, seed 5",
            "Model      small.safetensors",
        ]
        assert [int(EPOCH.fullmatch(line)[1]) for line in lines[6:9]] == [1, 2, 3]  # type: ignore[index]
        accuracy = lines[8].split("=")[-1]
        size = os.path.getsize("small.safetensors")
        assert lines[9] == f"Final test accuracy: {accuracy}"
        assert re.fullmatch(
            r"Time: load \d+\.\d\ds \| train \d+\.\d\ds \| total \d+\.\d\ds", lines[10]
        )
        assert lines[11:] == [f"Saved small.safetensors ({size:,} bytes)"]

    def test_the_model_is_that_of_python(self, run: Run) -> None:
        run("train", "small.neural")
        network = undivided.read("small.neural")
        data = undivided.datasets.open_data("small.npz")
        model = undivided.Model(network)
        model.fit(data.train)
        saved = undivided.load("small.safetensors")
        assert saved.epochs == 3
        for name, values in model.parameters.items():
            assert np.array_equal(saved.parameters[name], values)

    def test_without_test_samples(self, run: Run) -> None:
        x, y = arrays(20, 0)
        np.savez("all.npz", x=x, y=y)
        lines = run("train", "small.neural", "--data", "all.npz").stdout.splitlines()
        assert lines[1] == "Data       all.npz, 20 training samples of 4×4"
        assert re.fullmatch(r"Epoch 3 \| loss=\d\.\d{6} \| time=\d\.\d{3}s", lines[8])
        assert lines[9] == f"Final loss: {lines[8].split('=')[1].split(' ')[0]}"

    def test_one_is_not_plural(self, run: Run) -> None:
        output = run("train", "small.neural", "-e", 1, "-l", 1).stdout
        assert "Training   1 epoch, batch 16, seed 5" in output
        assert "Optimizer  Adam(learning_rate=1.0)" in output


class TestFlags:
    @pytest.mark.parametrize("flag", ["--epochs", "-e"])
    def test_epochs(self, run: Run, flag: str) -> None:
        assert len(epochs_of(run("train", "small.neural", flag, 2).stdout)) == 2
        assert undivided.load("small.safetensors").network.train.epochs == 2

    @pytest.mark.parametrize("flag", ["--batch", "-b"])
    def test_batch(self, run: Run, flag: str) -> None:
        run("train", "small.neural", flag, 64)
        model = undivided.load("small.safetensors")
        assert model.steps == 3 and model.network.train.batch_size == 64

    @pytest.mark.parametrize("flag", ["--lr", "-l"])
    def test_lr(self, run: Run, flag: str) -> None:
        output = run("train", "small.neural", flag, "5e-3").stdout
        assert "Optimizer  Adam(learning_rate=0.005)" in output
        assert undivided.load("small.safetensors").network.optimizer == undivided.Adam(0.005)

    def test_lr_takes_the_place_of_a_schedule(self, run: Run) -> None:
        text = NETWORK.replace("0.02", "ExponentialDecay(0.02, 100, 0.9)")
        Path("decay.neural").write_text(text)
        assert "ExponentialDecay(initial_learning_rate=0.02" in run("train", "decay.neural").stdout
        run("train", "decay.neural", "--lr", "0.02")
        run("train", "small.neural")
        one, other = undivided.load("decay.safetensors"), undivided.load("small.safetensors")
        assert one.network == other.network
        assert np.array_equal(one.parameters["dense_1.weight"], other.parameters["dense_1.weight"])

    @pytest.mark.parametrize("flag", ["--seed", "-s"])
    @pytest.mark.parametrize("seed", [0, 2**64 - 1])
    def test_seed(self, run: Run, flag: str, seed: int) -> None:
        output = run("train", "small.neural", flag, seed).stdout
        assert f"seed {seed}\n" in output
        assert undivided.load("small.safetensors").seed == seed

    def test_the_seed_decides(self, run: Run) -> None:
        losses = [
            [
                line.split(" | ")[1]
                for line in epochs_of(run("train", "small.neural", "-s", s).stdout)
            ]
            for s in (5, 6, 5)
        ]
        assert losses[0] == losses[2] != losses[1]

    @pytest.mark.parametrize("flag", ["--data", "-d"])
    def test_data(self, run: Run, flag: str) -> None:
        os.makedirs("elsewhere")
        os.rename("small.npz", "elsewhere/mine.npz")
        output = run("train", "small.neural", flag, "elsewhere/mine.npz").stdout
        assert "Data       elsewhere/mine.npz, 64 training" in output
        assert "loss=" in run("evaluate", "small.safetensors").stdout  # it travels in the model

    @pytest.mark.parametrize("engine", ENGINES)
    def test_engine_and_threads(self, run: Run, engine: str) -> None:
        output = run("train", "small.neural", "--engine", engine, "--threads", 1).stdout
        line = next(line for line in output.splitlines() if line.startswith("Engine"))
        if engine == "native":
            assert re.fullmatch(r"Engine     native, 1 thread, \S+", line)
        else:
            assert line == "Engine     reference"

    def test_out(self, run: Run) -> None:
        os.makedirs("models")
        output = run("train", "small.neural", "--out", "models/mine.bin").stdout
        assert "Model      models/mine.bin\n" in output and "Saved models/mine.bin (" in output
        assert undivided.load("models/mine.bin").epochs == 3
        assert not os.path.exists("small.safetensors")

    def test_log(self, run: Run) -> None:
        output = run("train", "small.neural", "--log", "new/log.csv").stdout
        assert "Log        new/log.csv\n" in output
        lines = Path("new/log.csv").read_text().splitlines()
        assert lines[0] == "epoch,loss,time,test_accuracy"
        for line, printed in zip(lines[1:], epochs_of(output), strict=True):
            epoch, loss, time, accuracy = line.split(",")
            assert printed == (f"Epoch {epoch} | loss={loss} | time={time}s | test_acc={accuracy}%")

    def test_log_takes_the_place_of_the_networks(self, run: Run) -> None:
        text = NETWORK.replace("seed: 5", 'seed: 5 log: "logs/own.txt"')
        Path("logging.neural").write_text(text)
        run("train", "logging.neural", "--log", "other.csv")
        assert os.path.exists("other.csv") and not os.path.exists("logs")
        run("train", "logging.neural")
        assert len(Path("logs/own.txt").read_text().splitlines()) == 4

    def test_quiet(self, run: Run) -> None:
        assert run("train", "small.neural", "--quiet").stdout == ""
        assert os.path.exists("small.safetensors")


def test_a_full_disk_loses_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write, lines = Log._write, []

    def full(log: Log, line: str) -> None:
        lines.append(line)
        if len(lines) == 3:  # the head, the first epoch, and then
            raise OSError(errno.ENOSPC, "No space left on device")
        write(log, line)

    monkeypatch.setattr(Log, "_write", full)
    result = run("train", "small.neural", "--log", "log.csv", "-e", 5, code=1)
    assert "in all, is saved in small.safetensors.\n" in result.stderr
    assert result.stderr.endswith(
        "No space left on device, where the output goes. Make room there.\n"
    )
    assert undivided.load("small.safetensors", engine="reference").epochs in (1, 2)


class TestTargets:
    def test_a_recipe(self, run: Run) -> None:
        output = run("train", "digits-attention", "--engine", "reference", "-e", 1).stdout
        assert output.startswith(
            "Network    DigitsAttention, 9,610 parameters\nData       digits, "
        )
        assert undivided.load("digits-attention.safetensors", engine="reference").epochs == 1

    def test_a_recipe_wins_over_a_file_without_an_ending(self, run: Run) -> None:
        Path("digits-attention").write_text(NETWORK)
        arguments = ("--engine", ENGINES[-1], "--epochs", 1)
        assert "DigitsAttention" in run("train", "digits-attention", *arguments).stdout
        assert "Network    Small" in run("train", "./digits-attention").stdout

    def test_a_network_of_the_guide(self, run: Run) -> None:
        data = ("--set", "data=random(count=8, test=4)", "-e", 1)
        run("train", "guide/TimeSeriesAttention", *data, "--engine", "reference")
        assert os.path.exists("TimeSeriesAttention.safetensors")

    def test_any_other_name_may_be_a_file(self, run: Run) -> None:
        os.rename("small.neural", "mine")
        assert "Saved mine.safetensors" in run("train", "mine").stdout

    @pytest.mark.parametrize(
        ("target", "text"),
        [
            ("mnist-atention", "named 'mnist-atention'. Did you mean 'mnist-attention'? The reci"),
            ("smal", "There is neither a recipe nor a file named 'smal'."),
            ("smal.neural", "There is no file 'smal.neural'. Did you mean 'small.neural'?"),
            ("nowhere/small.neural", "There is no file 'nowhere/small.neural'."),
            ("", "There is neither a recipe nor a file named ''."),
            (".", "'.' is a folder. Name a .neural file in it."),
            ("nul\0l.neural", "There is no file"),
            ("n" * 5000, "There is neither a recipe nor a file named"),
        ],
    )
    def test_what_is_not_there(self, run: Run, target: str, text: str) -> None:
        assert text in run("train", target, code=2).stderr

    def test_no_target(self, run: Run) -> None:
        assert "Missing argument 'RECIPE|FILE'" in run("train", code=2).stderr


class TestRefusals:
    @pytest.mark.parametrize(
        ("flag", "value", "text"),
        [
            ("--epochs", "x", "--epochs must be a whole number ≥ 1. Got 'x'."),
            ("--epochs", "0", "--epochs must be a whole number ≥ 1. Got '0'."),
            ("-e", "1.5", "--epochs must be a whole number ≥ 1. Got '1.5'."),
            ("--batch", "-3", "--batch must be a whole number ≥ 1. Got '-3'."),
            ("-b", "1_0", "--batch must be a whole number ≥ 1. Got '1_0'."),
            ("--lr", "fast", "--lr must be a number > 0. Got 'fast'."),
            ("--lr", "nan", "--lr must be a number > 0. Got 'nan'."),
            ("--lr", "inf", "--lr must be a number > 0. Got 'inf'."),
            ("-l", "-1", "--lr must be a number > 0. Got '-1'."),
            ("-l", "0", "--lr must be a number > 0. Got '0'."),
            (
                "--seed",
                str(2**64),
                f"--seed must be a whole number from 0 to {2**64 - 1}. Got '{2**64}'.",
            ),
            ("-s", "-1", f"--seed must be a whole number from 0 to {2**64 - 1}. Got '-1'."),
            ("-s", "9" * 9999, f"--seed must be a whole number from 0 to {2**64 - 1}. Got '99"),
            ("--threads", "0", "--threads must be a whole number from 1 to 1024. Got '0'."),
            ("--threads", "1025", "--threads must be a whole number from 1 to 1024. Got '1025'."),
            (
                "--engine",
                "natve",
                "--engine must be native or reference. Got 'natve'. Did you mean 'native'?",
            ),
        ],
    )
    def test_values(self, run: Run, flag: str, value: str, text: str) -> None:
        result = run("train", "small.neural", flag, value, code=2)
        assert text in result.stderr and result.stdout == ""
        assert not os.path.exists("small.safetensors")

    def test_flags(self, run: Run) -> None:
        assert (
            "Did you mean '--epochs'" in run("train", "small.neural", "--epoch", 3, code=2).stderr
        )
        assert (
            "'--epochs' requires an argument"
            in run("train", "small.neural", "--epochs", code=2).stderr
        )
        assert "unexpected extra argument" in run("train", "small.neural", "x", code=2).stderr

    def test_a_text_that_is_no_network(self, run: Run) -> None:
        Path("bad.neural").write_text(NETWORK.replace("Dense(8)", "Danse(8)"))
        text = run("train", "bad.neural", code=1).stderr
        assert text.startswith("Error: bad.neural:7:") and "Did you mean 'Dense'?" in text

    def test_a_network_without_a_plan(self, run: Run) -> None:
        Path("bad.neural").write_text(
            NETWORK.replace("MultiHeadAttention(2)", "MultiHeadAttention(3)")
        )
        assert "a width that 3 heads divide evenly" in run("train", "bad.neural", code=1).stderr

    def test_a_model_is_no_text(self, run: Run) -> None:
        run("train", "small.neural")
        assert "Error: small.safetensors" in run("train", "./small.safetensors", code=1).stderr

    def test_data_that_is_not_there(self, run: Run) -> None:
        text = run("train", "small.neural", "--data", "smal.npz", code=1).stderr
        assert "smal.npz: there is no such file or folder. Did you mean 'small.npz'?" in text
        assert (
            "MNIST was not found. Looked in:"
            in run("train", "small.neural", "--data", "mnist", code=1).stderr
        )

    def test_no_data_named(self, run: Run) -> None:
        Path("none.neural").write_text(NETWORK.replace('data: "small.npz"', ""))
        text = run("train", "none.neural", code=2).stderr
        assert (
            "Small does not say what it is trained on. Name it with --data: mnist, digits" in text
        )

    def test_data_of_another_shape(self, run: Run) -> None:
        text = run("train", "small.neural", "--data", "digits", code=1).stderr
        assert text == (
            "Error: The samples of digits are 8×8, and Small takes 4×4. "
            "Name other data with --data, or change the network's input.\n"
        )

    def test_data_with_more_classes(self, run: Run) -> None:
        x, y = arrays(20, 0)
        np.savez("more.npz", x=x, y=y + 10)
        text = run("train", "small.neural", "-d", "more.npz", code=1).stderr
        assert "but the network has 3 outputs: classes 0 to 2." in text

    def test_data_without_classes(self, run: Run) -> None:
        x, y = arrays(20, 0)
        np.savez("values.npz", x=x, y=y / 2)
        text = run("train", "small.neural", "-d", "values.npz", code=1).stderr
        assert "Error: train.y must hold whole class numbers; it is float32." in text

    @pytest.mark.parametrize(
        ("flag", "value", "text"),
        [
            ("--out", "missing/model", "'missing/model' cannot be written: there is no folder"),
            ("--out", ".", "'.' cannot be written: it is a folder."),
            ("--log", "small.npz/log", "The log 'small.npz/log' cannot be written: "),
        ],
    )
    def test_places_are_tried_before_training(
        self, run: Run, flag: str, value: str, text: str
    ) -> None:
        result = run("train", "small.neural", flag, value, code=1)
        assert text in result.stderr and epochs_of(result.stdout) == []

    def test_a_loss_that_is_not_finite(self, run: Run) -> None:
        Path("wild.neural").write_text(NETWORK.replace("Adam(learning_rate=0.02)", "SGD(1e30)"))
        result = run("train", "wild.neural", code=1)
        assert "Error: The loss of epoch 1, step " in result.stderr
        assert "The first number that is not: layer '" in result.stderr
        assert "A smaller learning rate is the usual cure." in result.stderr
        assert not os.path.exists("wild.safetensors")

    def test_a_network_larger_than_memory(self, run: Run) -> None:
        Path("vast.neural").write_text(NETWORK.replace("Dense(8)", "Dense(2000000000000)"))
        text = run("train", "vast.neural", code=1).stderr
        assert "Error: Small has " in text and "GiB. This machine has " in text


class TestStopping:
    """Ctrl-C where no process is needed to see it."""

    def stopped(self, monkeypatch: pytest.MonkeyPatch, place: str) -> Result:
        def stop(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(place, stop)
        result = CliRunner().invoke(main, ["train", "small.neural"])
        assert result.exit_code == 130
        assert not os.path.exists("small.safetensors")
        return result

    def test_while_reading_data(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        result = self.stopped(monkeypatch, "undivided.cli.session.open_network_data")
        assert result.stderr.strip() == "Stopped."

    def test_before_the_first_step(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        result = self.stopped(monkeypatch, "undivided.model.Model.fit")
        assert result.stderr == "Stopped before the first step; nothing is saved.\n"
