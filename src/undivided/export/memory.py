"""Where each value of a plan lies while a sample goes through it: the caller's input and output,
or a place in the arena that others take when it is no longer read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from undivided.plan.plan import Operation, Plan, Shape, size_of
from undivided.plan.schedule.arena import Lifetime, place

__all__ = ["Memory", "numbers_in", "placed"]


def numbers_in(shape: Shape) -> int:
    """How many numbers a fixed shape holds."""
    return size_of(shape, 1)


@dataclass(frozen=True)
class Memory:
    """Values in memory. A region is what values that lie in the same place share; it has the
    name of the first of them.

    `offsets` has the regions that are in the arena; `scratch` has the room that an operation
    needs for itself, by the name of its output.
    """

    regions: Mapping[str, str]
    offsets: Mapping[str, int]
    scratch: Mapping[str, int]
    floats: int
    """The size of the arena."""
    peak: tuple[str, tuple[tuple[str, int], ...]]
    """The operation during which most is kept, and what: (value, floats), the largest first."""


def placed(
    plan: Plan,
    scratch_of: Callable[[Operation], int],
    in_place: Callable[[Operation], tuple[int, ...]],
    is_renamed: Callable[[Operation], bool],
) -> Memory:
    """Places for all values. `in_place` says which inputs an operation may write its output over,
    `is_renamed` whether it writes nothing, because its output is its input under another name."""
    regions = _regions(plan, in_place, is_renamed)
    outside = {regions[plan.input.name], regions[plan.output.name]}
    spans: dict[str, tuple[int, int]] = {}
    for i, op in enumerate(plan.operations):
        for name in (*op.inputs, op.output):
            first, _ = spans.get(regions[name], (i, i))
            spans[regions[name]] = first, i
    inside = [region for region in spans if region not in outside]
    lifetimes = [Lifetime(numbers_in(plan.values[name].shape), *spans[name]) for name in inside]
    scratch = [(i, op) for i, op in enumerate(plan.operations) if scratch_of(op)]
    lifetimes += [Lifetime(scratch_of(op), i, i) for i, op in scratch]
    offsets, floats = place(lifetimes, alignment=1)
    return Memory(
        regions,
        dict(zip(inside, offsets, strict=False)),
        {op.output: offsets[len(inside) + n] for n, (_, op) in enumerate(scratch)},
        floats,
        _peak(plan, regions, [*inside, *("" for _ in scratch)], lifetimes),
    )


def _regions(
    plan: Plan,
    in_place: Callable[[Operation], tuple[int, ...]],
    is_renamed: Callable[[Operation], bool],
) -> dict[str, str]:
    """The region of each value."""
    regions = {plan.input.name: plan.input.name}
    last_read: dict[str, int] = {}
    for i, op in enumerate(plan.operations):
        for name in op.inputs:
            last_read[name] = i
    for i, op in enumerate(plan.operations):
        regions[op.output] = op.output
        if is_renamed(op):
            regions[op.output] = regions[op.inputs[0]]
            continue
        for number in in_place(op):
            region = regions[op.inputs[number]]
            sharing = [name for name, of in regions.items() if of == region]
            still_read = any(last_read.get(name, -1) > i for name in sharing)
            kept = region == regions[plan.input.name] or plan.output.name in sharing
            if not still_read and not kept:
                regions[op.output] = region
                break
    return regions


def _peak(
    plan: Plan, regions: Mapping[str, str], called: list[str], lifetimes: list[Lifetime]
) -> tuple[str, tuple[tuple[str, int], ...]]:
    """When most is kept, and what; a region is called by the value that lies there then."""
    best = -1
    found: tuple[str, tuple[tuple[str, int], ...]] = ("", ())
    there: dict[str, str] = {}
    for i, op in enumerate(plan.operations):
        there[regions[op.output]] = op.output
        live = [
            (there[name] if name else f"the scratch of {op.output}", life.floats)
            for name, life in zip(called, lifetimes, strict=True)
            if life.first <= i <= life.last
        ]
        total = sum(floats for _, floats in live)
        if total > best:
            best = total
            found = op.output, tuple(sorted(live, key=lambda entry: -entry[1]))
    return found
