"""`recompute: true`: what lies inside a segment is not kept for backward but computed again.

    forward   ──A──•──B──•──C──▶ loss
    backward  ◀─A'─A─•─B'─B─•─C'──╯       (read from right to left)

Values between segments (•) are kept. Those inside A and B live twice: while A runs, and again from
just before A′, where the instructions of A that A′ asks for are repeated into fresh regions. The
last segment's are there when backward begins. Numbers come out the same, as the same instructions
read the same numbers; dropout's coins depend on places, not on how often they are thrown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from undivided.plan.schedule.arena import Region
from undivided.plan.schedule.program import BUFFER_FIELDS, Instruction

__all__ = ["Recomputed", "recompute"]

WRITTEN = ("y", "before", "probabilities", "biases", "scratch")
"""The buffers that instructions of a forward pass write; they read the others."""

MOST_CUTS = 256
"""Of so many places at most it is considered whether a segment ends there."""
HALVINGS = 16
"""How often the limit that segments must keep is halved."""


@dataclass(frozen=True)
class Recomputed:
    """Instructions, the regions that they work in, and which operations run twice."""

    instructions: list[Instruction]
    regions: list[Region]
    operations: frozenset[str]


def recompute(
    instructions: Sequence[Instruction],
    regions: Sequence[Region],
    forward: int,
    positions: Mapping[str, int],
) -> Recomputed:
    """The same program with less kept. `forward` instructions are the forward pass; `positions`
    number the operations that instructions belong to."""
    found = _Found(instructions, regions, forward, positions)
    return _Repeating(found, _segments(found)).recomputed()


class _Found:
    """Which operations touch a region: the first, the last, and whether any on its way back."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        regions: Sequence[Region],
        forward: int,
        positions: Mapping[str, int],
    ) -> None:
        self.instructions, self.regions, self.forward = instructions, regions, forward
        self.operations = len(positions)
        # The loss belongs to no operation: it stands behind the last.
        self.at = [positions.get(i.operation, self.operations) for i in instructions]
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.returning: set[int] = set()
        for number, instruction in enumerate(instructions):
            for base in self.bases(instruction, BUFFER_FIELDS):
                at = self.at[number]
                self.first[base] = min(self.first.get(base, at), at)
                self.last[base] = max(self.last.get(base, at), at)
                if number >= forward:
                    self.returning.add(base)

    def bases(self, instruction: Instruction, names: Sequence[str]) -> set[int]:
        """The regions behind some of an instruction's buffers."""
        indices = (getattr(instruction, name) for name in names)
        return {self.regions[index].base for index in indices if index >= 0}


def _segments(found: _Found) -> list[int]:
    """Where segments begin, so that the most that is alive at once on the way back is least.

    While backward is inside a segment its own values are there, and what is kept of all before it.
    For a limit to that sum, the least that can be kept up to a place says whether the limit can be
    met, and with which segments; the smallest limit is found by halving.
    """
    end = found.operations
    kept, inside = _sizes(found)
    crossing = [kept[:at, at:].sum() for at in range(end)]
    cuts = sorted({0, *sorted(range(end), key=lambda at: crossing[at])[:MOST_CUTS], end})
    whole = [np.cumsum(np.cumsum(each, 0), 1) for each in (kept, inside)]
    whole = [np.pad(each, ((1, 0), (1, 0))) for each in whole]  # [i, j]: the sum over [:i, :j]

    def costs(last: int) -> tuple[np.ndarray, np.ndarray]:
        """What segments from any cut to this one keep, and what is inside them."""
        starts = np.array(cuts[:last])
        stop = cuts[last]
        beyond = (whole[0][stop, -1] - whole[0][stop, stop]) - (
            whole[0][starts, -1] - whole[0][starts, stop]
        )
        return beyond, whole[1][stop, stop] - whole[1][starts, stop]

    each_cost = [costs(last) for last in range(1, len(cuts))]

    def within(limit: float) -> list[int] | None:
        least, start = np.zeros(len(cuts)), [0] * len(cuts)
        for last, (beyond, own) in enumerate(each_cost, start=1):
            sums = np.where(least[:last] + beyond + own <= limit, least[:last] + beyond, np.inf)
            start[last] = int(np.argmin(sums))
            least[last] = sums[start[last]]
        if not np.isfinite(least[-1]):
            return None
        found, at = [], len(cuts) - 1
        while at > 0:
            at = start[at]
            found.append(cuts[at])
        return found[::-1]

    low, high = 0.0, float(kept.sum() + inside.sum())
    segments = [0]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        better = within(middle)
        if better is None:
            low = middle
        else:
            segments, high = better, middle
    return segments


def _sizes(found: _Found) -> tuple[np.ndarray, np.ndarray]:
    """Floats of regions by the first and last operation that touches them: all that are touched
    again after the operation that writes them, and those that backward touches."""
    shape = (found.operations + 1, found.operations + 1)
    kept, inside = np.zeros(shape), np.zeros(shape)
    written = {
        base
        for instruction in found.instructions[: found.forward]
        for base in found.bases(instruction, WRITTEN)
    }
    for base in written:
        place = found.first[base], found.last[base]
        kept[place] += found.regions[base].floats
        if base in found.returning:
            inside[place] += found.regions[base].floats
    return kept, inside


class _Repeating:
    """The program with all segments but the last repeated."""

    def __init__(self, found: _Found, segments: Sequence[int]) -> None:
        self.found, self.segments = found, segments
        self.regions = list(found.regions)
        self.operations: set[str] = set()

    def recomputed(self) -> Recomputed:
        found = self.found
        members: list[tuple[list[int], list[int]]] = [([], []) for _ in self.segments]
        for number, at in enumerate(found.at):
            if at < found.operations:
                segment = bisect_right(self.segments, at) - 1
                members[segment][number >= found.forward].append(number)
        instructions = list(found.instructions)
        before: dict[int, list[Instruction]] = {}
        for there, back in members[:-1]:
            if not back:
                continue
            fresh: dict[int, int] = {}
            before[back[0]] = self._again(there, back, fresh)
            for number in back:
                instructions[number] = self._moved(instructions[number], fresh)
        woven = [
            each
            for number, instruction in enumerate(instructions)
            for each in (*before.get(number, ()), instruction)
        ]
        return Recomputed(woven, self.regions, frozenset(self.operations))

    def _again(
        self, there: Sequence[int], back: Sequence[int], fresh: dict[int, int]
    ) -> list[Instruction]:
        """The forward instructions of a segment that its way back needs, in fresh regions."""
        found = self.found
        operations = {found.at[number] for number in there}
        first, last = min(operations), max(operations)
        inner = {
            base
            for number in there
            for base in found.bases(found.instructions[number], WRITTEN)
            if first <= found.first[base] and found.last[base] <= last
        }
        needed: set[int] = set()
        for number in back:
            needed |= found.bases(found.instructions[number], BUFFER_FIELDS) & inner
        repeated: list[Instruction] = []
        for number in reversed(there):
            instruction = found.instructions[number]
            if found.bases(instruction, WRITTEN) & needed:
                needed |= found.bases(instruction, BUFFER_FIELDS) & inner
                repeated.append(instruction)
                self.operations.add(instruction.operation)
        for base in sorted(needed):
            self._copy(base, fresh)
        return [self._moved(instruction, fresh) for instruction in reversed(repeated)]

    def _copy(self, base: int, fresh: dict[int, int]) -> None:
        """A region like this one, and columns of it like those of this one."""
        fresh[base] = len(self.regions)
        self.regions.append(replace(self.found.regions[base], base=fresh[base]))
        for index, region in enumerate(self.found.regions):
            if region.base == base and index != base:
                fresh[index] = len(self.regions)
                self.regions.append(replace(region, base=fresh[base]))

    def _moved(self, instruction: Instruction, fresh: Mapping[int, int]) -> Instruction:
        """The instruction in fresh regions where there are some."""
        changed: dict[str, Any] = {
            name: fresh[getattr(instruction, name)]
            for name in BUFFER_FIELDS
            if getattr(instruction, name) in fresh
        }
        return replace(instruction, **changed)
