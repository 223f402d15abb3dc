"""Where parameters lie: one flat array, every row padded to whole vectors.

The user's `model.parameters` are views of it. Weights that run as one linear layer lie side by
side, so the views of query, key and value are columns of one matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from undivided.plan.plan import Operation, Parameter, Plan, Ragged
from undivided.plan.schedule.graph import Graph
from undivided.plan.schedule.rewrites import padded

__all__ = ["Block", "Place", "Storage", "sinusoidal_table", "store"]


@dataclass(frozen=True)
class Block:
    """A matrix in the flat array; the fields that the native side reads, by the same names.

    `transposed` is where its transposed copy lies in the derived array, or −1. A block that is
    not `trained` is a constant and lies in the derived array itself.
    """

    offset: int
    rows: int
    width: int
    stride: int
    transposed: int = -1
    transposed_stride: int = 0
    decays: bool = True
    trained: bool = True


@dataclass(frozen=True)
class Place:
    """Where one parameter lies: `rows` × `width` numbers from `offset`, rows `stride` apart."""

    offset: int
    rows: int
    width: int
    stride: int
    shape: tuple[int, ...]

    def view(self, flat: np.ndarray) -> np.ndarray:
        """The parameter, as a live and writable view of a flat array."""
        step = flat.strides[0]
        rows = np.lib.stride_tricks.as_strided(
            flat[self.offset :], (self.rows, self.width), (self.stride * step, step)
        )
        return rows.reshape(self.shape) if len(self.shape) == 2 else rows[0]


@dataclass(frozen=True)
class Storage:
    """All blocks, the places of parameters in them, and the sizes of the two arrays."""

    blocks: tuple[Block, ...]
    index: Mapping[tuple[str, str], int]
    """(an operation's output, a role such as "weight") → its block."""
    places: Mapping[str, Place]
    floats: int
    derived_floats: int
    constants: Mapping[int, np.ndarray]
    """Where in the derived array a constant begins, and its rows."""


def store(plan: Plan, graph: Graph, longest: int) -> Storage:
    """Lay out the parameters of a graph. `longest` is the most rows of a ragged axis."""
    blocks: list[Block] = []
    index: dict[tuple[str, str], int] = {}
    places: dict[str, Place] = {}
    constants: dict[int, np.ndarray] = {}
    floats = derived = 0

    def add(key: tuple[str, str], parameters: list[Parameter]) -> Block:
        nonlocal floats
        rows = parameters[0].shape[0] if len(parameters[0].shape) == 2 else 1
        stride = sum(padded(p.shape[-1]) for p in parameters)
        width = parameters[0].shape[-1] if len(parameters) == 1 else stride
        column = 0
        for p in parameters:
            places[p.name] = Place(floats + column, rows, p.shape[-1], stride, p.shape)
            column += padded(p.shape[-1])
        index[key] = len(blocks)
        blocks.append(Block(floats, rows, width, stride, decays=parameters[0].decays))
        floats += rows * stride
        return blocks[-1]

    for op in graph.operations:
        for role, names in _roles(op).items():
            block = add((op.output, role), [plan.parameters[name] for name in names])
            if role == "weight":
                stride = padded(block.rows)
                blocks[-1] = replace(block, transposed=derived, transposed_stride=stride)
                derived += block.width * stride
        if _needs_fixed_table(op):
            value = graph.values[op.output]
            rows = longest if isinstance(value.shape[0], Ragged) else value.shape[0]
            stride = padded(value.width)
            index[op.output, "table"] = len(blocks)
            blocks.append(Block(derived, rows, value.width, stride, trained=False))
            table = np.zeros((rows, stride), np.float32)
            table[:, : value.width] = sinusoidal_table(rows, value.width)
            constants[derived] = table
            derived += rows * stride
    return Storage(tuple(blocks), index, places, floats, derived, constants)


def _roles(op: Operation) -> dict[str, list[str]]:
    """The parameters of an operation by role; several names where operations were merged."""
    roles: dict[str, list[str]] = {}
    for original in op.attributes.get("merged", (op,)):
        for role, name in original.parameters.items():
            roles.setdefault(role, []).append(name)
    return roles


def _needs_fixed_table(op: Operation) -> bool:
    is_position = op.kind == "position" or op.attributes.get("position", False)
    return is_position and "table" not in op.parameters


def sinusoidal_table(tokens: int, width: int) -> np.ndarray:
    """sin(t/10000^(2⌊d/2⌋/D)) for even d, cos for odd."""
    column = np.arange(width)
    angles = np.arange(tokens)[:, None] / 10000.0 ** (2 * (column // 2) / width)
    return np.where(column % 2 == 0, np.sin(angles), np.cos(angles))
