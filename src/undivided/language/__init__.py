"""The `.neural` text form of a network: text → Network and back."""

from undivided.language.printer import to_text
from undivided.language.reader import parse, parse_fragment, read

__all__ = ["parse", "parse_fragment", "read", "to_text"]
