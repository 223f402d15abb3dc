"""What the annotations of a description say about its text form.

Binder and printer ask here, and nowhere is a layer named: a new description with typed
arguments can be written and read without a change to the language.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import cache
from typing import Any, Literal, Union

from undivided.description import Description, arguments_of

__all__ = [
    "DEEPEST_NETWORK",
    "block_field",
    "choices",
    "families",
    "holds_descriptions",
    "item_hint",
    "kinds_of",
    "members",
    "noun",
    "options",
    "positional",
    "required",
    "signature",
    "sole_member",
    "with_article",
]

DEEPEST_NETWORK = 96  # descriptions inside one another, so that brackets stay below the parser's


def options(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the annotation itself."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


@cache
def families(hint: Any) -> tuple[type[Description], ...]:
    """The families that an argument takes a member of: `float | Schedule` → (Schedule,)."""
    return tuple(
        option
        for option in options(hint)
        if isinstance(option, type) and issubclass(option, Description)
    )


def item_hint(hint: Any, index: int) -> Any:
    """What the item of a tuple must be; None when the argument takes no such tuple."""
    for option in options(hint):
        inner = typing.get_args(option)
        if typing.get_origin(option) is tuple and inner:
            if len(inner) == 2 and inner[1] is Ellipsis:
                return inner[0]
            if index < len(inner):
                return inner[index]
    return None


def signature(cls: Any) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """The arguments of a description by name, in positional order, with their annotations."""
    return {field.name: (field, hint) for field, hint in arguments_of(cls)}


def holds_descriptions(hint: Any) -> bool:
    """Whether an argument takes a sequence of descriptions, such as layers."""
    return bool(families(item_hint(hint, 0)))


def block_field(cls: Any) -> str | None:
    """The argument that a block `{ … }` gives: the first that takes a sequence of descriptions.

    Not one that always needs its name.
    """
    return next(
        (
            name
            for name, (field, hint) in signature(cls).items()
            if holds_descriptions(hint) and not field.kw_only
        ),
        None,
    )


def positional(cls: type[Description]) -> tuple[str, ...]:
    """The arguments that may be written without their names."""
    return tuple(name for name, (field, _) in signature(cls).items() if not field.kw_only)


def required(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def members(family: type[Description]) -> dict[str, type[Description]]:
    """The descriptions of a family by keyword; a family without members is its own."""
    return family.members or {family.keyword: family}


@cache
def sole_member(hint: Any) -> type[Description] | None:
    """The one description that an argument takes, as `train` takes Train: its name can go."""
    found = families(hint)
    return found[0] if len(found) == 1 and not found[0].members else None


def choices(hint: Any) -> list[str]:
    """The words that an argument takes: the strings of a Literal, the members of a family."""
    found = [
        choice
        for option in options(hint)
        if typing.get_origin(option) is Literal
        for choice in typing.get_args(option)
        if isinstance(choice, str)
    ]
    for family in families(hint):
        found += [*family.shorts, *members(family)]
    return found


def noun(family: type[Description]) -> str:
    """`layer`, `optimizer`, …"""
    return family.__name__.lower()


def kinds_of(name: str) -> list[str]:
    """The families that know a name: 'Adam' → ['optimizer']."""
    return [noun(family) for family in Description.__subclasses__() if name in family.members]


def with_article(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
