"""What can go wrong, as exceptions whose text says what was expected, what came and what to do.

Every error that a user can cause derives from `UndividedError`, so that the command line can
print its text without a traceback and a program can catch them all at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "ArgumentError",
    "DataError",
    "ExportError",
    "LanguageError",
    "ModelFileError",
    "NonFiniteError",
    "ShapeError",
    "UndividedError",
    "suggest",
]


class UndividedError(Exception):
    """The base of all errors that undivided raises on purpose."""

    layer: Any = None
    """The layer that was being lowered, for those who know where it was written."""


class ArgumentError(UndividedError, ValueError):
    """A value given to a layer, an optimizer, a method or a flag is not one it can take.

    `argument` names the one at fault, so that a reader of text can point at its place.
    """

    def __init__(self, message: str, *, argument: str | None = None) -> None:
        super().__init__(message)
        self.argument = argument


class ShapeError(UndividedError, ValueError):
    """A layer cannot take what the layer before it gives."""


class LanguageError(UndividedError, ValueError):
    """A `.neural` text is not a network; the message lists every place and reason."""

    unknown: tuple[str, ...] = ()
    """Names in it that stand for nothing: a layer of somebody's own, which is not registered."""


class DataError(UndividedError, ValueError):
    """A data file is missing, damaged, or not what the network was made for."""


class ModelFileError(UndividedError, ValueError):
    """A model file is damaged, foreign, or does not belong to its own network."""


class ExportError(UndividedError, ValueError):
    """A network has something that the form it is exported to cannot say."""


class NonFiniteError(UndividedError, ArithmeticError):
    """A loss became NaN or infinite; the weights are those from before that step."""


def suggest(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` when something known is close to `word`, else the empty string."""
    names = list(known)
    folded = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(word[:64].casefold(), folded, n=1, cutoff=0.6)
    return f" Did you mean {folded[near[0]]!r}?" if near else ""
