"""npz files: types and layouts that are read, and every way to be damaged or dishonest."""

from __future__ import annotations

import io
import pathlib
import re
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from undivided.data import read_npz
from undivided.errors import DataError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(6, 2, 3)).astype(np.float32)
Y = np.arange(6) % 3
SAVERS = pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
DIRECTORY_ENTRY = b"PK\x01\x02"  # before each member in the archive's directory
AT_FLAGS, AT_METHOD, AT_CHECKSUM, AT_SIZE = 8, 10, 16, 24  # places in such an entry


def saved(save=np.savez, **arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    save(stream, **arrays)
    return stream.getvalue()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npy_of(text: str, data: bytes = b"", version: int = 1) -> bytes:
    """An .npy file with any text for a header."""
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode("latin-1") + data


def header(descr: str, shape: object, order: object = False) -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


def patched(content: bytes, at: int, value: bytes, member: int = 0) -> bytes:
    """The archive with `value` written over a field of one entry of its directory."""
    start = -1
    for _ in range(member + 1):
        start = content.index(DIRECTORY_ENTRY, start + 1)
    return content[: start + at] + value + content[start + at + len(value) :]


def refused(file: Path, content: bytes, *texts: str) -> None:
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_npz(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: "), message
    for text in texts:
        assert text in message, message


@SAVERS
def test_both_splits(tmp_path, save):
    file = tmp_path / "mine.npz"
    save(file, x=X, y=Y, x_test=X[:2] + 1, y_test=Y[:2], other=np.array(["left", "alone"]))
    dataset = read_npz(file)
    assert dataset.name == "mine"
    assert dataset.classes == 3
    assert (dataset.train.x == X).all()
    assert dataset.train.y.tolist() == Y.tolist()
    assert dataset.test is not None
    assert (dataset.test.x == X[:2] + 1).all()


@SAVERS
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "f8", ">f4", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_layouts(tmp_path, save, dtype, order):
    x = np.array(np.arange(24).reshape(4, 2, 3), dtype=dtype, order=order)
    save(tmp_path / "a.npz", x=x, y=np.ones((4, 2), dtype="f8"))
    dataset = read_npz(str(tmp_path / "a.npz"))
    assert dataset.test is None
    assert dataset.classes is None
    assert dataset.train.x.flags.c_contiguous
    assert dataset.train.x.dtype == ("u1" if dtype == "u1" else "f4")
    assert (dataset.train.x == x).all()
    assert dataset.train.y.shape == (4, 2)


def test_other_objects_in_the_file_are_left_alone(tmp_path):
    (tmp_path / "a.npz").write_bytes(saved(x=X, y=Y, z=np.array([{}], dtype=object)))
    assert len(read_npz(tmp_path / "a.npz").train) == 6


def test_a_header_of_version_2(tmp_path):
    content = npy_of(header("'<f4'", (6, 2, 3)), X.tobytes(), version=2)
    (tmp_path / "a.npz").write_bytes(zipped({"x.npy": content, "y.npy": npy(Y)}))
    assert (read_npz(tmp_path / "a.npz").train.x == X).all()


def test_the_memory_is_that_of_the_arrays(tmp_path, little_memory):
    x = np.tile(np.arange(256, dtype=np.uint8), (8000, 4))
    np.savez_compressed(tmp_path / "a.npz", x=x, y=np.zeros(8000, np.uint8))
    with little_memory(x.nbytes + (2 << 20)):
        assert len(read_npz(tmp_path / "a.npz").train) == 8000


def test_missing_arrays(tmp_path):
    file = tmp_path / "a.npz"
    refused(file, saved(x=X), "y is missing. In the file: x. Save it with numpy.savez_compressed(")
    refused(file, saved(X=X, labels=Y), "x and y are missing. In the file: X, labels.")
    refused(file, saved(x=X, y=Y, x_test=X), "both or none of x_test and y_test; y_test is missing")
    refused(file, zipped({}), "In the file: no array at all")
    refused(file, zipped({"x": b"1", "x.npy.txt": b"1"}), "In the file: no array at all")
    many = {f"a{i}": np.zeros(1) for i in range(25)}
    refused(file, saved(**many), "a18, a19, …. Save")


class Payload:
    """What unpickles by creating a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return pathlib.Path.mkdir, (self.folder,)


def test_a_pickle_is_refused_and_does_not_run(tmp_path):
    marker = tmp_path / "it-ran"
    objects = np.empty(6, dtype=object)
    objects[0] = Payload(marker)
    for arrays in ({"x": objects, "y": Y}, {"x": X, "y": objects}):
        content = saved(**arrays)
        name = "x" if arrays["x"] is objects else "y"
        refused(
            tmp_path / "a.npz",
            content,
            f"a.npz: {name} is an array of Python objects, stored as a pickle",
            "could run any code, so it is refused unread",
        )
        assert not marker.exists()
    with np.load(tmp_path / "a.npz", allow_pickle=True) as archive:  # so it would have run
        assert archive["y"].shape == (6,)
    assert marker.exists()


def test_unknown_element_types(tmp_path):
    file = tmp_path / "a.npz"
    table = np.zeros(6, dtype=[("a", "f4"), ("b", "i4")])
    refused(file, saved(x=table, y=Y), "x is a structured array (a table with named fields)")
    dates = np.zeros((6, 1), dtype="M8[s]")
    refused(file, saved(x=dates, y=Y), "x has the element type '<M8[s]'; only plain numbers")
    for descr in ("'<f3'", "'f4,f4'", "7", "None", "'<f' * 9", "'<f99999999999'"):
        content = zipped({"x.npy": npy_of(header(descr, (6, 1)), bytes(24)), "y.npy": npy(Y)})
        refused(file, content, "a.npz: x has ")
    refused(file, saved(x=np.zeros((6, 1), "V8"), y=Y), "x must be uint8", "it is |V8")
    refused(file, saved(x=X > 3, y=Y), "x must be uint8, float32, float64 or float16")
    refused(file, saved(x=X, y=np.array(list("abcabc"))), "y must hold integers", "numpy.unique")


def test_headers_that_make_no_sense(tmp_path):
    file = tmp_path / "a.npz"
    for text, expected in [
        ("", "has a header that cannot be read: ''"),
        ("{", "has a header that cannot be read"),
        ("[]", "has a header that cannot be read"),
        ("{'descr': '<f4'}", "has a header that cannot be read"),
        ("__import__('os').getcwd()", 'has a header that cannot be read: "__import__'),
        ("(" * 4000, "has a header that cannot be read"),
        ("-" * 4000 + "1", "has a header that cannot be read"),
        (header("'<f4'", "(6, -1)"), "has a header that makes no sense: shape (6, -1)"),
        (header("'<f4'", "(6, True)"), "has a header that makes no sense"),
        (header("'<f4'", "[6, 1]"), "has a header that makes no sense"),
        (header("'<f4'", "(6.0,)"), "has a header that makes no sense"),
        (header("'<f4'", (6, 1), "'no'"), "makes no sense: shape (6, 1), fortran_order 'no'"),
        (header("'<f4'", (1,) * 17), "must have at most 16 axes; it has 17"),
        (header("'<f4'", (0, 2**62, 2**62)), "of float32, 108 bytes with its header"),
        ("x" * 4097, "has a header of 4097 bytes; that of a plain array has fewer than 4096"),
    ]:
        content = npy_of(text, bytes(24))
        refused(file, zipped({"x.npy": content, "y.npy": npy(Y)}), "a.npz: x ", expected)
    content = b"\x93NUMPY\x01\x00\xff\x0fshort"
    refused(file, zipped({"x.npy": content, "y.npy": b""}), "of 4095 bytes that is cut off after 5")
    content = npy_of(header("'<f4'", (6, 1)), bytes(24), version=3)
    refused(file, zipped({"x.npy": content, "y.npy": b""}), "has a header of version 3; 1 and 2")
    refused(
        file,
        zipped({"x.npy": b"1,2,3\n4,5,6", "y.npy": b""}),
        "x must be a NumPy array, which starts with b'\\x93NUMPY'; ",
        "it starts with b'1,2,3\\n4,' (text)",
    )


@pytest.mark.parametrize("length", [4097, 2**31, 2**32 - 1])
def test_a_long_header_is_not_read(tmp_path, little_memory, length):
    content = b"\x93NUMPY\x02\x00" + struct.pack("<I", length) + b" " * 20_000_000
    packed = zipped({"x.npy": content, "y.npy": npy(Y)})
    del content
    with little_memory():
        refused(tmp_path / "a.npz", packed, f"x has a header of {length} bytes")


@pytest.mark.parametrize("shape", [(2**40,), (2**40, 2**40), (2**8, 2**16, 2**16)])
def test_absurd_shapes_take_no_memory(tmp_path, little_memory, shape):
    content = zipped({"x.npy": npy_of(header("'<f4'", shape), bytes(99)), "y.npy": npy(Y)})
    with little_memory():
        refused(tmp_path / "a.npz", content, "x declares the shape (", "the archive states")


@SAVERS
def test_stated_sizes_beyond_what_can_be_held(tmp_path, little_memory, save):
    content = patched(saved(save, x=X, y=Y), AT_SIZE, struct.pack("<I", 2**31))
    with little_memory():
        refused(
            tmp_path / "a.npz",
            content,
            "x is said to have 2147483648 bytes;",
            "in the file cannot hold so much. The file is damaged or not honest",
        )


def test_header_and_directory_agree_on_a_lie(tmp_path):
    text = header("'<f4'", (600,))
    content = zipped({"x.npy": npy_of(text, X.tobytes()), "y.npy": npy(Y)})
    content = patched(content, AT_SIZE, struct.pack("<I", 10 + len(text) + 2400))
    refused(tmp_path / "a.npz", content, "a.npz: x must have an axis of samples")  # before reading
    text = header("'<f4'", (6, 100))
    content = zipped({"x.npy": npy_of(text, X.tobytes()), "y.npy": npy(Y)})
    content = patched(content, AT_SIZE, struct.pack("<I", 10 + len(text) + 2400))
    refused(tmp_path / "a.npz", content, "x is cut off: 2400 bytes of data are declared, 144 are")


def test_a_stream_longer_than_all_that_is_stated(tmp_path, little_memory):
    text = header("'<f4'", (6, 6))
    content = zipped({"x.npy": npy_of(text, bytes(20_000_000)), "y.npy": npy(Y)})
    content = patched(content, AT_SIZE, struct.pack("<I", 10 + len(text) + 144))
    with little_memory():
        refused(tmp_path / "a.npz", content, "cut off, damaged or unreadable: Bad CRC-32")


def test_more_than_half_the_memory(tmp_path, monkeypatch):
    total = X.nbytes + Y.nbytes
    monkeypatch.setattr("undivided.data.reading.memory_limit", lambda: total - 1)
    text = f"the file declares {total} bytes of data; at most {total - 1}, half of this machine's"
    refused(tmp_path / "a.npz", saved(x=X, y=Y), text)


@SAVERS
def test_flipped_checksum(tmp_path, save):
    for member, name in enumerate(["x.npy", "y.npy"]):
        content = patched(saved(save, x=X, y=Y), AT_CHECKSUM, b"\1\2\3\4", member)
        refused(tmp_path / "a.npz", content, f"damaged or unreadable: Bad CRC-32 for file '{name}'")


def test_flipped_data(tmp_path):
    content = saved(x=X, y=Y)
    place = content.index(X.tobytes()[:16])
    content = content[:place] + b"\x42" + content[place + 1 :]
    refused(tmp_path / "a.npz", content, "Bad CRC-32 for file 'x.npy'. Copy or save it again.")


def test_what_numpy_does_not_write(tmp_path):
    file = tmp_path / "a.npz"
    refused(file, patched(saved(x=X, y=Y), AT_FLAGS, b"\1\0"), "x is encrypted. Save the file")
    content = zipped({"x.npy": npy(X), "y.npy": npy(Y)}, zipfile.ZIP_BZIP2)
    refused(file, content, "x is compressed by a method NumPy does not use (number 12)")
    refused(file, patched(saved(x=X, y=Y), AT_METHOD, b"\x63\0"), "(number 99)")


@SAVERS
def test_truncated_anywhere(tmp_path, save):
    content = saved(save, x=X, y=Y)
    for length in range(1, len(content), 3):
        refused(tmp_path / "a.npz", content[:length], "a zip archive")


def test_what_is_no_archive(tmp_path):
    file = tmp_path / "a.npz"
    expected = "expected an .npz file (a zip archive); this one starts with "
    refused(
        file, b"x,y\n1,2\n3,4\n", expected + "b'x,y\\n1,2\\n' (text). Make one with numpy.savez"
    )
    refused(file, npy(X), expected + "b'\\x93NUMPY\\x01\\x00' (a single NumPy array, .npy)")
    refused(file, b"\x1f\x8b12345678", expected, "(gzip)")
    refused(file, b"", "expected an .npz file with the arrays x and y; the file is empty")
    refused(file, b"PK\3\4 and then nothing", "cut off, damaged or unreadable: File is not a zip")
    for path, text in [
        (tmp_path / "none.npz", "there is no such file"),
        (tmp_path, "this is a folder. Name the file itself."),
    ]:
        with pytest.raises(DataError, match=re.escape(text)):
            read_npz(path)


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "a")

    (tmp_path / "a.npz").write_bytes(saved(x=X, y=Y))
    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(DataError, match="damaged or unreadable: Permission denied"):
        read_npz(tmp_path / "a.npz")


def test_values_are_checked_and_named(tmp_path):
    file = tmp_path / "a.npz"
    bad = X.copy()
    bad[4, 1, 2] = np.nan
    refused(file, saved(x=bad, y=Y), "x[4, 1, 2] is nan, which is not finite")
    refused(file, saved(x=X, y=Y, x_test=bad, y_test=Y), "x_test[4, 1, 2] is nan")
    refused(file, saved(x=X, y=np.full(6, np.inf)), "y[0] is inf")
    refused(file, saved(x=X, y=Y - 1), "y[0] is -1; a label must be a class")
    refused(file, saved(x=X, y=Y[:5]), "x and y must have one entry per sample")
    refused(file, saved(x=X[:0], y=Y[:0]), "x is empty: its shape is (0, 2, 3)")
    with pytest.raises(DataError, match="x of the test split must be like x of the training split"):
        file.write_bytes(saved(x=X, y=Y, x_test=X[:, :1], y_test=Y))
        read_npz(file)


@pytest.mark.parametrize(
    "content",
    [saved(x=X, y=Y), saved(np.savez_compressed, x=X.astype("f8").T.copy().T, y=Y)],
    ids=["stored", "deflated"],
)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(data=st.data())
def test_mutations_load_or_give_a_data_error(scratch, content, data):
    mutated = bytearray(content)
    places = st.integers(0, len(content) - 1)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)):
        mutated[place] = byte
    cut = data.draw(st.just(len(content)) | st.integers(0, len(content)))
    file = scratch / "mutated.npz"
    file.write_bytes(mutated[:cut])
    try:
        dataset = read_npz(file)
    except DataError:
        return
    assert np.isfinite(dataset.train.x).all()
    assert len(dataset.train.x) == len(dataset.train.y)


# Several inputs, and the names of classes.

BOTH = ("source", "target")


def pairs(**more: np.ndarray) -> dict[str, np.ndarray]:
    source, target = np.ones((6, 4), np.int64), np.full((6, 3), 2, np.int64)
    return {"source": source, "target": target, "y": np.zeros((6, 3), np.int64), **more}


def test_a_network_with_several_inputs(tmp_path):
    tests = {f"{name}_test": array[:2] for name, array in pairs().items()}
    mask = np.array([[1, 1, 0]] * 2)
    lengths = np.array([4, 3, 2, 1, 4, 4])
    file = tmp_path / "pairs.npz"
    np.savez(file, **pairs(**tests, target_mask_test=mask, source_lengths=lengths))
    data = read_npz(file, inputs=BOTH)
    assert list(data.train.x) == list(BOTH) and len(data.train) == 6 and len(data.test) == 2
    assert data.train.x["source"].dtype == np.int32
    np.testing.assert_array_equal(data.train.mask["source"].sum(axis=1), lengths)
    assert set(data.train.mask) == {"source"} and set(data.test.mask) == {"target"}
    some = data.train[1:3]
    assert some.sample_shape == {"source": (4,), "target": (3,)} and len(some) == 2
    np.testing.assert_array_equal(some.mask["source"].sum(axis=1), [3, 2])
    assert repr(some) == "Split(2 samples of source 4 int32 and target 3 int32, targets int32)"


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        (
            {"x": X, "y": Y},
            "expected the arrays source, target and y, and either all or none of source_test, "
            "target_test and y_test; source and target are missing. In the file: x, y. Save it "
            "with numpy.savez_compressed(path, source=source, target=target, y=y).",
        ),
        (pairs(target_test=Y), "source_test and y_test are missing"),
        (pairs(target=np.ones((5, 3))), "target and y must have one entry per sample"),
        (pairs(source=np.ones((6, 4), bool)), "source must be uint8, float32"),
        (pairs(target_lengths=np.array([3, 3, 3, 3, 3, 4])), "lengths[5] is 4; samples have"),
        (pairs(source_mask=np.zeros((6, 4))), "source[0] is all padding"),
    ],
)
def test_what_several_inputs_lack(tmp_path, arrays, complaint):
    file = tmp_path / "pairs.npz"
    np.savez(file, **arrays)
    with pytest.raises(DataError, match=re.escape(complaint)):
        read_npz(file, inputs=BOTH)


def test_parts_of_several_inputs_are_alike(tmp_path):
    tests = {f"{name}_test": array for name, array in pairs(target=np.ones((6, 5), int)).items()}
    np.savez(tmp_path / "pairs.npz", **pairs(**tests))
    with pytest.raises(DataError, match="target of the test split must be like target of the tra"):
        read_npz(tmp_path / "pairs.npz", inputs=BOTH)


def test_names_of_classes(tmp_path):
    file = tmp_path / "named.npz"
    for names in (np.array(["a", "bé", "c"]), np.array([b"a", "bé".encode(), b"c"])):
        np.savez(file, x=X, y=Y, classes=names)
        assert read_npz(file).class_names == ("a", "bé", "c")
    np.savez(file, x=X, y=Y, classes=np.arange(3))
    with pytest.raises(DataError, match=r"named\.npz: classes must be an array of strings"):
        read_npz(file)
    np.savez(file, x=X, y=Y, classes=np.array(["a", "b"]))
    with pytest.raises(DataError, match="there are 2 names of classes, and targets up to 2"):
        read_npz(file)
    text = header("'<U0'", (3,))
    file.write_bytes(zipped({"x.npy": npy(X), "y.npy": npy(Y), "classes.npy": npy_of(text)}))
    with pytest.raises(DataError, match="classes has the element type '<U0'"):
        read_npz(file)
