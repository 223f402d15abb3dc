"""What `import undivided` brings in, and what it does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

import undivided

HEAVY = ("torch", "jax", "matplotlib", "rich", "click", "safetensors", "nanobind")


def heavy_after(statements: str) -> list[str]:
    """Which of the heavy packages a fresh process has loaded after running `statements`."""
    program = f"import sys\n{statements}\nprint(*[n for n in {HEAVY} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_importing_loads_nothing_heavy() -> None:
    assert heavy_after("import undivided") == []


def test_that_check_can_fail() -> None:
    assert heavy_after("import undivided, rich") == ["rich"]
    assert "click" in heavy_after("import undivided.cli")


def test_every_public_name_comes_without_anything_heavy() -> None:
    assert heavy_after("from undivided import *; recipe('digits-attention')") == []


def test_describing_a_network_loads_no_model() -> None:
    program = "import undivided, sys; undivided.Dense(3); print('undivided.model' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_all_names_are_there() -> None:
    for name in undivided.__all__:
        assert getattr(undivided, name) is not None
    assert dir(undivided) == sorted(undivided.__all__)
    assert len(set(undivided.__all__)) == len(undivided.__all__)


def test_names_that_modules_share_are_the_functions() -> None:
    assert callable(undivided.recipes)
    assert list(undivided.recipes()) == [
        "char-gpt",
        "digits-attention",
        "iris-attention",
        "max-row",
        "max-row-solved",
        "mnist-attention",
        "mnist-attention-64",
        "mnist-cnn",
        "mnist-mlp",
        "mnist-vit",
        "reverse-seq2seq",
        "text-classifier",
        "time-series",
        "time-series-motions",
        "time-series-vowels",
    ]
    assert undivided.datasets.digits().classes == 10


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'undivided' has no attribute 'Modle'"):
        undivided.Modle  # noqa: B018


def test_an_unknown_recipe() -> None:
    with pytest.raises(undivided.ArgumentError) as error:
        undivided.recipe("mnist-atention")
    assert str(error.value) == (
        "There is no recipe named 'mnist-atention'. Did you mean 'mnist-attention'? "
        f"The recipes are {', '.join(undivided.recipes())}."
    )


def test_every_recipe_says_what_it_is_and_has_a_plan() -> None:
    for name, summary in undivided.recipes().items():
        assert 20 < len(summary) < 160 and summary.endswith(".")
        network = undivided.recipe(name)
        assert undivided.parse(network.to_text()) == network
        assert network.plan().parameter_count > 200
