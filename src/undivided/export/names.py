"""What things are called in C: one identifier for each value and weight, and text in comments."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Names", "in_comment", "is_identifier"]

KEYWORDS = frozenset(
    """
    auto break case char const continue default do double else enum extern float for goto if inline
    int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while main math_errhandling
    alignas alignof and asm bool catch class compl concept constexpr decltype delete explicit export
    false friend mutable namespace new noexcept not nullptr operator or private protected public
    requires template this throw true try typeid typename using virtual xor
    """.split()  # noqa: SIM905 - a page of words; the last three lines are those of C++
)


def is_identifier(text: str) -> bool:
    """Whether `text` can stand before `_predict`, in C and in C++, and be a file's name."""
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", text) is not None and "__" not in text


class Names:
    """Identifiers for names of the plan: `attention_1.heads` becomes `attention_1_heads`.

    A layer may be called anything; what C cannot say becomes `_`, and what is taken gets a number.
    All are lower case, where no macro of a header can be.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {*KEYWORDS, *taken}
        self._given: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._given:
            self._given[name] = self._new(name)
        return self._given[name]

    def _new(self, name: str) -> str:
        base = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:60]
        if not base or base[0].isdigit():
            base = f"layer_{base}".rstrip("_")
        identifier, number = base, 1
        while identifier in self._taken:
            number += 1
            identifier = f"{base}_{number}"
        self._taken.add(identifier)
        return identifier


def in_comment(text: str, longest: int = 200) -> str:
    """`text` as it may stand in a comment: ASCII, on one line, ending nothing."""
    plain = text.replace("→", "->").replace("×", "x")
    plain = plain.encode("ascii", "backslashreplace").decode()
    plain = re.sub(r"[\x00-\x1f\x7f]", " ", plain)
    plain = plain.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
    return plain if len(plain) <= longest else plain[: longest - 3] + "..."
