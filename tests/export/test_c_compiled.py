"""What the exported C answers is what the definition says, the same bits however it is built."""

from __future__ import annotations

import numpy as np
import pytest
from c_programs import NETWORKS, RECIPES, Program, exported, models, need, samples_for, trained_like
from hypothesis import HealthCheck, given, settings
from random_networks import Example, examples

import undivided
from undivided.export.check import TOLERANCE, expected_scores
from undivided.plan.plan import Ragged

SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def assert_right(model: undivided.Model, x: np.ndarray, found: np.ndarray) -> None:
    """The rule of every engine in float32: twice the rounding error of the definition's own walk
    in float32, and a few units in the last place."""
    expected, single = in_float64(model, x), in_float32(model, x)
    allowed = 2 * np.abs(single - expected).max() + 8 * 2.0**-24 * np.abs(expected).max()
    assert np.abs(found - expected).max() <= allowed


def in_float32(model: undivided.Model, x: np.ndarray) -> np.ndarray:
    """[N, scores]; the models of these tests run in the reference."""
    return np.asarray(model._engine.predict(x)).reshape(len(x), -1)


def in_float64(model: undivided.Model, x: np.ndarray) -> np.ndarray:
    return expected_scores(model, x).reshape(len(x), -1)


@pytest.mark.parametrize("name", [*RECIPES, *NETWORKS])
def test_scores_are_those_of_the_definition(tmp_path, name):
    (model,) = models([name])
    exported(model, tmp_path)
    x = samples_for(model, 60)
    found = Program(tmp_path, "gcc", "-O2")(x)
    assert_right(model, x, found)
    if name in RECIPES:
        expected = in_float64(model, x)
        assert np.abs(found - expected).max() <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("name", ["everything", "gated", "words", "pictures"])
def test_every_build_gives_the_same_bits(tmp_path, name):
    need("gcc", "clang")
    (model,) = models([name])
    exported(model, tmp_path)
    x = samples_for(model, 100)
    builds = [("gcc", "-O0"), ("gcc", "-O2"), ("gcc", "-Os"), ("gcc", "-O3", "-march=native")]
    builds += [("clang", "-O0"), ("clang", "-O2"), ("clang", "-Os")]
    answers = [Program(tmp_path, *build, "-ffp-contract=off")(x).tobytes() for build in builds]
    assert len(set(answers)) == 1
    # Both compilers' own rules for C99 do not contract either.
    assert Program(tmp_path, "clang", "-O2", "-march=native")(x).tobytes() == answers[0]
    assert Program(tmp_path, "gcc", "-O2", "-march=native")(x).tobytes() == answers[0]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_any_input_is_clean_under_the_sanitizers(tmp_path, compiler):
    (model,) = models(["everything"])
    exported(model, tmp_path)
    x = samples_for(model, 10_000)
    rng = np.random.default_rng(3)
    flat = x.reshape(len(x), -1)
    strange = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-42, 1e20, -0.0], np.float32)
    for row in range(0, len(flat), 2):  # every other sample has some
        places = rng.integers(0, flat.shape[1], rng.integers(1, 5))
        flat[row, places] = rng.choice(strange, len(places))
    found = Program(tmp_path, compiler, *SANITIZERS)(x)
    plain = np.isfinite(flat).all(axis=1) & (np.abs(flat) <= 255).all(axis=1)
    assert_right(model, x[plain], found[plain])
    # What is not a number in the definition is none here. (Where products of huge numbers overflow
    # depends on the order in which they are added.)
    known = ~((np.abs(flat) > 255) & np.isfinite(flat)).any(axis=1)
    lost = np.isnan(in_float32(model, x[known]))
    assert lost.any() and np.array_equal(np.isnan(found[known]), lost)


@pytest.mark.parametrize("name", ["tokens", "tokens, linear"])
def test_what_a_query_does_not_see_does_not_reach_it(tmp_path, name):
    (model,) = models([name])
    exported(model, tmp_path)
    x = samples_for(model, 7 * 3)
    for sample, strange in enumerate([np.nan, np.inf, -np.inf] * 7):
        x[sample, sample // 3, 1] = strange
    found = Program(tmp_path, "gcc", "-O2")(x)
    expected = in_float32(model, x)
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    assert np.isnan(found).any() and np.isfinite(found).any()
    finite = np.isfinite(expected)
    assert np.abs(found - expected)[finite].max() <= 1e-6 * np.abs(expected[finite]).max()


def test_an_id_that_is_none_is_the_first(tmp_path):
    (model,) = models(["words"])
    exported(model, tmp_path)
    x = samples_for(model, 6)
    for sample, strange in enumerate([np.nan, np.inf, -np.inf, 20, -1]):
        x[sample, 3] = strange
        x[5] = x[sample]
        x[5, 3] = 0
        found = Program(tmp_path, "gcc", "-O1", "-fsanitize=undefined,float-cast-overflow")(x)
        assert np.array_equal(found[sample], found[5])


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
@given(example=examples().filter(lambda e: None not in e.network.input))
def test_any_network(tmp_path, example: Example):
    model = trained_like(example.network, example.seed)
    assert not any(isinstance(n, Ragged) for n in model.plan.input.shape)
    exported(model, tmp_path)
    x = samples_for(model, 20, example.seed)
    assert_right(model, x, Program(tmp_path, "gcc", "-O0")(x))


def test_a_weight_of_any_size_compiles(tmp_path):
    (model,) = models(["smallest"])
    model.parameters["output_1.weight"] = [[1e-42, 3e38], [-0.0, 1e-38], [1.0, -16777216.0]]
    exported(model, tmp_path)
    for compiler in ("gcc", "clang"):
        x = np.eye(3, dtype=np.float32)
        found = Program(tmp_path, compiler, "-O2")(x)
        expected = model.parameters["output_1.weight"] + model.parameters["output_1.bias"]
        assert np.array_equal(found, expected)


def test_names_that_mean_something_in_c(tmp_path):
    names = [
        "int",
        "linear",
        "arena",
        "*/ /*",
        "??/",
        "9",
        "é\u202e",
        "a b",
        "A_B",
        "logits",
        "NAN",
    ]
    layers = [undivided.Dense(3, name=name) for name in names]
    network = undivided.Network(input=(3,), layers=[*layers, undivided.Output(2)], name="*/ int x;")
    model = trained_like(network)
    exported(model, tmp_path)
    x = samples_for(model, 10)
    for compiler in ("gcc", "clang"):
        assert_right(model, x, Program(tmp_path, compiler, "-O0")(x))
