"""IDX files: the honest, and every way to be damaged or dishonest."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from undivided.data import read_idx
from undivided.errors import DataError

ARRAY = np.arange(30, dtype=np.uint8).reshape(5, 2, 3)
HEADER = bytes([0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 3])
WHOLE = HEADER + ARRAY.tobytes()
WAYS = pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])


def refused(file: Path, content: bytes, *texts: str, rank: int | None = None) -> None:
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_idx(file, rank=rank)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    for text in texts:
        assert text in message


@WAYS
@pytest.mark.parametrize("name", ["a.gz", "a"])
def test_gzip_is_told_by_content_not_name(tmp_path, pack, name):
    file = tmp_path / name
    file.write_bytes(pack(WHOLE))
    for path in (file, str(file)):
        array = read_idx(path, rank=3)
        assert array.dtype == np.uint8
        assert (array == ARRAY).all()


@pytest.mark.parametrize("shape", [(1,), (7,), (2, 3), (1, 2, 1, 2, 1, 2, 1, 2)])
def test_any_rank(tmp_path, idx_bytes, shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    (tmp_path / "a").write_bytes(idx_bytes(array))
    assert (read_idx(tmp_path / "a") == array).all()
    assert read_idx(tmp_path / "a").shape == shape


def test_gzip_in_several_members(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(WHOLE[:20]) + gzip.compress(WHOLE[20:]))
    assert (read_idx(tmp_path / "a") == ARRAY).all()


def test_the_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a").write_bytes(WHOLE)
    assert (read_idx("~/a") == ARRAY).all()


@pytest.mark.parametrize("length", range(1, len(HEADER)))
@WAYS
def test_truncated_in_the_header(tmp_path, pack, length):
    expected = 4 if length < 4 else len(HEADER)
    refused(
        tmp_path / "a",
        pack(WHOLE[:length]),
        f"expected an IDX header of {expected} bytes; the file ends after {length}",
    )


@pytest.mark.parametrize("length", range(len(HEADER), len(WHOLE)))
def test_truncated_in_the_data(tmp_path, length):
    found = length - len(HEADER)
    declared = "the header declares 5x2x3 = 30 bytes of data"
    few = f"{found}, {30 - found} too few. It is cut off or damaged"
    refused(tmp_path / "a", WHOLE[:length], f"{declared}; the file holds {few}")
    refused(
        tmp_path / "a", gzip.compress(WHOLE[:length]), f"{declared}; the stream ends after {few}"
    )


@pytest.mark.parametrize("length", range(2, len(gzip.compress(WHOLE))))
def test_truncated_gzip(tmp_path, length):
    content = gzip.compress(WHOLE)[:length]
    refused(tmp_path / "a", content, "the gzip stream is cut off", f"has {length} bytes")


def test_trailing_bytes(tmp_path):
    refused(tmp_path / "a", WHOLE + b"!", "declares 5x2x3 = 30", "the file holds 31, 1 too many")
    refused(tmp_path / "a", gzip.compress(WHOLE + b"!"), "the stream goes on after them")
    refused(
        tmp_path / "a", gzip.compress(WHOLE) + b"!!", "the gzip stream is damaged: Not a gzipped"
    )


def test_a_flipped_checksum_or_length(tmp_path):
    content = bytearray(gzip.compress(WHOLE))
    content[-8] ^= 1
    refused(tmp_path / "a", bytes(content), "the gzip stream is damaged: CRC check failed")
    content[-8] ^= 1
    content[-1] ^= 1
    refused(tmp_path / "a", bytes(content), "the gzip stream is damaged: Incorrect length")


def test_damaged_deflate(tmp_path):
    content = bytearray(gzip.compress(WHOLE))
    content[10:14] = b"\xff\xff\xff\xff"
    refused(tmp_path / "a", bytes(content), "the gzip stream is damaged", "Download it again")


@WAYS
def test_wrong_magic(tmp_path, pack):
    expected = "expected an IDX file, which starts with two zero bytes; this one starts with "
    refused(tmp_path / "a", pack(b"\1" + WHOLE[1:]), expected + r"b'\x01\x00\x08\x03'")
    refused(tmp_path / "a", pack(b"\0\1" + WHOLE[2:]), expected)
    refused(tmp_path / "a", pack(b"<html></html>"), expected + "b'<htm' (a web page, saved in")
    refused(tmp_path / "a", pack(b"5,0,0,255"), expected + "b'5,0,' (text)")
    refused(tmp_path / "a", pack(b"PK\3\4 and more"), expected + r"b'PK\x03\x04' (a zip archive)")


@WAYS
@pytest.mark.parametrize(
    ("code", "name"),
    [(0x09, "signed bytes"), (0x0D, "32-bit floats"), (0x0E, "64-bit floats"), (0, "no type that")],
)
def test_wrong_element_type(tmp_path, pack, code, name):
    content = bytes([0, 0, code]) + WHOLE[3:]
    expected = "expected elements of type 0x08, unsigned bytes; the third byte is "
    refused(tmp_path / "a", pack(content), f"{expected}0x{code:02X}, {name}", "as an .npz file")


@WAYS
def test_wrong_rank(tmp_path, pack):
    refused(tmp_path / "a", pack(WHOLE), "expected rank 1; the header declares 3.", rank=1)
    refused(tmp_path / "a", pack(WHOLE), "Were images and labels exchanged?", rank=1)
    for rank in (0, 9, 255):
        content = bytes([0, 0, 8, rank]) + bytes([0, 0, 0, 1]) * rank + b"!"
        refused(tmp_path / "a", pack(content), f"expected rank 1 to 8; the header declares {rank}.")


@WAYS
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_zero_sizes(tmp_path, pack, axis):
    content = bytearray(HEADER)
    content[7 + 4 * axis] = 0
    refused(tmp_path / "a", pack(bytes(content)), "expected at least one element", "which is empty")


@WAYS
@pytest.mark.parametrize("sizes", [[2**8, 2**16, 2**16], [2**32 - 1] * 3, [2**32 - 1] * 8])
def test_absurd_sizes_take_no_memory(tmp_path, little_memory, pack, sizes):
    header = bytes([0, 0, 8, len(sizes)]) + b"".join(n.to_bytes(4, "big") for n in sizes)
    held = "cannot hold so much even compressed" if pack is gzip.compress else "too few"
    with little_memory():
        refused(tmp_path / "a", pack(header + bytes(64)), "the header declares", held)


def test_more_than_half_the_memory(tmp_path, monkeypatch, little_memory):
    monkeypatch.setattr("undivided.data.reading.memory_limit", lambda: 29)
    for content in (WHOLE, gzip.compress(WHOLE)):
        with little_memory():
            refused(
                tmp_path / "a", content, "declares 30 bytes", "at most 29, half of this machine"
            )


def test_memory_that_is_not_to_be_had(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise MemoryError

    (tmp_path / "a").write_bytes(WHOLE)
    monkeypatch.setattr(np, "empty", full)
    with pytest.raises(DataError, match="not enough free memory for 30 bytes of data"):
        read_idx(tmp_path / "a")


def test_a_bomb_behind_a_small_header_is_not_decompressed(tmp_path, little_memory):
    content = gzip.compress(HEADER + bytes(20_000_000))
    with little_memory():
        refused(tmp_path / "a", content, "the stream goes on after them")


@WAYS
def test_reading_takes_the_memory_of_the_array_alone(tmp_path, idx_bytes, little_memory, pack):
    array = np.tile(np.arange(256, dtype=np.uint8), (32_000, 1)).reshape(8000, 32, 32)
    (tmp_path / "a").write_bytes(pack(idx_bytes(array)))
    with little_memory(array.nbytes + (1 << 20)):
        read = read_idx(tmp_path / "a")
    assert (read == array).all()


def test_what_is_no_file(tmp_path):
    for path, text in [
        (tmp_path / "none", "expected an IDX file; there is no such file."),
        (tmp_path, "expected an IDX file; this is a folder. Name the file itself."),
        ("a\0b", "embedded null"),
        ("a" * 5000, "File name too long"),
        (os.devnull, "this is not a plain file"),
    ]:
        with pytest.raises(DataError, match=re.escape(text)):
            read_idx(path)
    refused(tmp_path / "a", b"", "expected an IDX file; the file is empty (0 bytes).")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system here")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="this is not a plain file"):
        read_idx(tmp_path / "pipe")


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "a")

    (tmp_path / "a").write_bytes(WHOLE)
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(DataError, match=r"a: the file cannot be read: Permission denied\."):
        read_idx(tmp_path / "a")


def test_a_file_that_shrinks_while_it_is_read(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(WHOLE[:-4])
    monkeypatch.setattr("undivided.data.idx.plain_file", lambda path, _: (Path(path), len(WHOLE)))
    with pytest.raises(DataError, match="the stream ends after 26, 4 too few"):
        read_idx(tmp_path / "a")


@pytest.mark.parametrize("content", [WHOLE, gzip.compress(WHOLE, mtime=0)], ids=["plain", "gzip"])
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(data=st.data())
def test_mutations_load_or_give_a_data_error(scratch, content, data):
    mutated = bytearray(content)
    places = st.integers(0, len(content) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)):
        mutated[place] = byte
    cut = data.draw(st.integers(0, len(content)) | st.just(len(content)))
    file = scratch / "mutated"
    file.write_bytes(mutated[:cut])
    try:
        array = read_idx(file)
    except DataError:
        return
    assert array.dtype == np.uint8
    assert array.size > 0
