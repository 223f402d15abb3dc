"""The syntax tree: what a text says, before anybody asks what its names mean.

It is the same for every layer, optimizer and section: words, values, and calls that may carry
arguments and a block. `start` and `end` are character offsets into the text.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "Argument",
    "Block",
    "Broken",
    "Call",
    "Definition",
    "Entry",
    "Node",
    "Number",
    "Repeated",
    "String",
    "Tuple",
    "Word",
]


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Broken(Node):
    """Something unreadable whose error has been reported; it causes no further ones."""


@dataclass(frozen=True, slots=True)
class Number(Node):
    value: int | float


@dataclass(frozen=True, slots=True)
class String(Node):
    text: str


@dataclass(frozen=True, slots=True)
class Word(Node):
    """`Flatten`, `mnist`, `true`; also what stands before a `:`, a `=` or a call's arguments."""

    text: str


@dataclass(frozen=True, slots=True)
class Tuple(Node):
    """`(28, 28)`, `(12)`, `[a, b]`."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """`32` or `units=32` between the parentheses of a call."""

    name: Word | None
    value: Node


@dataclass(frozen=True, slots=True)
class Entry(Node):
    """`epochs: 5`, or `layers:` with any number of values."""

    name: Word
    values: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Block(Node):
    """`{ … }`: entries and values."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`Name(…)`, `Name { … }` or `Name(…) { … }`."""

    name: Word
    arguments: tuple[Argument, ...] | None
    block: Block | None


@dataclass(frozen=True, slots=True)
class Repeated(Node):
    """`value * 3 * 2`."""

    value: Node
    counts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Definition(Node):
    """`network NAME { … }`; start and end are those of the word and the name."""

    name: Word | None
    block: Block
