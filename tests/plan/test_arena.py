"""The arena: nothing lies where something else lives, and room is used again."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_cases import CASES, Case

from undivided.plan.schedule import Purpose, schedule
from undivided.plan.schedule.arena import ALIGNMENT, Lifetime, place
from undivided.plan.schedule.program import Buffer

PURPOSES: tuple[Purpose, ...] = ("predict", "weights", "train", "pull_back")


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    spans = st.tuples(st.integers(0, 12), st.integers(0, 6))
    return [
        Lifetime(draw(st.integers(0, 200)), first, first + length)
        for first, length in draw(st.lists(spans, max_size=25))
    ]


def ends(lifetime: Lifetime, offset: int) -> int:
    return offset + lifetime.floats


@given(lifetimes())
@settings(max_examples=300, derandomize=True, database=None, deadline=None)
def test_what_lives_at_once_lies_apart(lives: list[Lifetime]) -> None:
    offsets, size = place(lives)
    assert len(offsets) == len(lives)
    for i, (a, at) in enumerate(zip(lives, offsets, strict=True)):
        assert at >= 0 and at % ALIGNMENT == 0
        assert ends(a, at) <= size
        for b, bt in zip(lives[:i], offsets[:i], strict=True):
            together = a.first <= b.last and b.first <= a.last
            assert together == a.meets(b) == b.meets(a)
            assert not together or ends(a, at) <= bt or ends(b, bt) <= at


@given(lifetimes())
@settings(max_examples=300, derandomize=True, database=None, deadline=None)
def test_no_room_is_wasted_for_nothing(lives: list[Lifetime]) -> None:
    """Never more than all side by side, never less than what lives at any one time."""
    _, size = place(lives)
    rounded = [dataclasses.replace(a, floats=-(-a.floats // ALIGNMENT) * ALIGNMENT) for a in lives]
    assert size <= sum(a.floats for a in rounded)
    instants = range(max((a.last for a in lives), default=0) + 1)
    most = max(sum(a.floats for a in rounded if a.first <= t <= a.last) for t in instants)
    assert size >= most


@given(lifetimes())
@settings(max_examples=50, derandomize=True, database=None, deadline=None)
def test_the_same_every_time(lives: list[Lifetime]) -> None:
    assert place(lives) == place(list(lives))


def test_nothing_needs_no_room() -> None:
    assert place([]) == ([], 0)
    assert place([Lifetime(0, 0, 3)]) == ([0], 0)


def test_room_is_used_again() -> None:
    one_after_another = [Lifetime(100, n, n) for n in range(10)]
    offsets, size = place(one_after_another)
    assert offsets == [0] * 10 and size == 112


def test_a_hole_is_filled() -> None:
    """The large ones first; the small one goes where the middle one has left."""
    lives = [Lifetime(64, 0, 9), Lifetime(48, 0, 4), Lifetime(32, 0, 9), Lifetime(16, 5, 9)]
    offsets, size = place(lives)
    assert offsets == [0, 64, 112, 64] and size == 144


def test_neighbours_in_time_do_not_share() -> None:
    """What one instruction reads and writes is alive at once: it may be the same instruction."""
    offsets, size = place([Lifetime(16, 0, 3), Lifetime(16, 3, 5), Lifetime(16, 4, 6)])
    assert offsets[0] != offsets[1] and offsets[1] != offsets[2]
    assert size == 32


# The arenas of whole programs.


@pytest.mark.parametrize("purpose", PURPOSES)
def test_buffers_of_a_program_lie_apart_while_they_live(purpose: Purpose) -> None:
    for case in CASES:
        check(case, purpose)


def check(case: Case, purpose: Purpose) -> None:
    """From the instructions alone: the first and last that touch each buffer."""
    program = schedule(case.network.plan(), longest=max(case.lengths, default=1)).program(purpose)
    touched: dict[int, list[int]] = {}
    for i, instruction in enumerate(program.instructions):
        for index in instruction.buffers():
            touched.setdefault(index, []).append(i)
    lives: list[tuple[Buffer, int, Lifetime]] = []
    for index, at in touched.items():
        buffer = program.buffers[index]
        rows = program.axes[buffer.axis].most * program.group
        floats = (rows - 1) * buffer.stride + buffer.width
        assert buffer.offset >= 0
        assert buffer.offset + floats <= program.arena_floats, f"{case}: {purpose}"
        if buffer.width > 2:  # scratch and attention weights count what they take elsewhere
            lives.append((buffer, floats, Lifetime(floats, min(at), max(at))))
    for n, (a, a_floats, a_life) in enumerate(lives):
        for b, b_floats, b_life in lives[:n]:
            apart = a.offset + a_floats <= b.offset or b.offset + b_floats <= a.offset
            assert apart or belong(a, b) or not a_life.meets(b_life), f"{case}: {a} and {b}"


def belong(a: Buffer, b: Buffer) -> bool:
    """Whether they are columns of one value, or one is columns of the other."""
    a, b = sorted((a, b), key=lambda buffer: (buffer.offset, -buffer.width))
    start = b.offset - a.offset
    narrow = b.width + ALIGNMENT <= b.stride == a.stride
    beside = a.width <= start < a.stride and a.width + ALIGNMENT <= a.stride
    inside = start + b.width <= a.width
    return narrow and (beside or inside)


def test_training_reuses_room() -> None:
    """A deep stack needs less than all its values and gradients side by side."""
    case = next(case for case in CASES if case.option == "pre-norm, two blocks")
    program = schedule(case.network.plan()).program("predict")
    total = sum(
        buffer.stride * program.axes[buffer.axis].most * program.group
        for buffer in program.buffers
        if buffer.width > 2
    )
    assert program.arena_floats < total / 2
