"""Where parameters lie: one flat array, every row padded to whole vectors.

The user's `model.parameters` are views of it. Weights that run as one linear layer lie side by
side, so the views of query, key and value are columns of one matrix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from undivided.plan.plan import Operation, Plan, Ragged
from undivided.plan.primitives import PRIMITIVES
from undivided.plan.schedule.graph import Graph
from undivided.plan.schedule.rewrites import Folded, padded

__all__ = ["Block", "Fold", "Place", "Storage", "sinusoidal_table", "store"]


LISTED_TABLE = 1 << 20
"""Tables of so many numbers have no gradients that every slice clears and adds up whole, unless
they are a linear layer's weights too, which have a gradient everywhere."""
LISTED_PIECES = 64
"""Into so many pieces such a table is cut; each looks through all lists."""


@dataclass(frozen=True)
class Block:
    """A matrix in the flat array; the fields that the native side reads, by the same names.

    `transposed` is where its transposed copy lies in the derived array, or −1. A block that is
    not `trained` (a constant, or the result of a fold) lies in the derived array itself. `rate` is
    what the learning rate is multiplied by, 0 for what is frozen.
    `gradient` is its place in a slice's gradients, or −1 where a fold stands between, or where it
    is `listed`, a table of which slices list the rows that they add to: then so many of its rows
    are summed and updated together.
    """

    offset: int
    rows: int
    width: int
    stride: int
    transposed: int = -1
    transposed_stride: int = 0
    decays: bool = True
    rate: float = 1.0
    trained: bool = True
    gradient: int = -1
    listed: int = 0


@dataclass(frozen=True)
class Fold:
    """Blocks of a folded pair of linear layers; −1 for no bias."""

    left: int
    left_bias: int
    right: int
    right_bias: int
    result: int
    result_bias: int
    turned: bool


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
    folds: tuple[Fold, ...]
    floats: int
    gradient_floats: int
    derived_floats: int
    constants: Mapping[int, np.ndarray]
    """Where in the derived array a constant begins, and its rows."""


"""Tables that some primitives read and nobody trains."""


def store(plan: Plan, graph: Graph, longest: int) -> Storage:
    """Lay out the parameters of a graph. `longest` is the most rows of a ragged axis."""
    weights = {
        op.parameters["weight"] for op in graph.operations if op.attributes.get("turned", False)
    }
    layout = _Layout(plan, _listed(plan, graph))
    for op in graph.operations:
        folded = op.attributes.get("fold")
        if folded is not None:
            layout.fold(op, folded, graph.values[op.inputs[0]].width)
            continue
        for role, names in _roles(op).items():
            turned = role == "weight" or not weights.isdisjoint(names)
            layout.add((op.output, role), names, turned=turned)
        if _needs_fixed_table(op):
            value = graph.values[op.output]
            rows = longest if isinstance(value.shape[0], Ragged) else value.shape[0]
            layout.constant((op.output, "table"), sinusoidal_table(rows, value.width))
        constants = getattr(PRIMITIVES.get(op.kind), "constants", None)
        for role, numbers in constants(op, graph.values, longest).items() if constants else ():
            layout.constant((op.output, role), numbers)
    return layout.storage()


class _Layout:
    """A storage in the making."""

    def __init__(self, plan: Plan, listed: set[str]) -> None:
        self.plan, self.listed = plan, listed
        self.blocks: list[Block] = []
        self.index: dict[tuple[str, str], int] = {}
        self.places: dict[str, Place] = {}
        self.folds: list[Fold] = []
        self.shared: dict[tuple[str, ...], int] = {}
        self.constants: dict[int, np.ndarray] = {}
        self.floats = self.gradient_floats = self.derived_floats = 0

    def storage(self) -> Storage:
        return Storage(
            tuple(self.blocks),
            self.index,
            self.places,
            tuple(self.folds),
            self.floats,
            self.gradient_floats,
            self.derived_floats,
            self.constants,
        )

    def add(
        self, key: tuple[str, str], names: list[str], *, turned: bool, direct: bool = True
    ) -> int:
        """Parameters side by side in one block; `turned` keeps a transposed copy beside it.

        Not `direct`: the samples' gradients reach it through a fold only.
        """
        if tuple(names) in self.shared:  # tied: a parameter that several operations name
            self.index[key] = self.shared[tuple(names)]
            return self.index[key]
        parameters = [self.plan.parameters[name] for name in names]
        rows = parameters[0].shape[0] if len(parameters[0].shape) == 2 else 1
        stride = sum(padded(p.shape[-1]) for p in parameters)
        width = parameters[0].shape[-1] if len(parameters) == 1 else stride
        column = 0
        for p in parameters:
            place = Place(self.floats + column, rows, p.shape[-1], stride, p.shape)
            self.places[p.name] = place
            column += padded(p.shape[-1])
        decays, rate = parameters[0].decays, parameters[0].rate
        listed = 0 if self.listed.isdisjoint(names) else padded(-(-rows // LISTED_PIECES))
        block = Block(self.floats, rows, width, stride, decays=decays, rate=rate, listed=listed)
        self.floats += rows * stride
        self.shared[tuple(names)] = number = self._append(key, block, turned=turned, direct=direct)
        return number

    def constant(self, key: tuple[str, str], rows: np.ndarray) -> None:
        stride = padded(rows.shape[1])
        table = np.zeros((len(rows), stride), np.float32)
        table[:, : rows.shape[1]] = rows
        self.constants[self.derived_floats] = table
        block = self._derived(len(rows), rows.shape[1])
        self._append(key, block, turned=False, direct=False)

    def fold(self, op: Operation, folded: Folded, rows: int) -> None:
        """The parameters of both layers, and the result in the derived array."""
        left, right = folded.left.parameters, folded.right.parameters
        width = self.plan.parameters[right["weight"]].shape[0 if folded.turned else 1]
        biased = "bias" in left if folded.turned else "bias" in right

        def side(key: str, parameters: Mapping[str, str], role: str, turned: bool) -> int:
            if role not in parameters:
                return -1
            names = [parameters[role]]
            return self.add((op.output, f"{key}.{role}"), names, turned=turned, direct=False)

        self.folds.append(
            Fold(
                side("left", left, "weight", False),
                side("left", left, "bias", False),
                side("right", right, "weight", True),
                side("right", right, "bias", False),
                self._append(
                    (op.output, "weight"), self._derived(rows, width), turned=True, direct=True
                ),
                self._append(
                    (op.output, "bias"), self._derived(1, width), turned=False, direct=True
                )
                if biased
                else -1,
                folded.turned,
            )
        )

    def _derived(self, rows: int, width: int) -> Block:
        block = Block(self.derived_floats, rows, width, padded(width), trained=False)
        self.derived_floats += rows * padded(width)
        return block

    def _append(self, key: tuple[str, str], block: Block, *, turned: bool, direct: bool) -> int:
        if turned:
            stride = padded(block.rows)
            block = replace(block, transposed=self.derived_floats, transposed_stride=stride)
            self.derived_floats += block.width * stride
        if direct and not block.listed:
            block = replace(block, gradient=self.gradient_floats)
            self.gradient_floats += block.rows * block.stride
        self.index[key] = len(self.blocks)
        self.blocks.append(block)
        return len(self.blocks) - 1


def _listed(plan: Plan, graph: Graph) -> set[str]:
    """Large tables that embeddings alone read."""
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for op in graph.operations:
        for names in _roles(op).values():
            found[op.kind == "embed"].update(names)
    return {
        name
        for name in found[True] - found[False]
        if plan.parameters[name].shape[0] * padded(plan.parameters[name].shape[1]) >= LISTED_TABLE
    }


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
