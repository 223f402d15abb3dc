"""Time series in .ts files: what is read, and what is refused with the line it is in."""

from __future__ import annotations

import importlib.util
import re
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import undivided
from undivided.data import aeon, open_data, read_ts
from undivided.errors import DataError

HEADER = """# a comment
@problemName Two
@timeStamps false
@univariate false
@classLabel true up down

% another
@data
"""
ROWS = "1,2,3:-1,-2,-3:up\n4,5:-4,-5:down\n"
TEST = "0.5,1e1:0,-1:down\n"


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "Two_TRAIN.ts"):
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return file

    return write


def test_both_parts_of_a_set(write):
    file = write(HEADER + ROWS)
    write(HEADER + TEST, "Two_TEST.ts")
    data = read_ts(file)
    assert (data.name, data.class_names, data.classes) == ("Two", ("up", "down"), 2)
    np.testing.assert_array_equal(
        data.train.x, [[[1, -1], [2, -2], [3, -3]], [[4, -4], [5, -5], [0, 0]]]
    )
    np.testing.assert_array_equal(data.train.mask, [[1, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(data.train.y, [0, 1])
    np.testing.assert_array_equal(data.test.x, [[[0.5, 0], [10, -1], [0, 0]]])
    np.testing.assert_array_equal(data.test.y, [1])
    assert data.train.x.dtype == np.float32 and data.train.y.dtype == np.int32


def test_one_file_of_any_name(write):
    data = open_data(str(write(HEADER + ROWS, "mine.ts")))
    assert data.name == "mine" and data.test is None
    assert open_data(str(write(HEADER + ROWS))).name == "Two"


def test_as_long_series_have_no_mask(write):
    assert read_ts(write(HEADER + "1,2:3,4:up\n")).train.mask is None


def test_targets_may_be_values(write):
    header = HEADER.replace("@classLabel true up down", "@targetlabel true")
    data = read_ts(write(header + "1,2:3,4:0.25\n1,2:3,4:-3\n"))
    assert data.class_names is None and data.classes is None
    np.testing.assert_array_equal(data.train.y, np.float32([0.25, -3]))


def test_both_parts_are_normalized_by_the_first(write):
    file = write(HEADER + "0,2:7,7:up\n4:7:down\n")
    write(HEADER + "2,6:7,8:down\n", "Two_TEST.ts")
    data = read_ts(file, normalize=True)
    deviation = np.std([0, 2, 4])
    np.testing.assert_allclose(data.train.x[0, :, 0] * deviation, [-2, 0], atol=1e-6)
    np.testing.assert_allclose(data.train.x[1, :, 0] * deviation, [2, 0], atol=1e-6)
    np.testing.assert_allclose(data.test.x[0, :, 0] * deviation, [0, 4], atol=1e-6)
    np.testing.assert_array_equal(data.train.x[..., 1], 0)  # a constant
    np.testing.assert_array_equal(data.test.x[0, :, 1], [0, 1])


LINE = HEADER.count("\n") + 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hello\n", "line 1: expected a line that begins with @ or #; got 'hello'"),
        ("@problemName x\n# only\n", "line 2: the file ends without a line @data"),
        (HEADER, f"line {LINE - 1}: there is no sample behind @data"),
        (HEADER.replace("true up", "false up"), f"line {LINE - 1}: the series have no targets"),
        (HEADER.replace(" up down", ""), "@classLabel true must be followed by the classes"),
        (HEADER.replace("down", "up"), "must be followed by the classes, each once"),
        (HEADER.replace("Stamps false", "Stamps true"), "series with time stamps are not read"),
        (HEADER + "1,2,3\n", f"line {LINE}: expected values, a colon and a target"),
        (HEADER + ROWS + "1:up\n", f"line {LINE + 2}: expected 2 dimensions; there are 1"),
        (HEADER + "1,2:1:up\n", "all dimensions of a sample must be as long; they have 1 and 2"),
        (HEADER + "1,?:1,2:up\n", "number as value 2 of dimension 1; it is missing"),
        (HEADER + "1,2:1,:up\n", "number as value 2 of dimension 2; it is missing"),
        (HEADER + "1,NaN:1,2:up\n", "value 2 of dimension 1; it is missing"),
        (HEADER + "1,x:1,2:up\n", "number as value 2 of dimension 1; it is 'x'"),
        (HEADER + "1_0,2:1,2:up\n", "number as value 1 of dimension 1; it is '1_0'"),
        (HEADER + "inf,2:1,2:up\n", "number as value 1 of dimension 1; it is 'inf'"),
        (HEADER + "1e60,2:1,2:up\n", "number as value 1 of dimension 1; it is '1e60'"),
        (HEADER + "1:1:sideways\n", "the class 'sideways' is not one of @classLabel: up, down"),
        (
            HEADER.replace("@data", "@equalLength true\n@seriesLength 3\n@data") + "1,2:3,4:up\n",
            f"line {LINE + 2}: @equalLength and @seriesLength say 3 values; there are 2",
        ),
        (
            HEADER.replace("@data", "@dimensions 3\n@data") + "1,2:3,4:up\n",
            "expected 3 dimensions; there are 2",
        ),
        (HEADER.replace("e false", "e true") + "1:2:up\n", "expected 1 dimensions; there are 2"),
        (
            HEADER.replace("@classLabel true up down", "@targetLabel true") + "1:2:up\n",
            "expected a finite number as target; got 'up'",
        ),
        ("", "the file is empty"),
    ],
)
def test_what_is_refused(write, text, complaint):
    file = write(text)
    with pytest.raises(DataError, match=re.escape(complaint)) as caught:
        read_ts(file)
    assert str(caught.value).startswith(str(file))


@pytest.mark.parametrize(
    ("test", "complaint"),
    [
        (HEADER + "1:up\n", "expected 2 dimensions as in Two_TRAIN.ts; there are 1"),
        (HEADER.replace(" down", " left") + "1:1:left\n", "the class 'left' is not one of Two_"),
        (HEADER.replace("classLabel true up down", "targetlabel true") + "1:1:2\n", "both have"),
    ],
)
def test_parts_that_do_not_belong_together(write, test, complaint):
    write(test.replace("@univariate false\n", ""), "Two_TEST.ts")
    with pytest.raises(DataError, match=complaint):
        read_ts(write(HEADER + ROWS))


def test_files_that_are_none(tmp_path):
    with pytest.raises(
        DataError, match=r"expected time series, a \.ts file; there is no such file"
    ):
        read_ts(tmp_path / "none.ts")
    with pytest.raises(DataError, match="this is a folder"):
        read_ts(tmp_path)


def test_a_file_that_would_fill_the_memory(write, monkeypatch):
    file = write(HEADER + "1:1:up\n" * 50 + ",".join("1" * 500) + ":" + ",".join("1" * 500) + ":up")
    monkeypatch.setattr("undivided.data.reading.memory_limit", lambda: 100_000)
    with pytest.raises(DataError, match=r"filled up to 500 steps: the file declares 204000 bytes"):
        read_ts(file)
    monkeypatch.setattr("undivided.data.reading.memory_limit", lambda: 1_000)
    with pytest.raises(DataError, match=r"Two_TRAIN.ts: the file declares"):
        read_ts(file)


def test_what_is_not_utf_8_may_stand_in_a_comment(tmp_path):
    file = tmp_path / "latin.ts"
    file.write_bytes("# é\n".encode("latin-1") + HEADER.encode() + ROWS.encode())
    assert len(read_ts(file).train) == 2


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutations_load_or_give_a_data_error(tmp_path, data):
    """Anything put in place of anything: what loads is finite and of one shape."""
    text = HEADER + ROWS
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    put = data.draw(st.text("0123456789,.:@#%?eE-_ \nduptrue\0é", max_size=12))
    file = tmp_path / "mutated.ts"
    file.write_text(text[:start] + put + text[end:], encoding="utf-8")
    try:
        split = read_ts(file, normalize=data.draw(st.booleans())).train
    except DataError as error:
        assert str(file) in str(error)
    else:
        assert np.isfinite(split.x).all() and split.x.ndim == 3 and len(split.y) == len(split.x)


def test_without_aeon(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        DataError, match=r"come with the package aeon, which is not installed\. `pip"
    ):
        aeon("BasicMotions")


needs_aeon = pytest.mark.skipif(
    importlib.util.find_spec("aeon") is None, reason="aeon is not installed"
)


@needs_aeon
def test_series_inside_aeon():
    loaded = "aeon" in sys.modules
    data = aeon("JapaneseVowels")
    assert data.train.x.shape == (270, 29, 12) and data.test.x.shape == (370, 29, 12)
    assert data.train.mask.sum(axis=1).min() == 7
    assert data.class_names == tuple("123456789")
    assert aeon("BasicMotions").class_names == ("Standing", "Running", "Walking", "Badminton")
    with pytest.raises(
        DataError, match=r"has no series named 'JapaneseVowel'\. Did you mean 'Japan"
    ):
        aeon("JapaneseVowel")
    assert ("aeon" in sys.modules) == loaded


@needs_aeon
def test_a_recipe_learns_ragged_series():
    network = undivided.override(undivided.recipe("time-series-vowels"), {"train.epochs": 2})
    data = aeon("JapaneseVowels", normalize=True)
    model = undivided.Model(network)
    assert model.fit(data.train, data.test)[-1].loss < 3
    # What fills a series up is not there.
    spoilt = np.where(data.test.mask[..., None], data.test.x, 1e6)
    np.testing.assert_array_equal(
        model.predict(data.test.x, data.test.mask), model.predict(spoilt, data.test.mask)
    )
