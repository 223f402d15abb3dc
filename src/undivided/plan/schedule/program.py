"""The program: instructions over buffers, as the native engine reads them.

Kinds, functions and fields are those of `native/engine/program.h`; the binding reads them by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from undivided.plan.schedule.storage import Block, Fold

__all__ = ["BUFFER_FIELDS", "Axis", "Buffer", "Instruction", "Program"]


@dataclass(frozen=True)
class Axis:
    """How many rows a sample has: `rows`, or −1 where each brings its own, at most `most`.

    Those of a `continued` axis stand behind the rows that a sequence has already."""

    rows: int
    most: int
    input: int = 0
    """Which input brings its own."""
    continued: int = 0


@dataclass(frozen=True)
class Buffer:
    """Rows in the arena: `width` numbers that count, `stride` apart."""

    offset: int
    axis: int
    width: int
    stride: int


@dataclass
class Instruction:
    """One operation in one direction; buffers and blocks by index, −1 for none."""

    kind: str
    backward: int = 0
    x: int = -1
    y: int = -1
    z: int = -1
    v: int = -1
    dx: int = -1
    dy: int = -1
    dz: int = -1
    dv: int = -1
    accumulate_x: int = 0
    accumulate_z: int = 0
    accumulate_v: int = 0
    mask: int = -1
    before: int = -1
    probabilities: int = -1
    kept: int = 0
    whole_keys: int = 0
    key_heads: int = 0
    causal: int = 0
    ruled: int = 0
    left: int = 0
    right: int = 0
    pattern: int = -1
    distances: int = -1
    biases: int = -1
    d_biases: int = -1
    scratch: int = -1
    turned: int = 0
    begins: int = 0
    weight: int = -1
    bias: int = -1
    table: int = -1
    gain: int = -1
    shift: int = -1
    function: str = "none"
    heads: int = 0
    height: int = 0
    across_image: int = 0
    depth: int = 0
    down: int = 0
    across: int = 0
    slot: int = 0
    axis: int = 0
    scale: float = 1.0
    offset: float = 0.0
    rate: float = 0.0
    softcap: float = 0.0
    layer: str = field(default="", repr=False)
    operation: str = field(default="", repr=False)
    """The output of the operation that it belongs to."""

    def buffers(self) -> list[int]:
        """The buffers that this instruction touches."""
        return [getattr(self, name) for name in BUFFER_FIELDS if getattr(self, name) >= 0]

    def __str__(self) -> str:
        parts = [f"{self.kind}{'′' if self.backward else ''}"]
        for each in fields(self)[2:-2]:
            value = getattr(self, each.name)
            if value != each.default:
                parts.append(f"{each.name}={value}")
        return " ".join(parts)


BUFFER_FIELDS = (
    "x", "y", "z", "v", "dx", "dy", "dz", "dv", "mask", "before", "probabilities",
    "biases", "d_biases", "scratch",
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """Instructions, and the memory that they work in."""

    instructions: tuple[Instruction, ...]
    buffers: tuple[Buffer, ...]
    blocks: tuple[Block, ...]
    folds: tuple[Fold, ...]
    axes: tuple[Axis, ...]
    arena_floats: int
    group: int
    parameter_floats: int
    gradient_floats: int
    derived_floats: int
    constants: Mapping[int, np.ndarray]
    patterns: tuple[Any, ...]
    """Masks in blocks: what `undivided.masks` makes of them."""
    recomputed: frozenset[str] = frozenset()
    """The operations that run again on the way back, by their outputs."""

    def listed_floats(self, samples: int) -> int:
        """Room for what a slice of so many samples lists: rows of gradients, and whose they are."""
        floats = 0
        for each in self.instructions:
            if each.kind == "embed" and each.backward and self.blocks[each.table].listed:
                rows = samples * self.axes[self.buffers[each.dy].axis].most
                floats += -(-rows // 16) * 16 * (1 + self.blocks[each.table].stride)
        return floats

    def stretch_floats(self) -> int:
        """Room for the rows of a listed table that a thread updates together."""
        return max((block.listed * block.stride for block in self.blocks), default=0)
