"""The native engine against the float64 reference, in everything it says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from agreement import Checks, Trio, agrees, batch_for
from hypothesis import HealthCheck, given, settings
from native_cases import CASES, Case
from random_networks import Example, examples

from undivided.engines.native import NativeEngine
from undivided.layers import (
    Activation,
    Dense,
    Flatten,
    GlobalAveragePooling1D,
    LayerNormalization,
    MultiHeadAttention,
    Output,
    Rescaling,
)
from undivided.network import Network

ENDS = GlobalAveragePooling1D(), Output(5)
LEAST_ROWS, LEAST_CHECKS, LEAST_PRIMITIVES = 480, 7000, 14


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_table(case: Case) -> None:
    trio = Trio(case.network)
    trio.check(case.batch(trio)).verify()


def test_the_table_is_whole() -> None:
    keys = {case.key for case in CASES}
    assert len(keys) == len(CASES), "two rows say that they check the same"
    assert len(keys) >= LEAST_ROWS
    assert len({primitive for primitive, _, _ in keys}) >= LEAST_PRIMITIVES
    assert sum(Trio(case.network).expected_checks() for case in CASES) >= LEAST_CHECKS


@given(examples())
@settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_any_network(example: Example) -> None:
    trio = example.trio()
    trio.check(example.batch(trio)).verify()


def test_several_threads() -> None:
    for name in ("classifier", "pre-norm, two blocks"):
        case = next(case for case in CASES if case.option == name)
        for threads in (2, 3):
            trio = Trio(case.network, threads=threads)
            trio.check(case.batch(trio)).verify()


# Sums of many numbers. The reference adds them in blocks, so that errors stay small.


@pytest.mark.parametrize("count", [1, 5])
def test_many_features(count: int) -> None:
    network = Network(input=(4096,), layers=(Dense(8), Output(5)))
    agrees(network, batch_for(network.plan(), count))


def test_many_tokens() -> None:
    layers = (Dense(8), Activation("gelu"), Dense(4), *ENDS)
    network = Network(input=(4096, 8), layers=layers)
    agrees(network, batch_for(network.plan(), 2))


def test_many_keys() -> None:
    network = Network(input=(513, 4), layers=(MultiHeadAttention(2), *ENDS))
    agrees(network, batch_for(network.plan(), 2))


def test_many_classes() -> None:
    network = Network(input=(8,), layers=(Output(5000),))
    agrees(network, batch_for(network.plan(), 9))


def test_many_small_numbers_and_a_large_bias() -> None:
    network = Network(input=(1000,), layers=(Rescaling(0.01), Output(5)))
    agrees(network, batch_for(network.plan(), 9))


def test_normalizing_one_feature_passes_nothing_back() -> None:
    network = Network(input=(3, 4), layers=(Dense(1), LayerNormalization(), Flatten(), Output(5)))
    agrees(network, batch_for(network.plan(), 5))


# What the rule itself is worth: it has to see what is wrong.

BREAKS: dict[str, Callable[[dict[str, np.ndarray]], None]] = {
    "one number off by a thousandth": lambda g: g["dense_1.weight"].__iadd__(
        np.eye(*g["dense_1.weight"].shape) * 1e-3
    ),
    "a sign": lambda g: np.negative(
        g["attention_1.query.weight"], out=g["attention_1.query.weight"]
    ),
    "a share of a small gradient": lambda g: g["attention_1.query.bias"].__imul__(1 + 1e-4),
    "a key bias that is not 0": lambda g: g["attention_1.key.bias"].__iadd__(1e-4),
    "not a number": lambda g: g["dense_1.bias"].__setitem__(0, np.nan),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_wrong_gradient_is_seen(name: str) -> None:
    network = Network(input=(6, 5), layers=(Dense(8), MultiHeadAttention(2), Flatten(), Output(4)))

    class Broken(NativeEngine):
        def loss_and_gradients(self, x, y):  # type: ignore[no-untyped-def]
            loss, gradients = super().loss_and_gradients(x, y)
            BREAKS[name](gradients)
            return loss, gradients

    agrees(network, batch_for(network.plan()))
    with pytest.raises(AssertionError, match="times what it may be off"):
        agrees(network, batch_for(network.plan()), make=Broken)


def test_the_rule() -> None:
    checks = Checks()
    exact = np.array([1.0, -4.0])
    checks.compare("right", exact, exact, exact)
    checks.compare("as float32", np.array([1.0, -4.001]), exact, np.array([1.001, -4.0]))
    checks.compare("a little", exact + 7.9 * 4 * 2.0**-24, exact, exact)
    assert checks.agree
    checks.compare("too much", exact + 8.1 * 4 * 2.0**-24, exact, exact)
    assert not checks.agree
    with pytest.raises(AssertionError, match=r"too much: 1\.01 times what it may be off"):
        checks.verify()


# What comes in, in all the forms that it may have.


def test_forms_of_samples() -> None:
    network = Network(input=(3, 4), layers=(Rescaling(0.5), Flatten(), Output(5)))
    trio = Trio(network)
    batch = batch_for(trio.plan, 6, as_bytes=True)
    bytes_, engine = batch.x, trio.found
    expected = engine.predict(bytes_)
    wide = np.zeros((12, 3, 8), np.float32)
    wide[::2, :, ::2] = bytes_
    forms = {
        "float32": bytes_.astype(np.float32),
        "float64": bytes_.astype(np.float64),
        "float16": bytes_.astype(np.float16),
        "integers": bytes_.astype(np.int64),
        "strides": wide[::2, :, ::2],
        "columns first": np.asfortranarray(bytes_),
        "backwards": np.ascontiguousarray(bytes_[::-1])[::-1],
        "lists": bytes_.tolist(),
        "read only": np.frombuffer(bytes_.tobytes(), np.uint8).reshape(bytes_.shape),
    }
    for name, form in forms.items():
        np.testing.assert_array_equal(engine.predict(form), expected, err_msg=name)
    assert engine.predict(bytes_[:0]).shape == (0, 5)
    assert engine.predict(bytes_).dtype == np.float32
