"""The functions that C has in its library and we do not use: as exact as their comments say."""

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_programs import need

from undivided.engines.reference import activation
from undivided.export.calls import FOLDER, FUNCTIONS

SOURCES = ("exponential", "error_function", "hyperbolic_tangent", "sigmoid", "relu", "leaky_relu")
SOURCES += ("gelu", "gelu_tanh", "silu")


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ctypes.CDLL:
    need("gcc")
    folder: Path = tmp_path_factory.mktemp("functions")
    text = "#include <math.h>\n#include <stdint.h>\n"
    for name in SOURCES:
        text += (FOLDER / f"{name}.c").read_text()
        text += f"void all_{name}(const float *x, int count, float *y)\n"
        text += f"{{ for (int i = 0; i < count; i++) y[i] = {name}(x[i]); }}\n"
    (folder / "functions.c").write_text(text)
    path = folder / "functions.so"
    command = ["gcc", "-std=c99", "-O2", "-shared", "-fPIC", "functions.c", "-o", str(path), "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(path))


def called(library: ctypes.CDLL, name: str, x: np.ndarray) -> np.ndarray:
    x = np.ascontiguousarray(x, np.float32)
    y = np.empty_like(x)
    pointer = ctypes.POINTER(ctypes.c_float)
    getattr(library, f"all_{name}")(x.ctypes.data_as(pointer), x.size, y.ctypes.data_as(pointer))
    return y


def ulps(found: np.ndarray, expected: np.ndarray) -> float:
    return float((np.abs(found - expected) / np.spacing(np.abs(expected).astype(np.float32))).max())


def test_the_exponential(library):
    x = np.linspace(-87.2, 88.2, 200_001).astype(np.float32)
    assert ulps(called(library, "exponential", x), np.exp(x.astype(np.float64))) <= 1.1
    ends = called(library, "exponential", np.array([0, -88, -1e30, -np.inf, 89, np.inf, np.nan]))
    assert np.array_equal(ends, [1, 0, 0, 0, np.inf, np.inf, np.nan], equal_nan=True)


def test_the_error_function(library):
    x = np.linspace(-4.5, 4.5, 100_001).astype(np.float32)
    expected = np.array([math.erf(v) for v in x.tolist()])
    assert ulps(called(library, "error_function", x), expected) <= 2
    tiny = np.array([1e-30, -1e-20, 1e-5], np.float32)
    assert ulps(called(library, "error_function", tiny), tiny * 2 / math.sqrt(math.pi)) <= 2
    ends = called(library, "error_function", np.array([0, np.inf, -np.inf, np.nan]))
    assert np.array_equal(ends, [0, 1, -1, np.nan], equal_nan=True)


def test_the_hyperbolic_tangent(library):
    x = np.linspace(-11, 11, 100_001).astype(np.float32)
    assert ulps(called(library, "hyperbolic_tangent", x), np.tanh(x.astype(np.float64))) <= 2
    tiny = np.array([1e-30, -1e-20, 1e-5], np.float32)
    assert np.array_equal(called(library, "hyperbolic_tangent", tiny), tiny)
    ends = called(library, "hyperbolic_tangent", np.array([0, np.inf, -np.inf, np.nan]))
    assert np.array_equal(ends, [0, 1, -1, np.nan], equal_nan=True)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_activations(library, function):
    x = np.linspace(-8, 8, 10_001).astype(np.float32)
    found = called(library, FUNCTIONS[function], x)
    expected = activation.forward(x.astype(np.float64), function)
    assert np.abs(found - expected).max() <= 2e-7 * np.abs(expected).max()
    for end in (-np.inf, np.inf, np.nan):
        value = np.array([end], np.float32)
        with np.errstate(all="ignore"):
            same = activation.forward(value, function)
        assert np.array_equal(called(library, FUNCTIONS[function], value), same, equal_nan=True)
