"""Where in a text the layers of a network stand, for errors that are found after reading.

Whether shapes fit is known when a network becomes a plan, long after its text was bound. The
network carries this along, so that such an error too names file, line and column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from undivided.description import Description
from undivided.language.diagnostics import Diagnostics

__all__ = ["Origin"]


@dataclass(frozen=True)
class Origin:
    """A text, what it is called, and the place of each layer in it by the layer's identity."""

    text: str
    file: str
    places: Mapping[int, tuple[int, int]]

    def show(self, layer: Description, message: str) -> str:
        """`file:line:column: message`, the line and a caret; the message alone if unknown."""
        if id(layer) not in self.places:
            return message
        return Diagnostics(self.text, self.file).show(*self.places[id(layer)], message)
