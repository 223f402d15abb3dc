"""The native engine: plans as programs of C++ kernels, fused and threaded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undivided import _native
from undivided.engines.engine import (
    Packed,
    Results,
    Samples,
    TrainedSteps,
    checked_order,
    inputs_of,
)
from undivided.engines.native.machine import instruction_set, thread_count
from undivided.plan.plan import Input, Plan, Ragged
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


def _aligned(floats: int) -> np.ndarray:
    """Zeros that begin on a cache line, as the kernels' whole vectors want them."""
    raw = np.zeros(floats + 16, np.float32)
    skip = (-raw.ctypes.data % 64) // 4
    return raw[skip : skip + floats]


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

    def _lay_out(self) -> None:
        """Parameters and slots as the schedule wants them, with the numbers that they hold."""
        storage = self._schedule.storage

        def moved(views: dict[str, np.ndarray]) -> np.ndarray:
            flat = _aligned(storage.floats)
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
        arenas, gradients, derived, folded, workers = self._session(purpose).bytes()
        return {
            "arenas": arenas,
            "gradients": gradients,
            "derived": derived,
            "folded": folded,
            "workers": workers,
            "parameters": self._flat.nbytes,
            "slots": sum(flat.nbytes for flat in self._slots.values()),
        }

    def predict(self, x: Samples) -> Results:
        batch = _Batch(self, x)
        shape = self.plan.output.shape
        output, outputs, starts = batch.room([shape])
        self._session("predict").run(self._flat, batch.samples(), outputs, starts, self.threads)
        return batch.split(output, [shape])[0]

    def attention_weights(self, x: Samples) -> dict[str, Results]:
        batch = _Batch(self, x)
        layers, shapes = [], []
        for op in self.plan.operations:
            if op.kind == "attention":
                query, key = (self.plan.values[name].shape[0] for name in op.inputs[:2])
                layers.append(op.layer)
                shapes.append((op.attributes["heads"], query, key))
        output, outputs, starts = batch.room(shapes)
        self._session("weights").run(self._flat, batch.samples(), outputs, starts, self.threads)
        return dict(zip(layers, batch.split(output, shapes), strict=True))

    def loss_and_gradients(
        self, x: Samples, y: Any, step: int | None = None
    ) -> tuple[float, dict[str, np.ndarray]]:
        batch = _Batch(self, x)
        targets = as_targets(self.plan, y, batch.count)
        total = _aligned(self._schedule.storage.floats)
        loss = self._session("train").gradients(
            self._flat,
            batch.samples(),
            _native_targets(targets),
            self._schedule.slice_samples(batch.count),
            total,
            None,
            _NOWHERE,
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
        batch = _Batch(self, x)
        total = _aligned(self._schedule.storage.floats)
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
        batch = _Batch(self, x)
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
            derived = _aligned(program.derived_floats)
            for offset, rows in program.constants.items():
                derived[offset : offset + rows.size] = rows.ravel()
            self._sessions[purpose] = _native.Session(
                list(program.instructions),
                list(program.buffers),
                list(program.blocks),
                list(program.folds),
                list(program.axes),
                program.arena_floats,
                program.group,
                program.parameter_floats,
                program.gradient_floats,
                derived,
                list(program.patterns),
                self.instruction_set,
            )
        return self._sessions[purpose]

    def _make_room(self, longest: int) -> None:
        """Samples longer than any before need larger arenas; the parameters stay where they are."""
        if longest > self._schedule.longest:
            self._schedule = schedule(self.plan, 1 << (longest - 1).bit_length())
            self._sessions.clear()


_NOWHERE = np.zeros(0, np.int64)


class _Batch:
    """Samples as the native side wants them: an array an input, and row starts where lengths
    differ."""

    def __init__(self, engine: NativeEngine, x: Samples) -> None:
        self.count = len(x)
        self.x: list[np.ndarray] = []
        self.lengths: dict[str, np.ndarray] = {}
        """Of each ragged axis, by its name."""
        self.first_rows: list[np.ndarray | None] = []
        for entry, part in zip(engine.plan.inputs, inputs_of(x), strict=True):
            axis = entry.shape[0]
            if not isinstance(axis, Ragged):
                self.x.append(_readable(np.asarray(part), entry))
                self.first_rows.append(None)
                continue
            rows, lengths = _end_to_end(part, entry)
            engine._make_room(int(lengths.max(initial=1)))
            self.lengths[axis.name] = lengths
            self.first_rows.append(_starts(lengths))
            self.x.append(_readable(rows, entry))

    def samples(self) -> _native.Samples:
        return _native.Samples(self.x, self.first_rows)

    def _sizes(self, shape: tuple[int | Ragged, ...]) -> np.ndarray | int:
        """Numbers in each sample's part of an output: an array where lengths differ."""
        size: np.ndarray | int = 1
        for extent in shape:
            size = size * (self.lengths[extent.name] if isinstance(extent, Ragged) else extent)
        return size

    def starts(self, shape: tuple[int | Ragged, ...]) -> np.ndarray:
        """Where each sample begins in an output; nothing where all have the same size."""
        sizes = self._sizes(shape)
        return _starts(sizes) if isinstance(sizes, np.ndarray) else _NOWHERE

    def room(
        self, shapes: Sequence[tuple[int | Ragged, ...]]
    ) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
        """Empty outputs of these shapes a sample, and where each sample begins in them."""
        arrays, starts = [], []
        for shape in shapes:
            sizes = self._sizes(shape)
            if isinstance(sizes, np.ndarray):
                arrays.append(np.empty(int(sizes.sum()), np.float32))
            else:
                fixed = [n for n in shape if isinstance(n, int)]
                arrays.append(np.empty((self.count, *fixed), np.float32))
            starts.append(self.starts(shape))
        return arrays, arrays, starts

    def split(
        self, arrays: list[np.ndarray], shapes: Sequence[tuple[int | Ragged, ...]]
    ) -> list[Results]:
        """Outputs as the caller wants them: an array, or a list where samples differ in length."""
        results: list[Results] = []
        for array, shape in zip(arrays, shapes, strict=True):
            sizes = self._sizes(shape)
            if not isinstance(sizes, np.ndarray):
                results.append(array)
                continue
            pieces = np.split(array, np.cumsum(sizes)[:-1]) if self.count else []
            results.append([piece.reshape(self._shape(i, shape)) for i, piece in enumerate(pieces)])
        return results

    def _shape(self, sample: int, shape: tuple[int | Ragged, ...]) -> list[int]:
        """The shape of one sample's part of an output."""
        return [int(self.lengths[e.name][sample]) if isinstance(e, Ragged) else e for e in shape]

    def joined(self, dy: Samples) -> np.ndarray:
        """The gradient of the output, sample after sample."""
        if isinstance(dy, np.ndarray) and dy.dtype != object:
            return np.ascontiguousarray(dy, np.float32)
        return np.concatenate([np.asarray(d, np.float32).ravel() for d in dy])


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


def _end_to_end(part: Any, entry: Input) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all samples, one sample after the other, and how many each has."""
    if isinstance(part, Packed):
        return part.rows, part.lengths
    if isinstance(part, np.ndarray) and part.dtype != object:
        rows = part.reshape(part.shape[0] * part.shape[1], *part.shape[2:])
        return rows, np.full(len(part), part.shape[1], np.int64)
    lengths = np.array([len(sample) for sample in part], np.int64)
    if not len(part):
        return np.zeros((0, *(n for n in entry.shape[1:] if isinstance(n, int)))), lengths
    return np.concatenate([_readable(np.asarray(sample), entry) for sample in part]), lengths


def _readable(x: np.ndarray, entry: Input) -> np.ndarray:
    """Bytes stay bytes; ids become int32, every other number float32."""
    other = np.float32 if entry.vocabulary is None else np.int32
    return np.ascontiguousarray(x, np.uint8 if x.dtype == np.uint8 else other)


def _starts(sizes: np.ndarray) -> np.ndarray:
    starts = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts
