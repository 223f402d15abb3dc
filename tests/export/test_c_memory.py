"""No value of an exported program is written over while somebody still reads it."""

from __future__ import annotations

import numpy as np
import pytest
from c_programs import NETWORKS, RECIPES, models
from hypothesis import given, settings
from random_networks import Example, examples

import undivided
from undivided.export.calls import in_place, is_renamed, scratch_of
from undivided.export.memory import Memory, numbers_in, placed
from undivided.plan.plan import Plan


def memory_of(plan: Plan) -> Memory:
    return placed(plan, scratch_of(plan), in_place(plan), is_renamed)


def assert_nothing_is_lost(plan: Plan) -> None:
    """Walk the plan with memory that remembers which value each float belongs to."""
    memory = memory_of(plan)
    arena = np.full(memory.floats, "", object)
    outside: dict[str, np.ndarray] = {}  # the caller's input and output
    same = {plan.input.name: plan.input.name}  # a reshaped value is the same numbers

    def cells(name: str) -> np.ndarray:
        region, size = memory.regions[name], numbers_in(plan.values[name].shape)
        if region in memory.offsets:
            return arena[memory.offsets[region] :][:size]
        return outside.setdefault(region, np.full(size, "", object))

    cells(plan.input.name)[:] = plan.input.name
    for op in plan.operations:
        same[op.output] = same[op.inputs[0]] if is_renamed(op) else op.output
        if scratch := scratch_of(plan)(op):
            room = arena[memory.scratch[op.output] :][:scratch]
            assert len(room) == scratch
            room[:] = "scratch"
        for name in op.inputs:
            assert (cells(name) == same[name]).all(), (op.output, name)
        if is_renamed(op):
            continue
        assert memory.regions[op.output] != memory.regions[plan.input.name]
        over = [name for name in op.inputs if memory.regions[name] == memory.regions[op.output]]
        assert set(over) <= {op.inputs[i] for i in in_place(plan)(op)}
        cells(op.output)[:] = op.output
        if scratch:
            assert (room == "scratch").all()
    assert (cells(plan.output.name) == same[plan.output.name]).all()


@pytest.mark.parametrize("name", [*NETWORKS, *RECIPES])
def test_values_stay_until_they_are_read(name):
    (model,) = models([name])
    assert_nothing_is_lost(model.plan)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(example=examples().filter(lambda e: None not in e.network.input))
def test_values_of_any_network_stay(example: Example):
    assert_nothing_is_lost(example.network.plan())


def test_the_arena_is_smaller_than_its_values():
    plan = undivided.recipe("mnist-attention").plan()
    memory = memory_of(plan)
    values = sum(numbers_in(value.shape) for value in plan.values.values())
    assert memory.floats < values / 2
    assert memory.floats == sum(floats for _, floats in memory.peak[1])


def test_nothing_needs_no_arena():
    plan = undivided.Network(input=(3,), layers=[undivided.Output(2)]).plan()
    assert memory_of(plan).floats == 0
