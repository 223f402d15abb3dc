"""The native engine: plans as programs of C++ kernels, fused and threaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from undivided import _native
from undivided.engines.engine import (
    Results,
    Samples,
    TrainedSteps,
    checked_order,
)
from undivided.engines.native.machine import instruction_set, thread_count
from undivided.engines.native.samples import NOWHERE, Batch
from undivided.engines.native.sequences import Continuing, NativeSequences
from undivided.engines.native.session import aligned, session_of
from undivided.plan.plan import Plan
from undivided.plan.schedule import Purpose, Schedule, schedule
from undivided.targets import Targets, as_targets
from undivided.training.optimizers import SGD, Adam, AdamW, Optimizer

__all__ = ["NativeEngine"]


@dataclass(frozen=True)
class _Rule:
    """An optimizer in the numbers that the native side reads."""

    kind: int
    momentum: float = 0.0
    nesterov: int = 0
    beta_1: float = 0.0
    beta_2: float = 0.0
    epsilon: float = 0.0
    weight_decay: float = 0.0
    epsilon_inside_root: int = 0
    epsilon_uncorrected: int = 0
    clip_norm: float = math.inf
    clip_value: float = math.inf


def _rule_of(optimizer: Optimizer) -> _Rule:
    clips = {
        name: limit
        for name in ("clip_norm", "clip_value")
        if (limit := getattr(optimizer, name)) is not None
    }
    if isinstance(optimizer, SGD):
        kind = 1 if optimizer.momentum else 0
        return _Rule(kind, optimizer.momentum, int(optimizer.nesterov), **clips)
    assert isinstance(optimizer, Adam)
    given: dict[str, Any] = {name: getattr(optimizer, name) for name in _ADAM}
    if isinstance(optimizer, AdamW):
        given["weight_decay"] = optimizer.weight_decay
        given["epsilon_inside_root"] = int(optimizer.epsilon_inside_root)
        given["epsilon_uncorrected"] = int(optimizer.epsilon_uncorrected)
    return _Rule(2, **given, **clips)


_ADAM = ("beta_1", "beta_2", "epsilon")


class NativeEngine:
    """A plan that runs in C++, float32. See `undivided.engines.engine.Engine`."""

    def __init__(self, plan: Plan, threads: int | None = None) -> None:
        self.plan = plan
        self.seed = 0
        self.threads = thread_count(threads)
        self.instruction_set = instruction_set()
        self._schedule = schedule(plan)
        self._parameters: dict[str, np.ndarray] = {}
        self._kept: dict[str, dict[str, np.ndarray]] = {name: {} for name in plan.optimizer.kept()}
        self.parameters: Mapping[str, np.ndarray] = self._parameters
        self.slots: Mapping[str, Mapping[str, np.ndarray]] = self._kept
        self._lay_out()
        self._rule = _rule_of(plan.optimizer)
        self._sessions: dict[Purpose, _native.Session] = {}
        self._continuing: Continuing | None = None

    def _lay_out(self) -> None:
        """Parameters and slots as the schedule wants them, with the numbers that they hold."""
        storage = self._schedule.storage

        def moved(views: dict[str, np.ndarray]) -> np.ndarray:
            flat = aligned(storage.floats)
            fresh = self._views(flat)
            for name, values in views.items():
                fresh[name][...] = values
            views.update(fresh)
            return flat

        self._flat = moved(self._parameters)
        self._slots = {name: moved(views) for name, views in self._kept.items()}

    def replan(self, plan: Plan) -> None:
        """Run another plan with the same parameters from now on."""
        places = self._schedule.storage.places
        self.plan, self._schedule = plan, schedule(plan, self._schedule.longest)
        self._sessions.clear()
        self._continuing = None
        if self._schedule.storage.places != places:  # the two plans are not rewritten alike
            self._lay_out()

    def _views(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """The plan's parameters, in its order, as views of a flat array."""
        places = self._schedule.storage.places
        return {name: places[name].view(flat) for name in self.plan.parameters}

    @property
    def schedule(self) -> Schedule:
        return self._schedule

    def allocated_bytes(self, purpose: Purpose) -> dict[str, int]:
        """What a session holds at present, for those who check what `describe` says."""
        arenas, gradients, derived, folded, workers, stretches = self._session(purpose).bytes()
        return {
            "arenas": arenas,
            "gradients": gradients,
            "derived": derived,
            "folded": folded,
            "stretches": stretches,
            "workers": workers,
            "parameters": self._flat.nbytes,
            "slots": sum(flat.nbytes for flat in self._slots.values()),
        }

    def predict(self, x: Samples) -> Results:
        batch = self._batch(x)
        shape = self.plan.output.shape
        output, outputs, starts = batch.room([shape])
        self._session("predict").run(self._flat, batch.samples(), outputs, starts, self.threads)
        return batch.split(output, [shape])[0]

    def begin(self, count: int, most: int, source: Samples | None = None) -> NativeSequences | None:
        if self._continuing is None:
            places = self._schedule.storage.places
            self._continuing = Continuing(self.plan, places, self.instruction_set)
        if not self._continuing.has_room(count, most):
            return None
        return NativeSequences(self._continuing, self._flat, self.threads, count, source)

    def attention_weights(self, x: Samples) -> dict[str, Results]:
        batch = self._batch(x)
        layers, shapes = [], []
        for op in self.plan.attentions:
            query, key = (self.plan.values[name].shape[0] for name in op.inputs[:2])
            layers.append(op.layer)
            shapes.append((op.attributes["heads"], query, key))
        output, outputs, starts = batch.room(shapes)
        self._session("weights").run(self._flat, batch.samples(), outputs, starts, self.threads)
        return dict(zip(layers, batch.split(output, shapes), strict=True))

    def loss_and_gradients(
        self, x: Samples, y: Any, step: int | None = None
    ) -> tuple[float, dict[str, np.ndarray]]:
        batch = self._batch(x)
        targets = as_targets(self.plan, y, batch.count)
        total = aligned(self._schedule.storage.floats)
        loss = self._session("train").gradients(
            self._flat,
            batch.samples(),
            _native_targets(targets),
            self._schedule.slice_samples(batch.count),
            total,
            None,
            NOWHERE,
            [],
            [],
            self.threads,
            self.seed,
            -1 if step is None else step,
        )
        return loss / (targets.weight_of() or 1.0), {
            k: v.copy() for k, v in self._views(total).items()
        }

    def pull_back(self, x: Samples, dy: Samples) -> tuple[Any, dict[str, np.ndarray]]:
        batch = self._batch(x)
        total = aligned(self._schedule.storage.floats)
        moved = [entry.shape for entry in self.plan.inputs if entry.vocabulary is None]
        dx, outputs, starts = batch.room(moved)
        self._session("pull_back").gradients(
            self._flat,
            batch.samples(),
            None,
            self._schedule.slice_samples(batch.count),
            total,
            batch.joined(dy),
            batch.starts(self.plan.output.shape),
            outputs,
            starts,
            self.threads,
        )
        gradients = {k: v.copy() for k, v in self._views(total).items()}
        found = iter(batch.split(dx, moved))
        each = tuple(next(found) if e.vocabulary is None else None for e in self.plan.inputs)
        return each[0] if len(each) == 1 else each, gradients

    def train(
        self,
        x: Samples,
        y: Any,
        order: np.ndarray,
        batch_size: int,
        first_step: int,
        learning_rates: np.ndarray,
        optimizer_steps: int | None = None,
    ) -> TrainedSteps:
        batch = self._batch(x)
        losses, failed = self._session("train").train(
            self._flat,
            list(self._slots.values()),
            batch.samples(),
            _native_targets(as_targets(self.plan, y, batch.count)),
            checked_order(order, batch.count, batch_size, len(learning_rates)),
            batch_size,
            self._schedule.slice_samples(batch_size),
            self._rule,
            first_step,
            first_step if optimizer_steps is None else optimizer_steps,
            np.ascontiguousarray(learning_rates, np.float64),
            self.threads,
            self.seed,
        )
        return TrainedSteps(np.array(losses), failed)

    def _session(self, purpose: Purpose) -> _native.Session:
        if purpose not in self._sessions:
            program = self._schedule.program(purpose)
            self._sessions[purpose] = session_of(program, self.instruction_set)
        return self._sessions[purpose]

    def _batch(self, x: Samples) -> Batch:
        batch = Batch(self.plan.inputs, x)
        self._make_room(batch.longest)
        return batch

    def _make_room(self, longest: int) -> None:
        """Samples longer than any before need larger arenas; the parameters stay where they are."""
        if longest > self._schedule.longest:
            self._schedule = schedule(self.plan, 1 << (longest - 1).bit_length())
            self._sessions.clear()


def _native_targets(targets: Targets) -> _native.Targets:
    """Targets as the native side reads them: classes or values, and what rows count."""
    values = targets.values
    by_class = values.ndim == 1
    return _native.Targets(
        values if by_class else None,
        None if by_class else np.ascontiguousarray(values, np.float32),
        targets.starts,
        targets.rows,
        targets.weights,
        targets.totals,
    )
