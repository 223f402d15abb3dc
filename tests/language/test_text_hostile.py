"""Texts that were made to hurt: the answer is an error, soon, and in little memory."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_text_round_trip import RECIPES

from undivided.errors import LanguageError
from undivided.language import parse, parse_fragment
from undivided.network import Network

MEGABYTE = 1_000_000
SECONDS = 10.0  # ten times what a slow machine takes
BEGINNING = "network N {\n  input: (3)\n  layers: "
PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"
SIGNS = "(){}[],:=* \n1a\"'"


def nonsense(alphabet: str, seed: int = 1) -> str:
    return "".join(random.Random(seed).choices(alphabet, k=MEGABYTE))


HOSTILE = {
    "nonsense": nonsense(PRINTABLE),
    "nonsense inside": BEGINNING + nonsense(PRINTABLE.replace("}", "")),
    "signs inside": BEGINNING + nonsense(SIGNS.replace("}", "")),
    "beyond ASCII": BEGINNING + nonsense("".join(map(chr, range(0xA0, 0x2FFF)))),
    "surrogates": BEGINNING + "\ud800" * MEGABYTE,
    "parentheses": "(" * MEGABYTE,
    "parentheses inside": BEGINNING + "(" * MEGABYTE,
    "closed parentheses": f"{BEGINNING}Dense({'(' * 100_000}{')' * 100_000}) }}",
    "nested calls": BEGINNING + "Repeat(" * 100_000,
    "nested blocks": BEGINNING + "Residual { " * 100_000,
    "nested entries": BEGINNING + "a { b: " * 100_000,
    "repeats": f"{BEGINNING}Flatten{' * 1' * 250_000} }}",
    "a string": f'{BEGINNING}"{"a" * MEGABYTE}" }}',
    "an open string": f'{BEGINNING}"{"a" * MEGABYTE}',
    "an open string of escapes": BEGINNING + '"' + r"\"" * (MEGABYTE // 2),
    "quotes": BEGINNING + "'a' " * (MEGABYTE // 4),
    "one line of words": BEGINNING + "Dens " * (MEGABYTE // 5),
    "one word": BEGINNING + "a" * MEGABYTE,
    "short lines": BEGINNING + "abcd\n" * 200_000,
    "comments": "# x\n" * (MEGABYTE // 4),
    "empty lines": "\n" * MEGABYTE,
    "digits": f"{BEGINNING}Dense({'9' * MEGABYTE}) }}",
    "exponents": BEGINNING + "1e-1" * (MEGABYTE // 4),
    "minus signs": BEGINNING + "-" * MEGABYTE,
    "commas": BEGINNING + "," * MEGABYTE,
    "colons": BEGINNING + "a:" * (MEGABYTE // 2),
    "tuples": f"network N {{ layers: Flatten input: ({'1,' * (MEGABYTE // 2)}) }}",
    "arguments": f"{BEGINNING}Dense({'units=1,' * (MEGABYTE // 8)}) }}",
    "too long": " " * 5 * MEGABYTE,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_an_error_comes_soon_and_is_short(text: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(LanguageError) as caught:
        parse(text)
    assert time.perf_counter() - begin < SECONDS
    assert len(str(caught.value)) < 20_000


@pytest.mark.parametrize("kind", HOSTILE.keys())
def test_memory_is_bounded(kind: str) -> None:
    text = HOSTILE[kind][: MEGABYTE // 50]
    tracemalloc.start()
    try:
        with pytest.raises(LanguageError):
            parse(text)
        assert tracemalloc.get_traced_memory()[1] < 200 * len(text)
    finally:
        tracemalloc.stop()


def test_ten_thousand_layers_are_no_problem() -> None:
    begin = time.perf_counter()
    network = parse(f"{BEGINNING}{'Dense(32, activation=relu)' * 10_000} }}")
    assert len(network.layers) == 10_000
    assert time.perf_counter() - begin < SECONDS


def reads_or_refuses(text: str) -> None:
    for read in (parse, parse_fragment):
        try:
            found = read(text)
        except LanguageError as error:
            assert str(error).startswith("<text>:")
        else:
            assert isinstance(found, Network if read is parse else dict)


FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WORDS = """
network N { } ( ) [ ] , : = * / - # " ' input layers train optimizer data epochs Residual Dense
Flatten Repeat Adam ExponentialDecay mnist file units relu None true 0 1 32 1/255 1e999 0.5 @ “ \\
"a" \u202e
"""
PIECES = st.sampled_from(["\n", *WORDS.split()])


@FUZZ
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    reads_or_refuses(text)


@FUZZ
@given(st.lists(PIECES, max_size=60))
def test_any_pieces(pieces: list[str]) -> None:
    reads_or_refuses(" ".join(pieces))
    reads_or_refuses(f"network N {{ input: (3) layers: {' '.join(pieces)} }}")


@FUZZ
@given(
    st.sampled_from(RECIPES),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 30), PIECES | st.text(max_size=3)), max_size=4
    ),
)
def test_damaged_recipes(path, damages) -> None:
    text = path.read_text(encoding="utf-8")
    for place, length, replacement in damages:
        start = int(place * len(text))
        text = text[:start] + replacement + text[start + length :]
    reads_or_refuses(text)
