"""What text and Python share: a thing with a name and typed arguments, such as `Dense(32)`.

Layers, optimizers, schedules, data sources and sections are all *descriptions*: frozen
dataclasses whose annotations say what each argument may be. Construction checks them, so the
text form and the Python form refuse the same mistakes with the same words, and the grammar of
the language needs to know none of their names.
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Union

from undivided.errors import ArgumentError

__all__ = ["Description", "accept", "argument", "arguments_of", "expectation"]


def argument(
    default: Any = dataclasses.MISSING,
    *,
    doc: str,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    kw_only: bool = False,
) -> Any:
    """A dataclass field with its documentation and the range its numbers must lie in."""
    limits = {"at_least": at_least, "at_most": at_most, "above": above, "below": below}
    return dataclasses.field(
        default=default,
        kw_only=kw_only,
        metadata={"doc": doc, "limits": {k: v for k, v in limits.items() if v is not None}},
    )


Signature = tuple[tuple[dataclasses.Field[Any], Any], ...]
"""The fields of a description, each with its annotation."""


class Description:
    """A named thing with typed arguments.

    A direct subclass declared with `family=True` (Layer, Optimizer, …) starts a family; every
    further subclass joins it under its keyword, and `Family.members` lists them by keyword. A
    subclass may be called by `short` names too: a string that stands for it with its defaults,
    such as "mse", in letters of any size. The first is the one that is printed, if any is:
    `also` are names that are only read.
    """

    keyword: ClassVar[str]
    members: ClassVar[dict[str, type[Description]]]
    short: ClassVar[str | None] = None
    shorts: ClassVar[dict[str, type[Description]]]

    def __init_subclass__(
        cls,
        *,
        family: bool = False,
        keyword: str | None = None,
        short: tuple[str, ...] = (),
        also: tuple[str, ...] = (),
    ) -> None:
        super().__init_subclass__()
        cls.keyword = keyword or cls.__name__
        cls.short = short[0] if short else None
        if family:
            cls.members, cls.shorts = {}, {}
        else:
            _refuse_a_clash(cls, cls.members.get(cls.keyword))
            cls.members[cls.keyword] = cls
            cls.shorts.update(dict.fromkeys(short + also, cls))

    def __post_init__(self) -> None:
        for field, hint in arguments_of(type(self)):
            if field.metadata:
                accepted = accept(self.keyword, field, hint, getattr(self, field.name))
                object.__setattr__(self, field.name, accepted)
        self.check()

    def check(self) -> None:
        """Refuse arguments that are right one by one and wrong together."""


def _refuse_a_clash(cls: type[Description], other: type[Description] | None) -> None:
    """Two descriptions of one name, unless it is the same one defined again, as in a notebook."""
    place = cls.__module__, cls.__qualname__
    if other is None or (other.__module__, other.__qualname__) == place:
        return
    raise ArgumentError(
        f"There is {cls.keyword} already, from {other.__module__}. Give the one from "
        f"{cls.__module__} another name."
    )


_signatures: dict[type, Signature] = {}


def arguments_of(cls: type) -> Signature:
    """The fields of a description with their resolved annotations, in positional order."""
    if cls not in _signatures:
        _signatures[cls] = _resolved(cls)
    return _signatures[cls]


def _resolved(cls: type) -> Signature:
    hints = typing.get_type_hints(cls)
    fields = dataclasses.fields(cls)
    ordered = [f for f in fields if not f.kw_only] + [f for f in fields if f.kw_only]
    return tuple((field, hints[field.name]) for field in ordered)


def accept(keyword: str, field: dataclasses.Field[Any], hint: Any, value: Any) -> Any:
    """`value` as an argument takes it, or an ArgumentError that says what it must be."""
    try:
        accepted = _accept(hint, value)
        _check_limits(accepted, field.metadata.get("limits", {}))
    except _Mismatch:
        raise ArgumentError(
            f"The {field.name!r} of {keyword} must be {expectation(field, hint)}. "
            f"Got {_shown(value)}.",
            argument=field.name,
        ) from None
    return accepted


def expectation(field: dataclasses.Field[Any], hint: Any) -> str:
    """What an argument must be, in words: `a whole number ≥ 1`."""
    signs = {"at_least": "≥", "at_most": "≤", "above": ">", "below": "<"}
    limits = field.metadata.get("limits", {})
    bounds = " and ".join(f"{signs[name]} {limit}" for name, limit in limits.items())
    return f"{_in_words(hint)} {bounds}".rstrip()


class _Mismatch(Exception):
    """A value does not fit an annotation."""


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the annotation itself."""
    if typing.get_origin(hint) in (Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _accept(hint: Any, value: Any) -> Any:
    """`value` as the annotation wants it (an int becomes a float), or `_Mismatch`."""
    for option in _alternatives(hint):
        try:
            return _accept_one(option, value)
        except _Mismatch:
            continue
    raise _Mismatch


def _accept_one(hint: Any, value: Any) -> Any:
    origin = typing.get_origin(hint)
    if hint is type(None):
        fits = value is None
    elif origin is Literal:
        fits = value in typing.get_args(hint) and not isinstance(value, bool)
    elif origin is tuple:
        return tuple(_accept_items(typing.get_args(hint), value))
    elif hint is bool:
        fits = isinstance(value, bool)
    elif hint is int:
        value, fits = _whole(value)
    elif hint is float:
        value, fits = _number(value)
    else:
        if isinstance(value, str) and value.lower() in getattr(hint, "shorts", {}):
            value = hint.shorts[value.lower()]()
        fits = isinstance(value, hint)
    if not fits:
        raise _Mismatch
    return value


def _whole(value: Any) -> tuple[Any, bool]:
    """NumPy's integers count as whole numbers; truth values do not."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return value, False
    return int(value), True


def _number(value: Any) -> tuple[Any, bool]:
    if isinstance(value, bool) or not (isinstance(value, float) or hasattr(value, "__index__")):
        return value, False
    try:
        number = float(value)
    except OverflowError:
        return value, False
    return number, math.isfinite(number)


def _accept_items(hints: tuple[Any, ...], value: Any) -> Iterator[Any]:
    if not isinstance(value, (tuple, list)):
        raise _Mismatch
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        raise _Mismatch
    for hint, item in zip(hints, value, strict=True):
        yield _accept(hint, item)


def _check_limits(value: Any, limits: dict[str, float]) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            continue
        inside = (
            number >= limits.get("at_least", -math.inf)
            and number <= limits.get("at_most", math.inf)
            and number > limits.get("above", -math.inf)
            and number < limits.get("below", math.inf)
        )
        if not inside:
            raise _Mismatch


def _in_words(hint: Any) -> str:
    return " or ".join(dict.fromkeys(_one_in_words(option) for option in _alternatives(hint)))


def _one_in_words(hint: Any) -> str:
    simple = {
        int: "a whole number",
        float: "a number",
        bool: "True or False",
        str: "a string",
        type(None): "None",
    }
    if hint in simple:
        return simple[hint]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(repr(choice) for choice in inner)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return f"a sequence, each {_in_words(inner[0])}"
    if origin is tuple:
        return "(" + ", ".join(_in_words(item) for item in inner) + ")"
    if isinstance(hint, type) and hasattr(hint, "in_words"):
        return str(hint.in_words)
    if isinstance(hint, type) and issubclass(hint, Description) and hasattr(hint, "members"):
        article = "an" if hint.__name__[0] in "AEIOU" else "a"
        members = f" ({', '.join(hint.members)})" if hint.members else ""
        shorts = ", ".join(repr(name) for name in hint.shorts)
        return f"{f'one of {shorts} or ' * bool(shorts)}{article} {hint.__name__.lower()}{members}"
    return getattr(hint, "__name__", str(hint))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
