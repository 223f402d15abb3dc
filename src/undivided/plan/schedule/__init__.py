"""The native engine's schedule: rewrites, storage, arena and blocking of a plan.

plan ─graph_of─▶ Graph ─rewrite─▶ Graph ─store─▶ Storage ─compile_program─▶ Program
"""

from __future__ import annotations

from dataclasses import dataclass, field

from undivided.plan.plan import Plan, Ragged
from undivided.plan.schedule.compile import Purpose, compile_program, group_size
from undivided.plan.schedule.graph import Graph, graph_of
from undivided.plan.schedule.program import Program
from undivided.plan.schedule.rewrites import rewrite
from undivided.plan.schedule.storage import Storage, store

__all__ = ["Schedule", "schedule"]

FEW_PARAMETERS = 16_384
"""Up to so many floats a batch is cut into eight slices, above into four."""


@dataclass(frozen=True)
class Schedule:
    """What the native engine makes of a plan."""

    plan: Plan
    graph: Graph
    storage: Storage
    longest: int
    _programs: dict[tuple[Purpose, int | None], Program] = field(default_factory=dict, repr=False)

    def program(self, purpose: Purpose, new_rows: int | None = None) -> Program:
        """What runs for one purpose; calls of "continue" bring at most `new_rows` of a sample."""
        key = purpose, new_rows
        if key not in self._programs:
            self._programs[key] = compile_program(
                self.plan, self.graph, self.storage, purpose, self.longest, new_rows
            )
        return self._programs[key]

    def slice_samples(self, batch: int) -> int:
        """How many samples of a batch make a slice: the plan and the batch alone decide.

        A slice has gradients of its own, added up in a fixed order, so that any number of
        threads gives the same bits. More slices balance better, which samples of different
        lengths need; they cost a copy each.
        """
        ragged = any(isinstance(n, Ragged) for entry in self.plan.inputs for n in entry.shape)
        slices = 8 if ragged or self.storage.floats <= FEW_PARAMETERS else 4
        group = group_size(self.graph)
        return max(1, -(-batch // (slices * group))) * group


def schedule(plan: Plan, longest: int = 1) -> Schedule:
    """The schedule of a plan; `longest` is the most rows of a sample with a length of its own."""
    graph = rewrite(graph_of(plan))
    return Schedule(plan, graph, store(plan, graph, longest), longest)
