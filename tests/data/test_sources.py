"""What a text or a flag can name as data, and what importing the readers costs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from undivided.data import BUILT_IN, open_data
from undivided.data.tasks import TASKS
from undivided.errors import DataError

KNOWN = (
    f"Data can be {', '.join(map(repr, BUILT_IN))}, the path of an .npz file with the arrays x "
    "and y, of a .ts file with time series, or a folder with the files of MNIST."
)


@pytest.fixture
def work(tmp_path, monkeypatch):
    """An empty current folder, far from any data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("UNDIVIDED_DATA", raising=False)
    return tmp_path


def save(path) -> None:
    path.parent.mkdir(exist_ok=True)
    np.savez(path, x=np.zeros((3, 2), np.uint8), y=np.arange(3))


def error_of(source: str, folder: str | None = None) -> str:
    with pytest.raises(DataError) as caught:
        open_data(source, folder)
    return str(caught.value)


def test_built_in_names(work, write_mnist):
    assert set(BUILT_IN) == {"mnist", "digits", "iris", *(n.replace("_", "-") for n in TASKS)}
    for name in set(BUILT_IN) - {"mnist"}:
        assert open_data(name).name == name.replace("-", "_")
    write_mnist(work / "data")
    assert len(open_data("mnist").train) == 12


def test_a_built_in_name_wins_over_a_folder(work, write_mnist):
    write_mnist(work / "mnist")
    assert "MNIST was not found" in error_of("mnist")
    assert len(open_data("./mnist").train) == 12


def test_mnist_in_a_folder(work, write_mnist):
    write_mnist(work / "data")
    assert "MNIST was not found" in error_of("mnist", str(work / "other"))
    write_mnist(work / "other")
    assert len(open_data("mnist", str(work / "other")).train) == 12
    assert len(open_data(str(work / "other")).train) == 12
    assert len(open_data("~/other").train) == 12


def test_npz_files(work):
    save(work / "sub" / "mine.npz")
    for source, folder in [
        ("sub/mine.npz", None),
        ("~/sub/mine.npz", None),
        (str(work / "sub" / "mine.npz"), None),
        ("mine.npz", "sub"),
        ("mine.npz", "~/sub"),
        (str(work / "sub" / "mine.npz"), "elsewhere"),
    ]:
        assert open_data(source, folder).name == "mine"


def test_a_file_may_have_any_name(work):
    save(work / "mine.npz")
    (work / "mine.npz").rename(work / "mine")
    assert len(open_data("mine").train) == 3
    (work / "table.csv").write_text("1,2,3")
    assert "table.csv: expected an .npz file (a zip archive)" in error_of("table.csv")


def test_a_folder_without_data(work):
    assert f"  {work}: none of the four files" in error_of(str(work))


def test_digits_are_in_no_folder(work):
    assert "'digits' comes with the package" in error_of("digits", "data")


def test_unknown_names(work):
    assert error_of("minst") == f"there is no data named 'minst'. Did you mean 'mnist'? {KNOWN}"
    assert error_of("Digits") == f"there is no data named 'Digits'. Did you mean 'digits'? {KNOWN}"
    for source in ("imagenet", "", "a\0b"):
        assert error_of(source) == f"there is no data named {source!r}. {KNOWN}"


def test_files_that_are_not_there(work):
    assert error_of("none.npz") == f"none.npz: there is no such file or folder. {KNOWN}"
    assert error_of("sub/none").startswith("sub/none: there is no such file or folder. Data can")
    save(work / "mine.npz")
    assert "folder. Did you mean 'mine.npz'? Data can" in error_of("mime.npz")
    assert "folder. Did you mean 'mine.npz'? Data can" in error_of("mime.npz", str(work))


def test_importing_is_cheap():
    """Archives are rarely read: what reads them is imported when it is."""
    script = (
        "import sys, numpy; before = set(sys.modules); import undivided.data; "
        "print(*{'zipfile', 'gzip', 'zlib', 'tempfile', 'ast'} & (set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""
