"""Text → tokens: words, numbers, strings and signs, each with its place.

Tokens are made one at a time as the parser asks for them, so a long text costs no memory, and
every pattern reads a character at most twice, so it costs no time either. What cannot be a
token is reported and becomes a BAD token, which the parser passes over in silence.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from undivided.language.diagnostics import Diagnostics, shortened

__all__ = [
    "GIVEN_UP",
    "LONGEST_NUMBER",
    "OPEN_STRING",
    "WORD",
    "Kind",
    "Token",
    "quoted",
    "ratio",
    "tokens",
]

LONGEST_NUMBER = 600  # characters; Python may refuse to convert longer ones
MOST_TOKENS = 250_000  # ten thousand layers with all their arguments
OPEN_STRING = "open"  # the value of a BAD token that may have swallowed closing brackets
GIVEN_UP = "given up"  # the value of an END token that is not the end of the text


class Kind(Enum):
    """What a token is, in the words of an error message."""

    WORD = "a word"
    NUMBER = "a number"
    STRING = "a string"
    SIGN = "a sign"
    BAD = "something unreadable"
    END = "the end of the text"


class Token(NamedTuple):
    kind: Kind
    start: int
    end: int
    value: str | int | float = ""


WORD = re.compile(r"[^\W\d]\w*")
_TOKEN = re.compile(
    r"""
      (?P<space>   \s+ | \#[^\r\n]* | //[^\r\n]* )
    | (?P<block>   /\* (?: [^*]+ | \*(?!/) )*+ (?: \*/ )? )
    | (?P<word>    [^\W\d]\w* )
    | (?P<number>  \.?[0-9] (?: [eE][+-](?=[0-9]) | [\w.] )*+ )
    | (?P<string>  " (?: [^"\\\r\n]+ | \\[^\r\n] )*+ " | ' (?: [^'\\\r\n]+ | \\[^\r\n] )*+ ' )
    | (?P<open>    ["'] [^\r\n]* )
    | (?P<curly>   [“”„‟‘’‚‛«»] [^\r\n“”„‟‘’‚‛«»]* [“”„‟‘’‚‛«»]? )
    | (?P<sign>    [{}()\[\],:=*/-] )
    | (?P<bad>     [^\s\w"'\#{}()\[\],:=*/-]+ | . )
    """,
    re.VERBOSE,
)
_NUMBER = re.compile(r"(?:[0-9]+(\.[0-9]*)?|(\.[0-9]+))([eE][+-]?[0-9]+)?", re.ASCII)
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "0": "\0"}


def tokens(text: str, problems: Diagnostics) -> Iterator[Token]:
    """The tokens of a text, with END for ever after the last."""
    position = count = 0
    while found := _TOKEN.match(text, position):
        start, position = position, found.end()
        count += found.lastgroup != "space"
        if count > MOST_TOKENS:
            message = (
                f"The text has more than {MOST_TOKENS:,} words and signs. '* N' repeats a layer."
            )
            problems.report(start, position, message)
            while True:
                yield Token(Kind.END, start, start, GIVEN_UP)
        match found.lastgroup:
            case "space":
                pass
            case "block":
                message = "A comment begins with # or // and ends with its line."
                problems.report(start, start + 2, message)
            case "word":
                yield Token(Kind.WORD, start, position, found.group())
            case "sign":
                yield Token(Kind.SIGN, start, position, found.group())
            case "number":
                yield _number(found.group(), start, problems)
            case "string":
                yield _string(found.group(), start, problems)
            case "open":
                problems.report(start, start + 1, "This string is not closed on its line.")
                yield Token(Kind.BAD, start, position, OPEN_STRING)
            case "curly":
                message = f"Strings stand in \" or '. Got {shortened(found.group())}."
                problems.report(start, position, message)
                yield Token(Kind.BAD, start, position, OPEN_STRING)
            case _:
                problems.report(start, position, _unreadable(found.group()))
                yield Token(Kind.BAD, start, position)
    end = len(text.rstrip())
    while True:
        yield Token(Kind.END, end, end)


def quoted(text: str) -> str:
    """A string as it is written: what `_string` turns back into the same text."""
    written = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", '"': '\\"'}
    return '"' + "".join(written.get(sign) or _visible(sign) for sign in text) + '"'


def ratio(above: float, below: float) -> float | str:
    """`above / below`, or why not."""
    if below == 0:
        return "A number cannot be divided by 0."
    try:
        value = above / below
    except OverflowError:
        return "This number is too large."
    return _finite(value, nonzero=above != 0)


def _visible(sign: str) -> str:
    if sign.isprintable():
        return sign
    code = ord(sign)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _string(written: str, start: int, problems: Diagnostics) -> Token:
    end = start + len(written)
    value = inside = written[1:-1]
    if "\\" in inside:
        for escape in _ESCAPE.finditer(inside):
            if _meant(escape) is None:
                problems.report(
                    start + 1 + escape.start(),
                    start + 1 + escape.end(),
                    f"{shortened(escape.group())} stands for nothing in a string. "
                    r"A backslash itself is written '\\'.",
                )
                return Token(Kind.BAD, start, end)
        value = _ESCAPE.sub(lambda escape: _meant(escape) or "", inside)
    return Token(Kind.STRING, start, end, value)


def _meant(escape: re.Match[str]) -> str | None:
    """What an escape in a string stands for."""
    kind, digits = escape.group()[1], escape.group()[2:]
    if not digits:
        return _ESCAPES.get(kind)
    code = int(digits, 16)
    return chr(code) if code <= sys.maxunicode else None


def _number(written: str, start: int, problems: Diagnostics) -> Token:
    value = _value(written)
    end = start + len(written)
    if isinstance(value, str):
        problems.report(start, end, value)
        return Token(Kind.BAD, start, end)
    return Token(Kind.NUMBER, start, end, value)


def _value(written: str) -> int | float | str:
    """The number that is written, or why it is none."""
    if len(written) > LONGEST_NUMBER:
        return f"A number of {len(written):,} characters is too long."
    found = _NUMBER.fullmatch(written)
    if not found:
        return f"{shortened(written)} is not a number."
    if not any(found.groups()):
        return int(written)
    mantissa = written.lower().partition("e")[0]
    return _finite(float(written), nonzero=any(digit in "123456789" for digit in mantissa))


def _finite(value: float, *, nonzero: bool) -> float | str:
    if not math.isfinite(value):
        return "This number is too large."
    if nonzero and value == 0:
        return "This number is too close to 0."
    return value


def _unreadable(found: str) -> str:
    if not found[0].isprintable():
        return f"The character U+{ord(found[0]):04X} has no meaning here."
    if found == ";":
        return "A ';' is not needed: white space or a comma separates."
    if found.startswith("```"):
        return "The lines with ``` are Markdown's. Leave them out: a file is the network alone."
    return f"{shortened(found)} has no meaning here. Text other than a word stands in quotes."
