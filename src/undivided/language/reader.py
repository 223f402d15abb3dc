"""The way from a text or a file to a Network: tokens, syntax tree, binding, errors."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from undivided.description import Description
from undivided.errors import ArgumentError, LanguageError, suggest
from undivided.language.binder import Binder
from undivided.language.diagnostics import Diagnostics, TooManyErrors, harmless
from undivided.language.parser import Parser
from undivided.language.signatures import families, options, signature
from undivided.network import Network, Source, source_of

__all__ = ["parse", "parse_argument", "parse_fragment", "read"]

LARGEST = 4_000_000  # characters, or bytes of a file
_LOOKED_AT = 1_000  # names in a folder among which a near one is sought

Result = TypeVar("Result")


def parse(text: str, *, file: str = "<text>") -> Network:
    """The network that a text describes.

    A LanguageError lists everything that is wrong with the text; `file` is what it calls it.
    """

    def bind(parser: Parser, binder: Binder) -> Network | None:
        definition = parser.definition()
        return None if definition is None else binder.network(definition)

    return _bound(text, file, bind)


def parse_fragment(text: str, *, file: str = "<text>") -> dict[str, Any]:
    """The sections of a part of a network, by name: bare layers, `optimizer: …`, `train { … }`.

    Layers without a section around them come as `"layers"`. Nothing is missing in a fragment.
    """

    def bind(parser: Parser, binder: Binder) -> dict[str, Any]:
        return binder.fragment(parser.fragment())

    return _bound(text, file, bind)


def parse_argument(text: str, cls: type[Description], name: str, *, file: str = "<text>") -> Any:
    """The value of one argument of a description, as a network's text gives it.

    Words that are no value in that text stand for themselves where a string is wanted, so that
    nobody has to quote twice: `mine/data.npz`.
    """
    hint = signature(cls)[name][1]
    plain = str in options(hint) or Source in families(hint)
    try:
        parsed = _bound(
            text, file, lambda parser, binder: (binder.argument(cls, name, parser.value()),)
        )
    except LanguageError:
        if not plain or not re.fullmatch(r"[\w./~:\- ]+", text):
            raise
        parsed = (source_of(text) if Source in families(hint) else text,)
    return parsed[0]


def read(path: str | os.PathLike[str]) -> Network:
    """The network that a `.neural` file describes."""
    file = os.fsdecode(path)
    try:
        with open(file, "rb") as stream:
            content = stream.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise LanguageError(f"{harmless(file)}: {_unreadable(Path(file), error)}") from error
    if len(content) > LARGEST:
        raise LanguageError(_too_large(file))
    return parse(_decoded(content, file), file=file)


def _bound(text: str, file: str, bind: Callable[[Parser, Binder], Result | None]) -> Result:
    if not isinstance(text, str):
        raise ArgumentError(f"A network's text is a string. Got {type(text).__name__}.")
    if len(text) > LARGEST:
        raise LanguageError(_too_large(file))
    text = text.removeprefix("\ufeff")
    problems = Diagnostics(text, file)
    result = None
    with contextlib.suppress(TooManyErrors):
        result = bind(Parser(text, problems), Binder(problems))
    problems.raise_if_any()
    assert result is not None, "nothing was reported and nothing was read"
    return result


def _too_large(file: str) -> str:
    return f"{harmless(file)}: a network's text has at most {LARGEST:,} characters."


def _decoded(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        text = content.decode("utf-8", errors="replace").removeprefix("\ufeff")
        start = len(content[: error.start].decode("utf-8").removeprefix("\ufeff"))
        problems = Diagnostics(text, file)
        utf_16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
        problems.report(
            start,
            start + 1,
            f"The byte 0x{content[error.start]:02x} is not UTF-8 text. "
            f"{'The file is UTF-16: save' if utf_16 else 'Save'} the file as UTF-8.",
        )
        problems.raise_if_any()
        raise


def _unreadable(path: Path, error: Exception) -> str:
    """Why a file cannot be read, and what may have been meant."""
    if isinstance(error, FileNotFoundError):
        near = suggest(path.name, _networks_in(path.parent))
        return f"There is no such file.{harmless(near)}"
    if isinstance(error, IsADirectoryError):
        inside = sorted(_networks_in(path))
        example = f" Name a file in it, such as '{harmless(inside[0])}'." if inside else ""
        return f"This is a folder, not a file.{example}"
    return f"This file cannot be read: {getattr(error, 'strerror', None) or error}."


def _networks_in(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _LOOKED_AT)]
    except (OSError, ValueError):
        return []
    return [name for name in names if name.endswith(".neural")]
