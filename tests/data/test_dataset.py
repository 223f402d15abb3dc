"""Splits, datasets, and every refusal of the check that all data passes through."""

from __future__ import annotations

import re

import numpy as np
import pytest

from undivided.data import Dataset, Split, check_split
from undivided.errors import ArgumentError, DataError

X = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
Y = np.array([0, 2, 1, 0])


def refused(x: np.ndarray, y: np.ndarray, *texts: str) -> None:
    with pytest.raises(DataError) as caught:
        check_split(x, y, "some.npz")
    message = str(caught.value)
    assert message.startswith("some.npz: ")
    for text in texts:
        assert text in message


def test_bytes_stay_bytes_and_are_not_copied():
    split = check_split(X, Y, "here")
    assert split.x.dtype == np.uint8
    assert np.shares_memory(split.x, X)
    assert split.y.dtype == np.int32
    assert split.y.tolist() == [0, 2, 1, 0]


def test_float32_and_int32_are_not_copied():
    x, y = X.astype(np.float32), Y.astype(np.int32)
    split = check_split(x, y, "here")
    assert split.x is x
    assert split.y is y


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", ">f8"])
def test_floats_become_native_float32(dtype):
    split = check_split(X.astype(dtype), Y.astype(dtype), "here")
    assert split.x.dtype == split.y.dtype == np.dtype("float32")
    assert split.x.dtype.isnative
    assert (split.x == X).all()
    assert (split.y == Y).all()


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", ">i2", "u4", "i8", "u8", ">u8"])
def test_integer_labels_become_int32(dtype):
    labels = np.array([0, 1, 1, 0]).astype(dtype)
    split = check_split(X, labels, "here")
    assert split.y.dtype == np.dtype("int32")
    assert split.y.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("dtype", ["u1", "f4", "f8"])
def test_any_memory_order_becomes_row_major(dtype):
    x = np.asfortranarray(X.astype(dtype))
    split = check_split(x, Y, "here")
    assert split.x.flags.c_contiguous
    assert (split.x == X).all()


def test_targets_may_be_values_of_any_shape():
    assert check_split(X, np.ones((4, 5)), "here").y.shape == (4, 5)


@pytest.mark.parametrize("dtype", ["i1", "i2", "u2", "i4", "i8", "u8"])
def test_other_integers_are_ids(dtype):
    split = check_split(X.astype(dtype), Y, "here")
    assert split.x.dtype == np.int32
    np.testing.assert_array_equal(split.x, X)


@pytest.mark.parametrize(("wrong", "dtype"), [(-1, "i8"), (2**31, "i8"), (2**31, "u4")])
def test_ids_that_are_none_are_refused(wrong, dtype):
    x = X.astype(dtype)
    x[0, 0, 1] = wrong
    refused(x, Y, f"x[0, 0, 1] is {wrong}; integers in x are ids, from 0", ".astype('float32')")


def test_masks_and_lengths_are_one_thing():
    x, y = np.ones((2, 3), np.int64), np.zeros(2, int)
    for given in ({"mask": [[1.0, 0, 0], [1, 1, 0]]}, {"lengths": [1, 2]}):
        split = check_split(x, y, "here", **given)
        assert split.mask.tolist() == [[True, False, False], [True, True, False]]
        assert split[1:].mask.tolist() == [[True, True, False]]
    with pytest.raises(DataError, match=r"here: x\[0\] is all padding"):
        check_split(x, y, "here", mask=[[0, 0, 0], [1, 1, 1]])


def test_other_types_of_x_are_refused():
    refused(X > 3, Y, "it is bool. Store it with .astype('uint8').")
    refused(X.astype("c8"), Y, "it is complex64.")
    refused(X.astype("U3"), Y, "it is <U3.")
    refused(X.astype(object), Y, "it is object.")


def test_other_types_of_y_are_refused():
    names = np.array(["cat", "dog", "cat", "dog"])
    refused(X, names, "y must hold integers", "it is <U3", "numpy.unique(y, return_inverse=True)")
    refused(X, Y.astype("c8"), "y must hold integers", "it is complex64")


@pytest.mark.skipif(np.dtype("longdouble").itemsize <= 8, reason="long double is double here")
def test_long_doubles_are_refused():
    refused(X.astype("longdouble"), Y, "it is float128")


def test_shapes_must_fit():
    refused(X[0, 0], Y[:3], "one more; its shape is (3,). For one number", "x.reshape(-1, 1)")
    refused(np.float32(1), Y, "its shape is ()")
    refused(X, Y[:3], "one entry per sample, in the same order", "(4, 2, 3) and (3,)")
    refused(X, np.float32(1), "one entry per sample", "(4, 2, 3) and ()")
    refused(np.zeros((1,) * 17, np.uint8), Y[:1], "x must have at most 16 axes; it has 17.")


def test_classes_may_be_those_of_positions():
    """One-hot rows too are integers; what a network makes of them is its loss's affair."""
    split = check_split(X, np.eye(4, dtype=int), "here")
    assert split.y.dtype == np.int32
    assert split.y.shape == (4, 4)
    marked = np.array([[1, -100], [2, 3], [0, 1], [1, 1]])
    np.testing.assert_array_equal(check_split(X, marked, "here").y, marked)
    refused(X, marked * 10**9, "y[0, 1] is -100000000000; a label must be a class from 0")


def test_weights():
    for weights in (Y, np.ones((4, 2)) * 0.5):
        y = Y if np.ndim(weights) == 1 else np.zeros((4, 2), int)
        split = check_split(X, y, "here", weights=weights)
        assert split.weights is not None
        assert split.weights.dtype == np.float32
        assert split[1:3].weights.shape == weights[1:3].shape

    def wrong(weights, *texts):
        with pytest.raises(DataError) as caught:
            check_split(X, Y, "here", weights=weights)
        assert all(text in str(caught.value) for text in ("here", *texts)), caught.value

    wrong(np.ones(3), "one number for each sample, shape (4,)", "their shape is (3,)")
    wrong(np.array([1, 1, -1, 1]), "weights[2] is -1.0; a weight is a number ≥ 0.")
    wrong(np.array([1, 1, np.nan, 1]), "weights[2] is nan, which is not finite")
    wrong(np.array(list("abcd")), "weights must be numbers ≥ 0; they are <U1.")


def test_empty_arrays_are_refused():
    refused(X[:0], Y[:0], "x is empty: its shape is (0, 2, 3)")
    refused(X[:, :0], Y, "x is empty: its shape is (4, 0, 3)")
    refused(X, np.ones((4, 0)), "y is empty: its shape is (4, 0)")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_the_first_value_that_is_not_finite_is_named(value, dtype):
    x = X.astype(dtype)
    x[2, 1, 0] = x[3, 0, 0] = value
    refused(x, Y, f"x[2, 1, 0] is {value}, which is not finite. Repair that sample")
    y = np.ones(4, dtype)
    y[3] = value
    refused(X, y, f"y[3] is {value}, which is not finite")


def test_a_bad_value_is_found_in_any_block_and_any_order():
    x = np.asfortranarray(np.zeros((3, 700_000), np.float32))
    x[2, 699_999] = np.nan
    refused(x, Y[:3], "x[2, 699999] is nan")


def test_doubles_that_do_not_fit_are_named():
    x = X.astype("f8")
    x[1, 0, 2] = -1e300
    refused(x, Y, "x[1, 0, 2] is -1e+300, which does not fit into float32")


def test_labels_must_be_classes():
    refused(X, np.array([0, 1, -1, -5]), "y[2] is -1; a label must be a class from 0 to 2147483647")
    refused(X, np.array([0, 2**31, 1, 1]), "y[1] is 2147483648;")
    refused(X, np.array([0, 1, 1, 2**63], "u8"), "y[3] is 9223372036854775808;")
    refused(X, np.array([-1, 1, 1, 1], "i1"), "y[0] is -1;")


def test_the_names_of_the_arrays_appear():
    with pytest.raises(DataError, match=re.escape("f: x_test and y_test must have one entry")):
        check_split(X, Y[:3], "f", names=("x_test", "y_test"))


def test_a_split_is_cut_without_a_copy():
    split = Split(X, Y)
    assert len(split) == 4
    assert split.sample_shape == (2, 3)
    part = split[1:3]
    assert part.y.tolist() == [2, 1]
    assert np.shares_memory(part.x, X)
    assert split.take(2).y.tolist() == [0, 2]
    assert len(split.take(4)) == 4
    assert repr(split) == "Split(4 samples of 2x3 uint8, targets int64)"


@pytest.mark.parametrize("n", [0, -1, 5])
def test_more_samples_than_there_are_cannot_be_taken(n):
    with pytest.raises(ArgumentError, match=f"n must be from 1 to 4, .*; got {n}") as caught:
        Split(X, Y).take(n)
    assert caught.value.argument == "n"


def test_a_split_has_no_single_sample():
    with pytest.raises(TypeError, match=r"split\[:100\]; got int.*split\.x\[i\]"):
        Split(X, Y)[0]  # type: ignore[index]


def test_classes_count_over_both_splits():
    train = check_split(X, Y, "here")
    test = check_split(X, Y + 4, "here")
    assert Dataset(train, None, "some").classes == 3
    assert Dataset(train, test, "some").classes == 7
    assert Dataset(check_split(X, np.ones(4), "here"), None, "some").classes is None


def test_both_splits_must_be_alike():
    train = check_split(X, Y, "here")
    for x, y, text in [
        (X[:, :1], Y, "x of the test split must be like x of the training split, 2x3 uint8 per"),
        (X.astype("f4"), Y, "it is 2x3 float32. Prepare both in the same way."),
        (X, np.ones(4), "y of the test split must be like y of the training split, int32 per"),
    ]:
        with pytest.raises(DataError, match=re.escape(text)):
            Dataset(train, check_split(x, y, "here"), "some")
