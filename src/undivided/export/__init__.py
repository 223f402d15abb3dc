"""Trained models in other forms: `undivided.export.c` prints one as C99."""

from undivided.export.write import Exported, c

__all__ = ["Exported", "c"]
