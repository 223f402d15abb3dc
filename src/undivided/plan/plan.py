"""The plan: what a network does, as a graph of a few primitive operations over named values.

A plan is data. The reference engine runs it as it stands, the native engine makes a schedule of
it, `describe` prints it. Nothing in it is padded or rewritten.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undivided.training.losses import Loss
    from undivided.training.optimizers import Optimizer

__all__ = [
    "Initial",
    "Input",
    "Operation",
    "Parameter",
    "Plan",
    "Ragged",
    "Shape",
    "Value",
    "most_of",
    "show_shape",
    "size_of",
]


@dataclass(frozen=True)
class Ragged:
    """An axis whose length every sample brings along.

    Two values that share a ragged axis have the same length in the same sample; axes of
    different names (a source and a target) do not. `most` is the longest that may come, where
    the network says so. `continued` says that a call brings new rows alone, which stand behind
    those that earlier calls brought.
    """

    name: str
    most: int | None = None
    continued: bool = False

    def __str__(self) -> str:
        return "None"


Shape = tuple[int | Ragged, ...]
"""The shape of one sample; the batch is never part of it."""


def show_shape(shape: Shape) -> str:
    """A shape as people write it: `(49, 16)`, `(10,)`, `(None, 8)`."""
    inner = ", ".join(str(extent) for extent in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def size_of(shape: Shape, length: int) -> int:
    """How many numbers a shape holds, ragged axes being `length` long."""
    return math.prod(length if isinstance(extent, Ragged) else extent for extent in shape)


@dataclass(frozen=True)
class Value:
    """A named result, for one sample."""

    name: str
    shape: Shape

    @property
    def width(self) -> int:
        """The extent of the last axis, which is never ragged."""
        extent = self.shape[-1]
        assert isinstance(extent, int)
        return extent


def most_of(value: Value, longest: int) -> int:
    """The most rows of a value's first axis, ragged ones having at most `longest`."""
    extent = value.shape[0]
    return longest if isinstance(extent, Ragged) else extent


@dataclass(frozen=True)
class Input(Value):
    """What a sample brings along: numbers, or ids, whole numbers below `vocabulary`.

    `padding_id` is the id that only fills up: tokens with it are taken out of a sample before
    anything sees them.
    """

    vocabulary: int | None = None
    padding_id: int | None = None
    begins_with: int | None = None
    """Samples do not bring it: it is their targets, shifted right by one behind this id."""


@dataclass(frozen=True)
class Initial:
    """How a parameter starts: a rule and the number it needs.

    `xavier` is uniform within ±√(6/(in+out)); `uniform` within ±limit; `constant` is limit
    everywhere; `sinusoidal` is the position table sin/cos(t/10000^(2⌊d/2⌋/D)). Only the first
    two draw from the generator, in the order in which the plan lists its parameters.
    """

    rule: str
    limit: float = 0.0


@dataclass(frozen=True)
class Parameter:
    """A named array that training changes.

    `decays` says whether weight decay applies to it, `rate` what the learning rate is multiplied
    by: 0 where it is frozen.
    """

    name: str
    shape: tuple[int, ...]
    initial: Initial
    layer: str
    decays: bool = True
    rate: float = 1.0


@dataclass(frozen=True)
class Operation:
    """One primitive: `output = kind(inputs; parameters, attributes)`, and the layer it is from."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    layer: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The whole of what a network does, in the order in which it does it."""

    name: str
    inputs: tuple[Input, ...]
    """What a sample consists of, in the order in which samples bring it."""
    output: Value
    values: Mapping[str, Value]
    operations: tuple[Operation, ...]
    parameters: Mapping[str, Parameter]
    layers: tuple[tuple[str, str], ...]
    """(name, what was written) of each layer, in order."""
    loss: Loss
    optimizer: Optimizer
    """The update rule; with the loss it makes the plan a training plan."""
    notes: tuple[str, ...] = ()
    """How the network was read where it leaves a choice."""
    states: Mapping[str, Value] = field(default_factory=dict)
    """What is kept of a sample from one call to the next (`plan/continuing.py`)."""
    recompute: bool = False
    """Whether training keeps only some values for backward and computes the others again."""

    @property
    def input(self) -> Input:
        """The first input; most plans have no other."""
        return self.inputs[0]

    @property
    def attentions(self) -> list[Operation]:
        """The operations in which queries take from keys by weights, in order."""
        return [op for op in self.operations if op.kind in ("attention", "linear_attention")]

    @property
    def parameter_count(self) -> int:
        total = 0
        for parameter in self.parameters.values():
            size = 1
            for extent in parameter.shape:
                size *= extent
            total += size
        return total
