"""Sequences that go on: the reference engine with a plan's states, one sequence after another."""

# n new tokens, T tokens so far, V ids

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from undivided.engines.engine import Samples
from undivided.engines.reference.samples import groups
from undivided.plan.continuing import reached
from undivided.plan.plan import Operation, Plan
from undivided.plan.primitives import PRIMITIVES

__all__ = ["ReferenceSequences"]

Run = Callable[..., np.ndarray]
"""What an operation gives for its inputs, and for what else its primitive is told."""


@dataclass
class _Sequence:
    """One that goes on: its length, and each of the plan's states [1, T, width]."""

    length: int = 0
    states: dict[str, np.ndarray] = field(default_factory=dict)


class ReferenceSequences:
    """What `Engine.begin` gives; see `undivided.engines.engine.Sequences`."""

    def __init__(
        self, plan: Plan, dtype: np.dtype, run: Run, count: int, source: Samples | None
    ) -> None:
        self.plan, self._dtype, self._run = plan, dtype, run
        self._new_rows = reached(plan.operations, plan.inputs[-1].name)
        self._sequences = [_Sequence() for _ in range(count)]
        if source is not None:
            self._look_at(source)

    def _look_at(self, source: Samples) -> None:
        """What does not depend on the tokens runs now, and once."""
        first = [op for op in self.plan.operations if op.output not in self._new_rows]
        entries = self.plan.inputs[:-1]
        for numbers, group in groups(self.plan, source, self._dtype, entries):
            for place, number in enumerate(numbers):
                values = {name: rows[place : place + 1] for name, rows in group.items()}
                for op in first:
                    values[op.output] = self._run(op, [values[name] for name in op.inputs])
                kept = {name: values[name] for name in self.plan.states if name in values}
                self._sequences[number].states = kept

    def lengths(self, which: Sequence[int]) -> list[int]:
        return [self._sequences[i].length for i in which]

    def forget(self, which: Sequence[int]) -> None:
        for i in which:
            self._sequences[i].length = 0
            for name in self._new_rows & self._sequences[i].states.keys():
                del self._sequences[i].states[name]

    @np.errstate(all="ignore")
    def scores(self, which: Sequence[int], tokens: Sequence[np.ndarray]) -> np.ndarray:
        rows = [
            self._go_on(self._sequences[i], np.asarray(new, np.int64))
            for i, new in zip(which, tokens, strict=True)
        ]
        return np.concatenate(rows)

    def _go_on(self, sequence: _Sequence, new: np.ndarray) -> np.ndarray:
        """The scores of the last of n new tokens, [1, V]."""
        values, states = {self.plan.inputs[-1].name: new[None]}, sequence.states
        for op in self.plan.operations:
            if op.output not in self._new_rows:
                continue
            told = {"offset": sequence.length} if _is_placed(op) else {}
            inputs = [values.get(name) for name in op.inputs]
            if op.kind == "attention":
                inputs[1:] = (states[name] for name in op.inputs[1:])
            values[op.output] = made = self._run(op, inputs, **told)
            if op.output in self.plan.states:
                before = states.get(op.output, made[:, :0])
                states[op.output] = np.concatenate([before, made], axis=1)
        sequence.length += len(new)
        return values[self.plan.output.name]


def _is_placed(op: Operation) -> bool:
    return getattr(PRIMITIVES[op.kind], "PLACED", False)
