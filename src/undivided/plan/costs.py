"""What a plan costs: multiply-adds forward and backward, and bytes, as described and as scheduled.

A multiply-add is one a·b + c; the cheap element-by-element work is not counted. Where an axis is
ragged, the numbers are for a sample of a stated length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from undivided.plan.plan import Operation, Plan, Value, size_of
from undivided.plan.primitives import PRIMITIVES
from undivided.plan.schedule import Schedule, schedule

__all__ = [
    "Cost",
    "Memory",
    "Recomputation",
    "memory_of",
    "operation_costs",
    "recomputation_of",
    "scheduled_costs",
]

FLOAT = 4
"""Bytes in a float32."""


@dataclass(frozen=True)
class Cost:
    """Multiply-adds for one sample."""

    forward: int
    backward: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.forward + other.forward, self.backward + other.backward)


NOTHING = Cost(0, 0)


@dataclass(frozen=True)
class Memory:
    """Bytes. Arenas are for one thread; gradients are a copy for each slice of the batch, and
    where several threads train a spare one for each; of large tables slices list rows, and each
    thread sums a stretch of them."""

    activations: int
    parameters: int
    derived: int
    arena_inference: int
    arena_training: int
    gradients: int
    gradients_spare: int
    gradients_stretch: int
    gradients_folded: int
    optimizer: int


@dataclass(frozen=True)
class Recomputation:
    """What `recompute` does to the arena of a training thread, in bytes, and what it costs: more
    multiply-adds a sample."""

    set: bool
    arena_training_without: int
    arena_training_with: int
    multiply_adds: int


def operation_costs(plan: Plan, length: int) -> dict[str, Cost]:
    """Each operation's cost as described, by the name of its output."""
    return _costs(plan.operations, plan.values, length)


def scheduled_costs(schedule: Schedule, length: int) -> Cost:
    """What the native engine really does for a training sample."""
    graph = schedule.graph
    return sum(_costs(graph.operations, graph.values, length).values(), NOTHING)


def _costs(
    operations: Iterable[Operation], values: Mapping[str, Value], length: int
) -> dict[str, Cost]:
    costs: dict[str, Cost] = {}
    learned: set[str] = set()  # values with a parameter above them, which gradients must reach
    for op in operations:
        originals = op.attributes.get("merged", (op,))
        above = any(name in learned for name in op.inputs)
        products = getattr(PRIMITIVES.get(op.kind), "multiply_adds", None)
        costs[op.output] = Cost(*products(op, values, length, above)) if products else NOTHING
        trained = op.parameters or not {"merged", "fold"}.isdisjoint(op.attributes)
        if trained or above:
            learned.update((op.output, *(each.output for each in originals)))
    return costs


def memory_of(plan: Plan, batch: int, length: int) -> Memory:
    """The bytes that training with a batch takes; what the native engine allocates."""
    made = schedule(plan, length)
    training, inference = made.program("train"), made.program("predict")
    folded = made.storage.floats + made.storage.gradient_floats if made.storage.folds else 0
    samples = made.slice_samples(batch)
    slices = -(-batch // samples)
    gradients = made.storage.gradient_floats + training.listed_floats(samples)
    activations = sum(size_of(value.shape, length) for value in plan.values.values())
    activations += sum(
        op.attributes["heads"]
        * size_of(plan.values[op.inputs[0]].shape[:-1], length)
        * size_of(plan.values[op.inputs[1]].shape[:-1], length)
        for op in plan.operations
        if op.kind == "attention"
    )
    return Memory(
        activations=activations * batch * FLOAT,
        parameters=made.storage.floats * FLOAT,
        derived=made.storage.derived_floats * FLOAT,
        arena_inference=inference.arena_floats * FLOAT,
        arena_training=training.arena_floats * FLOAT,
        gradients=slices * gradients * FLOAT,
        gradients_spare=gradients * FLOAT,
        gradients_stretch=training.stretch_floats() * FLOAT,
        gradients_folded=folded * FLOAT,
        optimizer=len(plan.optimizer.kept()) * made.storage.floats * FLOAT,
    )


def recomputation_of(plan: Plan, length: int) -> Recomputation:
    """What training needs with `recompute` and without, whichever the plan says."""
    without, made = (schedule(replace(plan, recompute=each), length) for each in (False, True))
    again, graph = made.program("train"), made.graph
    costs = _costs(graph.operations, graph.values, length)
    return Recomputation(
        plan.recompute,
        without.program("train").arena_floats * FLOAT,
        again.arena_floats * FLOAT,
        sum(costs[output].forward for output in again.recomputed),
    )
