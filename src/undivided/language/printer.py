"""Network → text that reads like the recipes and gives the same network again.

Defaults are left out. An argument that must be given goes without its name when it is the
first, as in `Dense(32)`, unless the name says what is counted (`num_heads=2`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field
from fractions import Fraction
from typing import Any

from undivided.description import Description
from undivided.errors import LanguageError
from undivided.language.signatures import (
    DEEPEST_NETWORK,
    block_field,
    required,
    signature,
    sole_member,
)
from undivided.language.tokens import LONGEST_NUMBER, WORD, quoted
from undivided.layers import Repeat
from undivided.network import File, Network, Source, source_of

__all__ = ["to_text", "value_text"]

_FIRST = ("input", "data", "layers")  # the other sections follow as Network declares them
_ALWAYS = ("loss", "optimizer")
_STEP = "  "


def to_text(network: Network) -> str:
    """The network in the `.neural` text form; `parse` reads it back equal."""
    name = network.name if WORD.fullmatch(network.name) else quoted(network.name)
    lines = [f"network {name} {{"]
    fields = signature(Network)
    for section in dict.fromkeys((*_FIRST, *fields)):
        field, hint = fields[section]
        value = getattr(network, section)
        if section == "name" or (section not in _ALWAYS and _is_default(field, value)):
            continue
        if section == block_field(Network):
            lines.append(f"{_STEP}{section}:")
            lines += [_STEP * 2 + _value(layer, _STEP * 2, 1) for layer in value]
        elif sole_member(hint) is not None and isinstance(value, Description):
            lines.append(f"{_STEP}{section} {{")
            lines += [f"{_STEP * 2}{entry}" for entry in _entries(value)]
            lines.append(f"{_STEP}}}")
        else:
            lines.append(f"{_STEP}{section}: {_value(value, _STEP, 1)}")
    return "\n".join([*lines, "}"]) + "\n"


def value_text(value: Any) -> str:
    """A value as a file has it, on one line."""
    return " ".join(_value(value, "", 1).split())


def _entries(section: Description) -> Iterator[str]:
    for field, _ in signature(type(section)).values():
        value = getattr(section, field.name)
        if not _is_default(field, value):
            yield f"{field.name}: {_value(value, _STEP * 2, 2)}"


def _value(value: Any, indent: str, depth: int) -> str:
    """A value as text; lines after the first begin with `indent`."""
    match value:
        case None:
            return "None"
        case bool():
            return "true" if value else "false"
        case int():
            return _whole(value)
        case float():
            return _number(value)
        case str():
            return quoted(value)
        case tuple():
            return "(" + ", ".join(_value(item, indent, depth) for item in value) + ")"
        case File() if source_of(value.path) == value:
            return quoted(value.path)
        case Description() if value.short is not None and _is_plain(value):
            return quoted(value.short)
    return _call(value, indent, depth)


def _call(described: Description, indent: str, depth: int) -> str:
    if depth > DEEPEST_NETWORK:
        raise LanguageError(f"Layers nested more than {DEEPEST_NETWORK} deep cannot be written.")
    if isinstance(described, Repeat) and described.name is None:
        return f"{_value(described.layer, indent, depth + 1)} * {_whole(described.times)}"
    inside = block_field(type(described))
    arguments = []
    for position, (field, _) in enumerate(signature(type(described)).values()):
        value = getattr(described, field.name)
        if field.name == inside or _is_default(field, value):
            continue
        text = _value(value, indent, depth + 1)
        bare = position == 0 and required(field) and not field.name.startswith("num_")
        arguments.append(text if bare else f"{field.name}={text}")
    call = f"{described.keyword}({', '.join(arguments)})"
    if inside is None:
        return described.keyword if isinstance(described, Source) and not arguments else call
    deeper = indent + _STEP
    lines = [deeper + _value(layer, deeper, depth + 1) for layer in getattr(described, inside)]
    head = call if arguments else described.keyword
    return "\n".join([f"{head} {{", *lines, f"{indent}}}"]) if lines else f"{head} {{}}"


def _is_plain(described: Description) -> bool:
    """Whether a description has nothing but defaults."""
    fields = (field for field, _ in signature(type(described)).values())
    return all(_is_default(field, getattr(described, field.name)) for field in fields)


def _is_default(field: Field[Any], value: Any) -> bool:
    return not required(field) and type(value) is type(field.default) and value == field.default


def _whole(value: int) -> str:
    if abs(value) >= 10 ** (LONGEST_NUMBER - 1):
        raise LanguageError(f"A number of {LONGEST_NUMBER} digits cannot be written.")
    return str(value)


def _number(value: float) -> str:
    """`0.003`, or `1/255` where that is the same number and shorter to read."""
    decimal = repr(value)
    below = round(1 / Fraction(value)) if value else 0
    digits = decimal.partition("e")[0].strip("-0.").replace(".", "")
    if below and 1 / below == value and 3 <= len(digits) > len(str(abs(below))):
        return f"{'-' * (value < 0)}1/{abs(below)}"
    return decimal
