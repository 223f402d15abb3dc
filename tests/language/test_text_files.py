"""Reading from files, with all that can be wrong with a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from undivided.errors import LanguageError
from undivided.language import read
from undivided.layers import Flatten

TEXT = "network N {\n  input: (3)\n  layers: Flatten\n}\n"


def error(path: str | Path) -> str:
    with pytest.raises(LanguageError) as caught:
        read(path)
    return str(caught.value)


def test_text_with_and_without_byte_order_mark(tmp_path: Path) -> None:
    for encoding in ("utf-8", "utf-8-sig"):
        path = tmp_path / "n.neural"
        path.write_text(TEXT, encoding=encoding)
        assert read(path).layers == read(str(path)).layers == (Flatten(),)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "n.neural"
    path.write_text(TEXT.replace("Flatten", "Flaten"), encoding="utf-8-sig")
    assert error(path) == (
        f"{path}:3:11: There is no layer 'Flaten'. Did you mean 'Flatten'?\n"
        "  3 |   layers: Flaten\n"
        "    |           ^^^^^^"
    )


def test_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "digits.neural").touch()
    (tmp_path / "digit.txt").touch()
    missing = tmp_path / "digit.neural"
    assert error(missing) == f"{missing}: There is no such file. Did you mean 'digits.neural'?"
    assert error(tmp_path / "x") == f"{tmp_path / 'x'}: There is no such file."
    assert error("no folder/x.neural") == "no folder/x.neural: There is no such file."
    assert error(tmp_path / "bad\nname").endswith("bad�name: There is no such file.")


def test_a_folder(tmp_path: Path) -> None:
    assert error(tmp_path) == f"{tmp_path}: This is a folder, not a file."
    (tmp_path / "b.neural").touch()
    (tmp_path / "a.neural").touch()
    assert error(tmp_path) == (
        f"{tmp_path}: This is a folder, not a file. Name a file in it, such as 'a.neural'."
    )


def test_names_that_no_file_has() -> None:
    assert error("a\0b") == "a�b: This file cannot be read: embedded null byte."
    assert "This file cannot be read: File name too long." in error("a" * 5000)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_must_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "n.neural"
    path.write_text(TEXT)
    path.chmod(0)
    assert error(path) == f"{path}: This file cannot be read: Permission denied."


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "n.neural"
    path.write_bytes(b"\xef\xbb\xbfnetwork N {\n  # caf\xe9\n}")
    assert error(path) == (
        f"{path}:2:8: The byte 0xe9 is not UTF-8 text. Save the file as UTF-8.\n"
        "  2 |   # caf�\n"
        "    |        ^"
    )
    path.write_text(TEXT, encoding="utf-16")
    assert "The byte 0xff is not UTF-8 text. The file is UTF-16: save the file as UTF-8." in (
        error(path)
    )


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "n.neural"
    path.write_bytes(b" " * 4_000_001)
    assert error(path) == f"{path}: a network's text has at most 4,000,000 characters."
    if Path("/dev/zero").exists():
        assert "has at most 4,000,000 characters" in error("/dev/zero")
