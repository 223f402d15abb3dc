"""What the tokens of an attention stand for: patches, words, times of a series, or numbers.

Found in the plan: from what attention reads, back through the operations, to the one in which the
axis of tokens begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from undivided.plan.plan import Operation, Plan, Ragged, Shape

__all__ = ["Tokens", "tokens_of"]

Kind = Literal["patches", "text", "series", "learned", "numbers"]


@dataclass(frozen=True)
class Tokens:
    """The axis of tokens that an attention's queries or keys lie along."""

    kind: Kind
    source: str = ""
    """The input of the plan that they are of."""
    rows: int = 0
    columns: int = 0
    """Patches lie in a grid of so many rows and columns; both are 0 for anything else."""
    learned: int = 0
    """So many tokens stand before them that are of no input, such as a class token."""

    def as_json(self) -> dict[str, Any]:
        grid = {"rows": self.rows, "columns": self.columns, "learned": self.learned}
        return {"kind": self.kind, "source": self.source, **grid}


def tokens_of(plan: Plan, name: str) -> Tokens:
    """What the rows of the value of that name stand for."""
    makers = {op.output: op for op in plan.operations}
    source, length = _source(makers, name), plan.values[name].shape[0]
    while name in makers:
        maker = makers[name]
        before = plan.values[maker.inputs[0]]
        if maker.kind == "learned":
            return Tokens("learned", source)
        if maker.kind == "concatenate":
            return _behind(plan, makers, *maker.inputs)
        if maker.kind == "embed":
            return Tokens("text", source)
        if maker.kind == "unfold":
            (height, width), (down, across) = _grid(before.shape), maker.attributes["size"]
            return Tokens("patches", source, height // down, width // across)
        if maker.kind == "reshape" and len(before.shape) == 3:
            rows, columns = _grid(before.shape)
            if rows * columns == length:  # the pixels of a picture, row by row
                return _windows(plan, before.name, source)
        if len(before.shape) != 2 or before.shape[0] != length:
            return Tokens("numbers", source)
        name = before.name
    # The network's own input: numbers that follow one another in time, one row for each token.
    return Tokens("series", source)


def _source(makers: Mapping[str, Operation], name: str) -> str:
    """The input that a value is made of."""
    while name in makers:
        name = makers[name].inputs[0]
    return name


def _behind(plan: Plan, makers: Mapping[str, Operation], first: str, rest: str) -> Tokens:
    """Tokens behind others, which are learned or make all of them mere numbers."""
    count = plan.values[first].shape[0]
    if first in makers and makers[first].kind == "learned" and isinstance(count, int):
        tokens = tokens_of(plan, rest)
        return replace(tokens, learned=tokens.learned + count)
    return Tokens("numbers", _source(makers, rest))


def _windows(plan: Plan, name: str, source: str) -> Tokens:
    """Pixels that convolutions and pooling have left: each is a window of what went in."""
    rows, columns = _grid(plan.values[name].shape)
    if rows > 1:
        return Tokens("patches", source, rows, columns)
    is_series = len(plan.values[source].shape) == 2  # a row of windows over time
    return Tokens("series" if is_series else "numbers", source)


def _grid(shape: Shape) -> tuple[int, int]:
    height, width = (0 if isinstance(n, Ragged) else n for n in shape[:2])
    return height, width
