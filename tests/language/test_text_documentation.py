"""What docs/language.md shows is what the language does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from undivided.language import parse, parse_fragment, parser, to_text
from undivided.language.cursor import DEEPEST
from undivided.language.reader import LARGEST
from undivided.language.signatures import DEEPEST_NETWORK, signature
from undivided.language.tokens import MOST_TOKENS
from undivided.network import Execution, Network, Source, Train

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("text", blocks("neural"))
def test_examples_parse(text: str) -> None:
    if re.search(r"^network ", text, flags=re.MULTILINE):
        assert parse(to_text(parse(text))) == parse(text)
    else:
        assert parse_fragment(text)


def test_there_are_examples_of_both_kinds() -> None:
    assert len(blocks("neural")) >= 4


def test_every_key_is_documented() -> None:
    names = [name for cls in (Network, Train, Execution) for name in signature(cls)]
    for name in [*names, *Source.members]:
        assert f"`{name}`" in PAGE or f"`{name}(" in PAGE, name


def test_limits_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    assert f"{LARGEST:,} characters and {MOST_TOKENS:,} words and signs" in text
    assert f"brackets nested {DEEPEST} deep and layers {DEEPEST_NETWORK} deep" in text


def test_the_grammar_is_that_of_the_parser() -> None:
    stated = {" ".join(line.split()) for line in (parser.__doc__ or "").splitlines()}
    for line in blocks("ebnf")[0].splitlines():
        assert any(known.startswith(" ".join(line.split())) for known in stated), line
