"""Sequences that go on natively: what they keep lies here, outside of any arena.

A program is compiled for so many tokens at most, and for as many new ones as a call brings: one,
or a whole prompt. Sequences that grow beyond it are given twice the room.
"""

# N sequences, H heads of keys, D width of keys, F width of values in whole vectors

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undivided import _native
from undivided.data.reading import memory_limit
from undivided.engines.engine import Samples
from undivided.engines.native.samples import Batch, readable, starts_of
from undivided.engines.native.session import aligned, session_of
from undivided.plan.continuing import continuing
from undivided.plan.plan import Plan
from undivided.plan.schedule import Purpose, Schedule, schedule
from undivided.plan.schedule.rewrites import padded

__all__ = ["Continuing", "NativeSequences"]

TILE = 64
"""Keys lie in tiles of so many (`attention_kept.h`)."""


@dataclass(frozen=True)
class _Heads:
    """What one attention keeps of a sequence: for each head keys and values."""

    count: int
    key_width: int
    value_width: int

    def room(self, sequences: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys [N, H, rows / 64, D, 64] and values [N, H, rows, F]."""
        keys = (sequences, self.count, rows // TILE, self.key_width, TILE)
        values = (sequences, self.count, rows, self.value_width)
        return _zeros(keys), _zeros(values)


def _zeros(shape: tuple[int, ...]) -> np.ndarray:
    return aligned(int(np.prod(shape))).reshape(shape)


class Continuing:
    """The programs of a plan that goes on, for sequences of any length."""

    def __init__(self, plan: Plan, places: Mapping[str, Any], instruction_set: str) -> None:
        self.plan = continuing(plan)
        self.instruction_set = instruction_set
        self._schedules: dict[int, Schedule] = {}
        self._sessions: dict[tuple[int, Purpose, int | None], _native.Session] = {}
        self.heads: list[_Heads] = []
        if self.plan is None:
            return
        found = self.schedule(TILE)
        if found.storage.places != places:  # it is not rewritten as the plan of whole sequences
            self.plan = None
        graph = found.graph
        for op in graph.kept:
            key, value = (graph.values[name].width for name in op.inputs[1:])
            count = op.attributes.get("key_heads") or op.attributes["heads"]
            self.heads.append(_Heads(count, key // count, padded(value // count)))

    def schedule(self, longest: int) -> Schedule:
        if longest not in self._schedules:
            assert self.plan is not None
            self._schedules[longest] = schedule(self.plan, longest)
        return self._schedules[longest]

    def session(self, longest: int, purpose: Purpose, new_rows: int | None) -> _native.Session:
        key = longest, purpose, new_rows
        if key not in self._sessions:
            program = self.schedule(longest).program(purpose, new_rows)
            self._sessions[key] = session_of(program, self.instruction_set)
        return self._sessions[key]

    def has_room(self, sequences: int, most: int) -> bool:
        """Whether so many of so many tokens can be kept: in half of the machine's memory."""
        if self.plan is None:
            return False
        floats = sum(heads.count * (heads.key_width + heads.value_width) for heads in self.heads)
        return 4 * sequences * _room_for(most) * floats <= memory_limit()


def _room_for(tokens: int) -> int:
    """Twice as many each time, so that all moves together cost no more than the last."""
    return max(TILE, 1 << (tokens - 1).bit_length())


class NativeSequences:
    """What `Engine.begin` gives; see `undivided.engines.engine.Sequences`."""

    def __init__(
        self,
        programs: Continuing,
        parameters: np.ndarray,
        threads: int,
        count: int,
        source: Samples | None,
    ) -> None:
        assert programs.plan is not None
        self._programs, self._parameters, self._threads = programs, parameters, threads
        self._given = programs.plan.inputs[-1]
        self._lengths = np.zeros(count, np.int64)
        self._longest = TILE
        self._ready: set[_native.Session] = set()
        """Sessions whose copies of the parameters are those of now."""
        sources = None if source is None else Batch(programs.plan.inputs[:-1], source)
        self._sources: list[np.ndarray | None] = []
        """The lengths of the sources, input by input; None where all have the same."""
        if sources is not None:
            self._longest = _room_for(sources.longest)
            self._sources = [None if r is None else np.diff(r) for r in sources.first_rows]
        kept = [heads.room(count, self._longest) for heads in programs.heads]
        self._keys, self._values = [k for k, _ in kept], [v for _, v in kept]
        if sources is not None:
            no_token = np.zeros(0, np.int32), np.zeros(count + 1, np.int64)
            samples = _native.Samples([*sources.x, no_token[0]], [*sources.first_rows, no_token[1]])
            self._run("begin", None, samples, [], np.arange(count))

    def lengths(self, which: Sequence[int]) -> Sequence[int]:
        return self._lengths[list(which)].tolist()

    def forget(self, which: Sequence[int]) -> None:
        self._lengths[list(which)] = 0

    def scores(self, which: Sequence[int], tokens: Sequence[np.ndarray]) -> np.ndarray:
        chosen = np.array(which, np.int64)
        new = np.array([len(ids) for ids in tokens], np.int64)
        self._make_room(int((self._lengths[chosen] + new).max(initial=1)))
        most = int(new.max(initial=1))
        new_rows = 1 if most == 1 else min(_room_for(most), self._longest)
        nothing = np.zeros(0, np.int32)
        samples = _native.Samples(
            [*(nothing for _ in self._sources), readable(np.concatenate(tokens), self._given)],
            [*(None if n is None else starts_of(n[chosen]) for n in self._sources), starts_of(new)],
        )
        assert self._programs.plan is not None
        scores = np.empty((len(which), self._programs.plan.output.width), np.float32)
        self._run("continue", new_rows, samples, [scores], chosen)
        self._lengths[chosen] += new
        return scores

    def _run(
        self,
        purpose: Purpose,
        new_rows: int | None,
        samples: _native.Samples,
        outputs: list[np.ndarray],
        which: np.ndarray,
    ) -> None:
        session = self._programs.session(self._longest, purpose, new_rows)
        session.go_on(
            self._parameters,
            samples,
            outputs,
            self._keys,
            self._values,
            [self._longest] * len(self._keys),
            which,
            self._lengths[which],
            self._threads,
            session in self._ready,
        )
        self._ready.add(session)

    def _make_room(self, longest: int) -> None:
        """Room for sequences that long; what they keep moves along."""
        if longest <= self._longest:
            return
        self._longest = _room_for(longest)
        for i, heads in enumerate(self._programs.heads):
            room = heads.room(len(self._lengths), self._longest)
            for old, new in zip((self._keys[i], self._values[i]), room, strict=True):
                new[:, :, : old.shape[2]] = old
            self._keys[i], self._values[i] = room
