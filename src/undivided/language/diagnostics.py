"""What is wrong with a text: every place and reason, shown so that a person finds it at once.

Nobody wants to mend a file one error at a time, so reports are collected while a text is read
and raised together. A text may also be hostile: what is quoted of it is cut short, signs that
would move a terminal's cursor are replaced, and collecting ends at a thousand errors.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from undivided.errors import LanguageError

__all__ = ["Diagnostics", "TooManyErrors", "harmless", "shortened"]

SHOWN = 20  # errors in a message
COLLECTED = 1_000  # errors after which nobody looks further
EXCERPT = 100  # characters of a line around the caret
BEFORE_CARET = 60  # of which so many may stand before it
QUOTED = 40  # characters of the user's own text inside a message


class TooManyErrors(Exception):
    """The text has so many errors that looking for more is a waste of time."""


@dataclass(frozen=True, order=True)
class Diagnostic:
    """A reason, and the part of the text it is about, as character offsets."""

    start: int
    end: int
    message: str


class Diagnostics:
    """The errors of one text."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.unknown: list[str] = []
        """Names of layers and the like that nobody knows; perhaps somebody's own."""
        self._found: set[Diagnostic] = set()

    def __len__(self) -> int:
        return len(self._found)

    def report(self, start: int, end: int, message: str) -> None:
        self._found.add(Diagnostic(start, end, message))
        if len(self._found) >= COLLECTED:
            raise TooManyErrors

    def quote(self, start: int, end: int) -> str:
        """A part of the text for use inside a message."""
        return shortened(self.text[start : min(end, start + QUOTED + 1)])

    def raise_if_any(self) -> None:
        if not self._found:
            return
        first = sorted(self._found)[:SHOWN]
        places = [self.show(found.start, found.end, found.message) for found in first]
        more = len(self._found) - SHOWN
        if len(self._found) >= COLLECTED:
            places.append(f"… and at least {more} more.")
        elif more > 0:
            places.append(f"… and {more} more.")
        error = LanguageError("\n".join(places))
        error.unknown = tuple(dict.fromkeys(self.unknown))
        raise error

    def show(self, start: int, end: int, message: str) -> str:
        """`file:line:column: message`, the line, and carets below the part that is meant."""
        row, line_start, line_end = self._line(start)
        column = start - line_start + 1
        first = line_start
        if line_end - line_start > EXCERPT:
            first = max(line_start, min(start - BEFORE_CARET, line_end - EXCERPT))
        last = min(line_end, first + EXCERPT)
        before = "…" * (first > line_start) + harmless(self.text[first:start])
        meant = harmless(self.text[start : min(end, last)])
        after = harmless(self.text[max(start, min(end, last)) : last])
        margin = " " * len(str(row))
        return (
            f"{harmless(self.file)}:{row}:{column}: {message}\n"
            f"  {row} | {before}{meant}{after}{'…' * (last < line_end)}\n"
            f"  {margin} | {' ' * _width(before)}{'^' * max(1, _width(meant))}"
        )

    def _line(self, offset: int) -> tuple[int, int, int]:
        """Number, start and end of the line around an offset; CR, LF and CRLF end lines."""
        text = self.text
        ends = text.count("\n", 0, offset) + text.count("\r", 0, offset)
        row = 1 + ends - text.count("\r\n", 0, offset)
        start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
        following = (text.find("\n", offset), text.find("\r", offset))
        return row, start, min((end for end in following if end >= 0), default=len(text))


def harmless(text: str) -> str:
    """Text that a terminal shows in place: tabs as spaces, other invisible signs as �."""
    return "".join(" " if sign == "\t" else sign if sign.isprintable() else "�" for sign in text)


def shortened(text: str) -> str:
    """`'text'` in quotes, harmless and not too long."""
    cut = text if len(text) <= QUOTED else text[: QUOTED - 1] + "…"
    return f"'{harmless(cut)}'"


def _width(text: str) -> int:
    """How many columns a terminal gives a text: two for wide signs, none for combining ones."""
    return sum(
        0 if unicodedata.combining(sign) else 1 + (unicodedata.east_asian_width(sign) in "WF")
        for sign in text
    )
