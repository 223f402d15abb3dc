"""Calls and blocks → arguments by name: `Dense(32, bias=false)` gives units and bias.

Here positions become names, and sections are told from layers. What the values mean is the
binder's part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from undivided.description import Description
from undivided.errors import suggest
from undivided.language.diagnostics import Diagnostics
from undivided.language.signatures import block_field, positional, signature
from undivided.language.syntax import Block, Broken, Call, Entry, Node, Repeated, Word

__all__ = ["Given", "arguments", "leading_name", "sections"]


@dataclass
class Given:
    """An argument or section as the text gives it, not yet checked."""

    name: str
    at: Node
    values: list[Node]
    many: bool = False  # `layers:` takes any number of values, `layers=` one tuple of them


def sections(
    problems: Diagnostics, cls: type[Description], block: Block, *, bare: str | None
) -> list[Given]:
    """The entries of a block, and under the name `bare` its values without one.

    `train { … }` after the last layer looks like one more layer. It is a section, because
    `cls` has an argument of that name.
    """
    known = signature(cls)
    given: list[Given] = []
    within: Given | None = None  # what the next value belongs to
    damaged: list[Given] = []
    stray = False

    def begin(name: str, at: Node, *values: Node) -> Given:
        given.append(Given(name, at, list(values), many=True))
        return given[-1]

    for piece, after_name in _pieces(block):
        name = leading_name(piece)
        if isinstance(piece, Entry):
            within, stray = begin(piece.name.text, piece.name), False
        elif name and name.text in known and not (after_name and piece is name):
            stray = False
            if isinstance(piece, Call) and piece.arguments is None and piece.block:
                begin(name.text, name, piece.block)
                within = None
            else:
                _report(problems, name, f"Expected ':' or '=' after '{name.text}'.")
                within = begin(name.text, name)
                damaged.append(within)
        elif within is not None:
            within.values.append(piece)
        elif bare is not None:
            within = begin(bare, piece, piece)
        elif not stray and not isinstance(piece, Broken):
            stray = True
            _report(
                problems,
                piece,
                f"Expected 'name: value' or 'name {{ … }}' in {cls.keyword}. "
                f"Got {problems.quote(piece.start, piece.end)}."
                f"{suggest(name.text, known) if name else ''}",
            )
    for one in damaged:
        one.values = one.values or [Broken(one.at.start, one.at.end)]
    return given


def arguments(
    problems: Diagnostics, cls: type[Description], call: Call
) -> tuple[list[Given], bool]:
    """The arguments and the block of a call, and whether it is clear what each is meant for."""
    names = positional(cls)
    given: list[Given] = []
    clear = True
    named = False
    for index, argument in enumerate(call.arguments or ()):
        if argument.name is not None:
            named = True
            given.append(Given(argument.name.text, argument.name, [argument.value]))
        elif not named and index < len(names):
            given.append(Given(names[index], argument, [argument.value]))
        elif clear and not isinstance(argument.value, Broken):
            clear = False
            unnamed = sum(other.name is None for other in call.arguments or ())
            message = _too_many(cls.keyword, names, unnamed)
            if named:
                message = "An argument without a name must stand before those with names."
            _report(problems, argument, message)
    if call.block is not None:
        inside = block_field(cls)
        given += sections(problems, cls, call.block, bare=inside)
        if inside and not call.block.items:
            given.append(Given(inside, call.block, [], many=True))
    return given, clear


def _pieces(block: Block) -> Iterator[tuple[Node, bool]]:
    """The items of a block, each entry followed by its values; true for the first of these."""
    for item in block.items:
        yield item, False
        if isinstance(item, Entry):
            for index, value in enumerate(item.values):
                yield value, index == 0


def leading_name(node: Node) -> Word | None:
    """The word that a piece of syntax begins with and is named by."""
    if isinstance(node, Repeated):
        node = node.value
    if isinstance(node, (Call, Entry)):
        return node.name
    return node if isinstance(node, Word) else None


def _too_many(keyword: str, names: tuple[str, ...], count: int) -> str:
    if not names:
        return f"{keyword} takes no arguments without a name. Got {count}."
    return (
        f"{keyword} takes at most {len(names)} arguments without a name "
        f"({', '.join(names)}). Got {count}."
    )


def _report(problems: Diagnostics, node: Node, message: str) -> None:
    problems.report(node.start, node.end, message)
