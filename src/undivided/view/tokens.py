"""What the tokens of an attention stand for: patches, words, times of a series, or numbers.

Found in the plan: from what attention reads, back through the operations, to the one in which the
axis of tokens begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from undivided.plan.plan import Operation, Plan, Ragged

__all__ = ["Tokens", "tokens_of"]

Kind = Literal["patches", "text", "series", "numbers"]


@dataclass(frozen=True)
class Tokens:
    """The axis of tokens that an attention's queries or keys lie along."""

    kind: Kind
    source: str = ""
    """The input of the plan that they are of."""
    rows: int = 0
    columns: int = 0
    """Patches lie in a grid of so many rows and columns; both are 0 for anything else."""

    def as_json(self) -> dict[str, Any]:
        grid = {"rows": self.rows, "columns": self.columns}
        return {"kind": self.kind, "source": self.source, **grid}


def tokens_of(plan: Plan, name: str) -> Tokens:
    """What the rows of the value of that name stand for."""
    makers = {op.output: op for op in plan.operations}
    source, length = _source(makers, name), plan.values[name].shape[0]
    while name in makers:
        maker = makers[name]
        before = plan.values[maker.inputs[0]]
        if maker.kind == "unfold":
            return _patches(maker, before.shape, source)
        if maker.kind == "embed":
            return Tokens("text", source)
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


def _patches(unfold: Operation, shape: tuple[int | Ragged, ...], source: str) -> Tokens:
    height, width = (n for n in shape[:2] if isinstance(n, int))
    down, across = unfold.attributes["size"]
    return Tokens("patches", source, height // down, width // across)
