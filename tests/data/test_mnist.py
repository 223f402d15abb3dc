"""Where MNIST is looked for, what is checked, and the real files if they are at hand."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from undivided.data import mnist
from undivided.errors import DataError

NAMES = [f"{p}-{k}-ubyte" for p in ("train", "t10k") for k in ("images-idx3", "labels-idx1")]
MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
REAL = os.environ.get("UNDIVIDED_DATA", "")


@pytest.fixture
def places(tmp_path, monkeypatch) -> dict[str, Path]:
    """The three roots that are searched, none of which exists yet."""
    roots = {name: tmp_path / name for name in ("variable", "work", "cache")}
    roots["work"].mkdir()
    monkeypatch.chdir(roots["work"])
    monkeypatch.setenv("UNDIVIDED_DATA", str(roots["variable"]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(roots["cache"]))
    return {
        "variable": roots["variable"],
        "work": roots["work"] / "data",
        "cache": roots["cache"] / "undivided",
    }


def error_of(folder: Path | str | None) -> str:
    with pytest.raises(DataError) as caught:
        mnist(folder)
    return str(caught.value)


@pytest.mark.parametrize("spelling", ["-", "."])
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("inside", ["", "mnist"])
def test_every_spelling(tmp_path, write_mnist, spelling, compress, inside):
    write_mnist(tmp_path / inside, spelling=spelling, compress=compress)
    dataset = mnist(tmp_path)
    assert dataset.name == "mnist"
    assert dataset.classes == 10
    assert dataset.train.sample_shape == (28, 28)
    assert dataset.train.x.dtype == np.uint8
    assert dataset.train.y.tolist() == [*range(10), 0, 1]
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test)) == (12, 5)


def test_spellings_may_be_mixed(tmp_path, write_mnist):
    write_mnist(tmp_path)
    (tmp_path / NAMES[0]).rename(tmp_path / "train-images.idx3-ubyte")
    assert len(mnist(tmp_path).train) == 12


def test_the_order_of_the_search(places, write_mnist):
    order = [
        folder
        for root in ("variable", "work", "cache")
        for folder in (places[root], places[root] / "mnist")
    ]
    for folder in order:
        write_mnist(folder)
    for folder in order:  # only the folder that should win has black images
        file = folder / NAMES[0]
        content = bytearray(file.read_bytes())
        content[16:] = bytes(len(content) - 16)
        file.write_bytes(content)
        assert not mnist().train.x.any(), folder
        file.unlink()


def test_a_folder_with_some_of_the_files_is_passed_over(places, write_mnist):
    write_mnist(places["variable"])
    (places["variable"] / NAMES[3]).unlink()
    write_mnist(places["cache"])
    assert len(mnist().train) == 12


def test_an_empty_variable_and_a_relative_cache_are_ignored(places, write_mnist, monkeypatch):
    home = places["work"].parent / "home"
    monkeypatch.setenv("UNDIVIDED_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(home))
    assert "Looked in:\n  ./data: no such folder" in error_of(None)
    write_mnist(home / ".cache" / "undivided" / "mnist")
    assert len(mnist().train) == 12


def test_the_home_folder_is_expanded(places, write_mnist, monkeypatch):
    monkeypatch.setenv("HOME", str(places["work"]))
    write_mnist(places["work"] / "sets")
    assert len(mnist("~/sets").train) == 12


def test_missing_everywhere(places, write_mnist):
    write_mnist(places["variable"])
    (places["variable"] / NAMES[1]).unlink()
    (places["variable"] / NAMES[2]).unlink()
    places["cache"].mkdir(parents=True)
    (places["cache"] / "mnist").write_text("a file")
    lines = error_of(None).splitlines()
    assert lines[:-1] == [
        "MNIST was not found. Looked in:",
        f"  {places['variable']}: train-labels-idx1-ubyte, t10k-images-idx3-ubyte missing",
        f"  {places['variable'] / 'mnist'}: no such folder",
        "  ./data: no such folder",
        "  ./data/mnist: no such folder",
        f"  {places['cache']}: none of the four files",
        f"  {places['cache'] / 'mnist'}: not a folder",
    ]
    assert lines[-1].startswith(f"Put {', '.join(NAMES)}, each with or without .gz, into ./data/")
    assert (
        "mnist(folder=...), --data FOLDER, or the environment variable UNDIVIDED_DATA" in lines[-1]
    )


def test_a_given_folder_is_the_only_one(places, write_mnist, tmp_path):
    for root in places.values():
        write_mnist(root)
    message = error_of(tmp_path / "given")
    assert message.splitlines()[1:-1] == [
        f"  {tmp_path / 'given'}: no such folder",
        f"  {tmp_path / 'given' / 'mnist'}: no such folder",
    ]
    assert f"into {tmp_path / 'given'}, or" in message
    assert "no such folder" in error_of("a\0b")


def test_images_of_another_size(tmp_path, write_mnist, idx_bytes):
    write_mnist(tmp_path)
    (tmp_path / NAMES[0]).write_bytes(idx_bytes(np.zeros((12, 28, 27))))
    assert error_of(tmp_path) == (
        f"{tmp_path / NAMES[0]}: expected images of 28x28 pixels; the header declares 28x27. "
        "This is not MNIST: save other images as .npz."
    )


def test_images_and_labels_exchanged(tmp_path, write_mnist, idx_bytes):
    write_mnist(tmp_path)
    (tmp_path / NAMES[0]).write_bytes(idx_bytes(np.zeros(12)))
    assert f"{tmp_path / NAMES[0]}: expected rank 3; the header declares 1." in error_of(tmp_path)
    write_mnist(tmp_path)
    (tmp_path / NAMES[3]).write_bytes(idx_bytes(np.zeros((5, 28, 28))))
    assert f"{tmp_path / NAMES[3]}: expected rank 1; the header declares 3." in error_of(tmp_path)


def test_different_counts(tmp_path, write_mnist, idx_bytes):
    write_mnist(tmp_path)
    (tmp_path / NAMES[3]).write_bytes(idx_bytes(np.zeros(4)))
    assert error_of(tmp_path) == (
        f"{tmp_path / NAMES[3]}: expected 5 labels, one for each image in {NAMES[2]}; there are 4. "
        "The two are not of the same set."
    )


def test_a_label_out_of_range_is_named(tmp_path, write_mnist, idx_bytes):
    write_mnist(tmp_path)
    labels = np.arange(12) % 10
    labels[7] = labels[9] = 10
    (tmp_path / NAMES[1]).write_bytes(idx_bytes(labels))
    assert error_of(tmp_path) == (
        f"{tmp_path / NAMES[1]}: expected labels from 0 to 9; label 7 is 10. "
        "The file is damaged or not MNIST."
    )


def test_a_damaged_file_is_named_not_passed_over(places, write_mnist):
    write_mnist(places["variable"], compress=True)
    write_mnist(places["cache"])
    file = places["variable"] / f"{NAMES[2]}.gz"
    file.write_bytes(file.read_bytes()[:-20])
    assert error_of(None).startswith(f"{file}: the gzip stream is cut off")


@pytest.mark.skipif(
    not REAL or not any(list(Path(REAL, sub).glob("train-images*")) for sub in ("", "mnist")),
    reason="the environment variable UNDIVIDED_DATA names no folder with the MNIST files",
)
def test_the_real_files(idx_bytes, little_memory):
    with little_memory(70_000 * 784 + 2_000_000):  # all pixels once, and little more
        dataset = mnist(REAL)
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test)) == (60_000, 10_000)
    for part, split in (("train", dataset.train), ("t10k", dataset.test)):
        for kind, array in (("images-idx3", split.x), ("labels-idx1", split.y)):
            name = f"{part}-{kind}-ubyte"
            assert hashlib.md5(idx_bytes(array), usedforsecurity=False).hexdigest() == MD5[name]
