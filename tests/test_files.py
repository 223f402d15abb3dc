"""Model files: they come back as they were, are whole or not there, and are not believed."""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import undivided
from undivided import (
    SGD,
    Adam,
    Dense,
    Dropout,
    Flatten,
    Model,
    ModelFileError,
    Network,
    Output,
    Train,
    UndividedError,
    files,
)

NETWORK = Network(
    name="Small",
    input=(3, 2),
    layers=(Flatten(), Dense(4, "relu"), Output(3)),
    data="digits",  # type: ignore[arg-type]
    optimizer=SGD(0.1),
    train=Train(batch_size=4, seed=3),
)
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 3, 2)), RNG.integers(0, 3, 20)


def trained(network: Network = NETWORK, epochs: int = 2) -> Model:
    model = Model(network, engine="reference")
    model.fit((X, Y), epochs=epochs)
    return model


def load(path: Path) -> Model:
    return undivided.load(path, engine="reference")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "small.safetensors"


@pytest.fixture
def saved(path: Path) -> Path:
    trained().save(path)
    return path


def refused(path: Path) -> str:
    """The text of the error that loading gives."""
    with pytest.raises(ModelFileError) as error:
        load(path)
    text = str(error.value)
    assert text.startswith(str(path))
    return text


class TestRoundTrip:
    def test_everything_comes_back(self, path: Path) -> None:
        model = trained()
        model.save(path)
        again = load(path)
        assert again.network == model.network
        assert (again.seed, again.epochs, again.steps) == (3, 2, 10)
        for name, values in model.parameters.items():
            assert np.array_equal(again.parameters[name], values)
        assert np.array_equal(again.logits(X), model.logits(X))

    def test_a_seed_of_ones_own_and_the_largest(self, path: Path) -> None:
        Model(NETWORK, seed=2**64 - 1, engine="reference").save(path)
        assert load(path).seed == 2**64 - 1

    def test_training_goes_on(self, path: Path) -> None:
        whole, half = trained(epochs=5), trained(epochs=2)
        half.save(path)
        again = load(path)
        history = again.fit((X, Y), epochs=3)
        # SGD keeps nothing and philox counts its shuffles, so not a bit is lost.
        assert [entry.epoch for entry in history] == [3, 4, 5]
        for name, values in whole.parameters.items():
            assert np.array_equal(again.parameters[name], values)

    @pytest.mark.parametrize("engine", ["native", "reference"])
    @pytest.mark.parametrize("optimizer", [SGD(0.1), Adam(0.01), SGD(0.1, momentum=0.9)], ids=str)
    def test_training_goes_on_to_the_bit(
        self, path: Path, engine: Literal["native", "reference"], optimizer: Any
    ) -> None:
        """With dropout, whose coins must not be those of the beginning again."""
        layers = (Flatten(), Dense(8, "relu"), Dropout(0.5), Output(3))
        network = Network((3, 2), layers, optimizer=optimizer, train=Train(batch_size=4))
        whole, half = Model(network, engine=engine), Model(network, engine=engine)
        whole.fit((X, Y), epochs=5)
        half.fit((X, Y), epochs=2)
        half.save(path, optimizer=bool(optimizer.kept()))
        again = undivided.load(path, engine=engine)
        again.fit((X, Y), epochs=3)
        for name, values in whole.parameters.items():
            assert np.array_equal(again.parameters[name], values)

    def test_averages_that_are_missing_or_of_another_shape(self, path: Path) -> None:
        trained(Network(NETWORK.input, NETWORK.layers, optimizer=Adam(0.01))).save(path, True)
        assert len(load_file(path)) == 3 * 4
        name = "optimizer/mean/dense_1.bias"
        rewrite(path, lambda header: header.update(other=header.pop(name)))
        assert f"12 tensors of its network, found 12; missing: {name!r}" in refused(path)
        trained().save(path, optimizer=True)  # SGD keeps nothing but its count
        assert load(path)._state.optimizer_steps == 10
        rewrite(path, lambda header: header["__metadata__"].update(optimizer_steps="x"))
        assert "expected a whole number as 'optimizer_steps'" in refused(path)

    def test_adam_starts_its_averages_anew(self, path: Path) -> None:
        network = Network(NETWORK.input, NETWORK.layers, optimizer=Adam(0.01))
        trained(network).save(path)
        before = load(path).parameters["dense_1.weight"]
        model = load(path)
        model.fit((X, Y), epochs=1, batch_size=20)
        # Adam's first step is at most the learning rate, if it is counted as the first.
        assert np.abs(model.parameters["dense_1.weight"] - before).max() < 0.0101

    def test_a_learning_rate_given_to_fit_is_in_the_file(self, path: Path) -> None:
        model = trained()
        model.fit((X, Y), learning_rate=0.5, epochs=1)
        model.save(path)
        assert load(path).network.optimizer == SGD(0.5)

    def test_names_of_classes_are_in_the_file(self, path: Path) -> None:
        model = trained()
        model.save(path)
        assert load(path).class_names is None
        model.class_names = ("one, two", "ü")
        model.save(path)
        assert load(path).class_names == ("one, two", "ü")

    def test_float64_is_rounded_to_float32(self, path: Path) -> None:
        model = Model(NETWORK, engine="reference", dtype="float64")
        model.parameters["dense_1.weight"][0, 0] = 1 / 3
        model.save(path)
        assert load(path).parameters["dense_1.weight"][0, 0] == np.float32(1 / 3)

    def test_others_can_read_it(self, saved: Path) -> None:
        with safe_open(saved, framework="numpy") as opened:
            metadata = opened.metadata()
        assert metadata["format"] == "undivided 1"
        assert metadata["version"] == undivided.__version__
        assert undivided.parse(metadata["network"]) == NETWORK
        tensors = load_file(saved)
        assert {n: a.dtype for n, a in tensors.items()} == dict.fromkeys(
            load(saved).parameters, np.dtype("f4")
        )

    def test_the_same_model_is_the_same_file(self, saved: Path, tmp_path: Path) -> None:
        load(saved).save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == saved.read_bytes()


class TestWriting:
    def test_only_the_file_is_left(self, saved: Path) -> None:
        assert os.listdir(saved.parent) == [saved.name]

    def test_it_is_as_readable_as_other_files(self, saved: Path) -> None:
        plain = saved.with_name("plain")
        plain.touch()
        assert stat.S_IMODE(saved.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)

    def test_a_link_stays_one(self, saved: Path) -> None:
        link = saved.with_name("link")
        link.symlink_to(saved)
        Model(NETWORK, seed=9, engine="reference").save(link)
        assert link.is_symlink() and load(saved).seed == 9

    @pytest.mark.parametrize("call", ["fsync", "replace"])
    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    def test_a_failure_on_the_way_leaves_the_old_file_and_nothing_else(
        self,
        saved: Path,
        monkeypatch: pytest.MonkeyPatch,
        call: str,
        error: BaseException,
    ) -> None:
        before = saved.read_bytes()

        def fail(*_: object) -> None:
            raise error

        monkeypatch.setattr(files.os, call, fail)
        expected = ModelFileError if isinstance(error, OSError) else KeyboardInterrupt
        with pytest.raises(expected):
            Model(NETWORK, seed=9, engine="reference").save(saved)
        monkeypatch.undo()
        assert saved.read_bytes() == before
        assert os.listdir(saved.parent) == [saved.name]

    def test_a_kill_while_writing_leaves_the_old_file(self, saved: Path) -> None:
        before = saved.read_bytes()
        child = os.fork()
        if not child:
            # The worst moment: the new file is written and has not got its name.
            files.os.replace = lambda *_: os._exit(9)  # type: ignore[assignment]
            Model(NETWORK, seed=9, engine="reference").save(saved)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        assert saved.read_bytes() == before

    def test_the_file_is_on_the_disk_before_it_has_its_name(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = []
        for name in ("fsync", "replace"):
            real = getattr(os, name)

            def record(*args: object, name: str = name, real: Callable = real) -> object:
                calls.append(name)
                return real(*args)

            monkeypatch.setattr(files.os, name, record)
        trained().save(path)
        assert calls == ["fsync", "replace", "fsync"]

    @pytest.mark.parametrize(
        ("place", "text"),
        [
            ("missing/model", "there is no folder"),
            (".", "it is a folder"),
            ("plain/model", "there is no folder"),
            ("n" * 300, "File name too long"),
            ("nul\0l", "null"),
        ],
    )
    def test_places_that_cannot_be_written(self, tmp_path: Path, place: str, text: str) -> None:
        (tmp_path / "plain").touch()
        target = f"{tmp_path}/{place}"
        for call in (trained().save, files.check_target):
            with pytest.raises(ModelFileError, match="cannot be written") as error:
                call(target)
            assert text in str(error.value)

    def test_a_device_is_not_replaced(self) -> None:
        with pytest.raises(ModelFileError, match="it is a device or pipe"):
            trained().save("/dev/null")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_without_permission(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        with pytest.raises(ModelFileError, match="Permission denied"):
            files.check_target(tmp_path / "model")


class TestDistrust:
    def test_missing(self, path: Path) -> None:
        assert refused(path).endswith("there is no such file.")

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "expected a model file, found a folder." in refused(tmp_path)

    def test_a_pipe_is_not_waited_for(self, path: Path) -> None:
        os.mkfifo(path)
        assert "found a device or pipe" in refused(path)

    @pytest.mark.parametrize("content", [b"", b"\0", b"\x08", b"PK\3\4" * 99, b"network Small {}"])
    def test_something_else(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        text = refused(path)
        assert "expected a whole safetensors file, found" in text
        assert text.endswith("Copy or save the file again.")

    def test_every_truncation(self, saved: Path) -> None:
        content = saved.read_bytes()
        for size in [*range(0, len(content), 37), len(content) - 1]:
            saved.write_bytes(content[:size])
            assert "expected a whole safetensors file" in refused(saved)

    def test_something_behind_it(self, saved: Path) -> None:
        saved.write_bytes(saved.read_bytes() + b"more")
        assert "expected a whole safetensors file" in refused(saved)

    @pytest.mark.parametrize("length", [2**63, 2**64 - 1, 10**9, 2**32])
    def test_a_header_longer_than_the_file_takes_no_memory(self, path: Path, length: int) -> None:
        path.write_bytes(struct.pack("<Q", length) + b"{" + b" " * 100)
        assert "expected a whole safetensors file, found 109 bytes" in refused(path)

    def test_not_of_undivided(self, path: Path) -> None:
        save_file({"weight": np.zeros(3, np.float32)}, path)
        assert "does not say that undivided wrote it. A model file comes from" in refused(path)

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"format": "undivided 99"}, "expected format 'undivided 1', found 'undivided 99'"),
            ({"network": None}, "expected the network's text in the metadata, found none"),
            ({"network": "network {"}, "the network in its metadata is not one:"),
            ({"network": "\x00" * 99}, "the network in its metadata is not one:"),
            ({"seed": "-1"}, "expected a whole number as 'seed' in the metadata, found '-1'"),
            ({"seed": str(2**64)}, "as 'seed' in the metadata"),
            ({"seed": "٣"}, "as 'seed' in the metadata"),
            ({"epochs": None}, "as 'epochs' in the metadata, found ''"),
            ({"steps": "9" * 99}, "as 'steps' in the metadata"),
            ({"generator": "1 2"}, "the state of the generator as 3 whole numbers, found 2"),
            ({"generator": "1 x 2"}, "as 'generator' in the metadata, found 'x'"),
            ({"classes": "a, b"}, "expected a list of names as 'classes', found 'a, b'"),
            ({"classes": '["a", 1]'}, "expected a list of names as 'classes'"),
            ({"classes": "[" * 99_999}, "expected a list of names as 'classes'"),
        ],
    )
    def test_metadata(self, saved: Path, change: dict[str, str | None], text: str) -> None:
        rewrite(saved, lambda header: header["__metadata__"].update(change))
        assert text in refused(saved)

    def test_a_network_without_a_plan(self, saved: Path) -> None:
        text = NETWORK.to_text().replace("Flatten()", "Patches(7)")
        rewrite(saved, lambda header: header["__metadata__"].update(network=text))
        assert "the network in its metadata has no plan: " in refused(saved)

    def test_a_network_of_impossible_size_takes_no_memory(self, saved: Path) -> None:
        text = NETWORK.to_text().replace("Dense(4", "Dense(4000000000000")
        assert text != NETWORK.to_text()
        rewrite(saved, lambda header: header["__metadata__"].update(network=text))
        assert "expected the tensor 'dense_1.weight' as F32 (6, 4000000000000)" in refused(saved)

    def test_tensors_of_another_network(self, saved: Path) -> None:
        rewrite(saved, lambda header: header.update(other=header.pop("output_1.bias")))
        text = refused(saved)
        assert "expected the 4 tensors of its network, found 4" in text
        assert "missing: 'output_1.bias'; not of this network: 'other'" in text

    def test_a_tensor_of_another_shape(self, saved: Path) -> None:
        rewrite(saved, lambda header: header["dense_1.weight"].update(shape=[4, 6]))
        assert "as F32 (6, 4), found F32 (4, 6)" in refused(saved)

    def test_a_tensor_of_another_type(self, saved: Path) -> None:
        rewrite(saved, lambda header: header["dense_1.weight"].update(dtype="I32"))
        assert "as F32 (6, 4), found I32 (6, 4)" in refused(saved)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_a_number_that_is_not_finite(self, path: Path, value: float) -> None:
        model = trained()
        model.parameters["output_1.bias"][1] = value
        model.save(path)
        assert "found others in the tensor 'output_1.bias'" in refused(path)


def rewrite(path: Path, change: Callable[[dict], object]) -> None:
    """Change a file's header and leave its tensors."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header)
    metadata = header["__metadata__"]
    header["__metadata__"] = {k: v for k, v in metadata.items() if v is not None}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


CONTENT: dict[str, bytes] = {}


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    changes=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=8)),
        min_size=1,
        max_size=6,
    ),
    in_header=st.booleans(),
)
def test_damaged_files_load_or_are_refused(
    tmp_path: Path, changes: list[tuple[float, bytes]], in_header: bool
) -> None:
    path = tmp_path / "model"
    if "model" not in CONTENT:
        trained().save(path)
        CONTENT["model"] = path.read_bytes()
    content = bytearray(CONTENT["model"])
    end = 8 + struct.unpack("<Q", content[:8])[0] if in_header else len(content)
    for place, piece in changes:
        start = int(place * end)
        content[start : start + len(piece)] = piece
    path.write_bytes(content)
    try:
        load(path)
    except UndividedError as error:
        assert isinstance(error, ModelFileError)
