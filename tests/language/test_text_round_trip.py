"""Print, parse, equal: for every network that can be described."""

from __future__ import annotations

from pathlib import Path

import pytest
from generated_networks import networks
from hypothesis import HealthCheck, given, settings

import undivided
from undivided.language import parse, read, to_text
from undivided.layers import Dense, Flatten, Repeat, Residual
from undivided.network import File, Mnist, Network
from undivided.recipes import recipe_path

RECIPES = [recipe_path(name) for name in undivided.recipes()]


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(networks())
def test_every_network_survives_being_printed_and_parsed(network: Network) -> None:
    text = to_text(network)
    assert parse(text) == network
    assert to_text(parse(text)) == text


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_survive(path: Path) -> None:
    network = read(path)
    assert parse(network.to_text()) == network


def test_there_are_recipes() -> None:
    assert len(RECIPES) >= 3


@pytest.mark.parametrize("name", ["network", "None", "true", "Ä_1", "", "two words", "1st", "a-b"])
def test_any_string_is_a_name(name: str) -> None:
    network = Network(name=name, input=(3,), layers=(Flatten(),))
    assert parse(to_text(network)) == network


def test_sources_that_look_alike_stay_apart() -> None:
    for data in (Mnist(), File("mnist"), File("mnist.npz"), File(""), Mnist(folder="mnist")):
        network = Network(input=(3,), layers=(Flatten(),), data=data)
        assert parse(to_text(network)).data == data


def test_repeats_of_repeats_and_named_repeats() -> None:
    inner = Repeat(Residual((Dense(3) * 2, Flatten())), 3, name="block")
    network = Network(input=(3,), layers=(inner * 4 * 5, Residual(()), Repeat(inner, 1)))
    assert parse(to_text(network)) == network


def test_the_deepest_network_that_can_be_written_can_be_read() -> None:
    def nested(depth: int) -> Network:
        layer = Dense(3)
        for _ in range(depth - 1):
            layer = Residual((layer,))
        return Network(input=(3,), layers=(layer,))

    assert parse(to_text(nested(96))) == nested(96)
    with pytest.raises(undivided.errors.LanguageError, match="more than 96 deep cannot be written"):
        to_text(nested(97))
    named = Dense(3)
    for level in range(95):
        named = Repeat(named, 2, name=f"level {level}")
    network = Network(input=(3,), layers=(named,))
    assert parse(to_text(network)) == network


def test_the_longest_number_that_can_be_written_can_be_read() -> None:
    longest = Network(input=(3,), layers=(Dense(10**599 - 1),))
    assert parse(to_text(longest)) == longest
    with pytest.raises(undivided.errors.LanguageError, match="number of 600 digits"):
        to_text(Network(input=(3,), layers=(Dense(10**5000),)))
