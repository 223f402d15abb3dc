"""Text that others chose — labels, tokens, names — as text to be looked at.

A page shows it through `textContent` and never as markup. Here it loses what would still change
how the page around it reads: control characters, and those that turn the direction of writing.
They are shown by their number, so that nothing is hidden.
"""

from __future__ import annotations

import unicodedata

__all__ = ["visible"]

LONGEST = 200
"""Characters of one label that are shown."""

# Joiners and variation selectors make one sign of several in scripts and emoji; nothing else that
# is invisible has a use in a label.
_JOINERS = frozenset("\u200c\u200d")
_PICTURES = {"\n": "⏎", "\t": "⇥", "\r": "␍", "\0": "␀"}
_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))


def visible(text: object, longest: int = LONGEST) -> str:
    """`str(text)`, shortened, with a visible sign for every character that has none."""
    whole = str(text)
    if not whole.strip(" "):  # a blank is a token like any other
        return "␣" * min(len(whole), longest) or "⟨empty⟩"
    shown = "".join(_sign(character) for character in whole[:longest])
    return shown + "…" if len(whole) > longest else shown


def _sign(character: str) -> str:
    if character in _PICTURES:
        return _PICTURES[character]
    if unicodedata.category(character) in _HIDDEN and character not in _JOINERS:
        return f"⟨U+{ord(character):04X}⟩"
    return character
