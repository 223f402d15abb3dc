"""Every error, to the letter: place, line, caret, reason and suggestion.

`errors.txt` holds a text and its errors in each entry. A `layer` stands on line 4 of a small
network, a `network` is a whole text, a `fragment` a part of one. Names in angle brackets are
lists that grow with the library.
"""

from __future__ import annotations

import re
import typing
from pathlib import Path

import pytest

from undivided.errors import LanguageError
from undivided.language import parse, parse_fragment
from undivided.language.signatures import signature
from undivided.layers import Layer
from undivided.layers.activation import Function
from undivided.network import Network, Source, Train
from undivided.training.optimizers import Optimizer

AROUND = "network N {{\n  input: (8, 8)\n  layers:\n    {}\n    Output(10)\n}}\n"
ENTRIES = re.findall(
    r"^=== (\w+): (.+)\n((?:.*\n)*?)--->\n((?:.+\n)+)",
    (Path(__file__).parent / "errors.txt").read_text(encoding="utf-8"),
    flags=re.MULTILINE,
)
LISTS = {
    "<sorted layers>": sorted(Layer.members),
    "<layers>": Layer.members,
    "<functions>": map(repr, typing.get_args(Function)),
    "<sections>": signature(Network),
    "<entries>": signature(Train),
    "<sources>": Source.members,
}
LISTED = {name: ", ".join(words) for name, words in LISTS.items()}
LISTED["<optimizers>"] = (
    f"one of {', '.join(map(repr, Optimizer.shorts))} or an optimizer "
    f"({', '.join(Optimizer.members)})"
)


def errors(text: str, kind: str = "network") -> str:
    text = AROUND.format(text) if kind == "layer" else text
    with pytest.raises(LanguageError) as caught:
        (parse_fragment if kind == "fragment" else parse)(text, file="n.neural")
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [(kind, text.removesuffix("\n"), expected) for kind, _, text, expected in ENTRIES],
    ids=[f"{kind}: {name}" for kind, name, _, _ in ENTRIES],
)
def test_error(kind: str, text: str, expected: str) -> None:
    for name, words in LISTED.items():
        expected = expected.replace(name, words)
    assert errors(text, kind) == expected.removesuffix("\n")


def test_no_entry_was_lost() -> None:
    assert len(ENTRIES) >= 75


def test_an_empty_text() -> None:
    assert errors("") == (
        "n.neural:1:1: Expected 'network NAME { … }'. Got the end of the text.\n  1 | \n    | ^"
    )


def test_what_a_terminal_would_not_show_in_place() -> None:
    assert errors('\tFlatten(name="字e\u0301\u202e\t") @\u200b', "layer") == (
        "n.neural:4:28: '@�' has no meaning here. Text other than a word stands in quotes.\n"
        '  4 |      Flatten(name="字e\u0301� ") @�\n'
        "    |                            ^^"
    )
    assert errors("Dense(3\u200b)", "layer") == (
        "n.neural:4:12: The character U+200B has no meaning here.\n"
        "  4 |     Dense(3�)\n"
        "    |            ^"
    )
    assert "\x1b" not in errors("Flatten(\x1b[31m)", "layer")


def test_long_lines_are_cut_around_the_caret() -> None:
    text = "Flatten " * 30 + "Dens" + " Flatten" * 30
    assert errors(text, "layer") == (
        "n.neural:4:245: There is no layer 'Dens'. Did you mean 'Dense'?\n"
        f"  4 | …{'ten ' + 'Flatten ' * 6 + 'Flatten Dens' + ' Flatten' * 4 + ' Fla'}…\n"
        f"    | {' ' * 61}^^^^"
    )
    assert errors("Dens" * 100, "layer").count("^") == 96


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_whatever_ends_them(end: str) -> None:
    text = end.join(["\ufeff# one", "", "network N {", "  input: (3)", "  layers: Dens", "}"])
    assert errors(text) == (
        "n.neural:5:11: There is no layer 'Dens'. Did you mean 'Dense'?\n"
        "  5 |   layers: Dens\n"
        "    |           ^^^^"
    )


def test_what_is_quoted_is_cut() -> None:
    long = "x" * 100
    assert f"no layer '{'x' * 39}…'." in errors(long, "layer")
    assert f"value after '{'x' * 39}…'." in errors(f"network N {{ {long}: }}")
    assert f"Got '{'x' * 39}…'." in errors(f"Rescaling(({long}=3))", "layer")


def test_errors_are_listed_in_order_up_to_twenty() -> None:
    few = errors("Dens " * 20, "layer")
    assert [int(place) for place in re.findall(r"n\.neural:4:(\d+)", few)] == [*range(5, 105, 5)]
    assert "more" not in few
    assert errors("Dens " * 21, "layer").endswith("^^^^\n… and 1 more.")
    assert errors("Dens " * 5_000, "layer").endswith("^^^^\n… and at least 980 more.")
