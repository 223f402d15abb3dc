"""From a rewritten graph to a program: forward instructions, then backward in reverse order.

What an operation comes to stands with its primitive (`plan/primitives`), forward beside
backward. Which buffers live when follows from the instructions themselves, so the arena needs no
book-keeping.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

from undivided.plan.plan import Operation, Plan, Ragged
from undivided.plan.primitives import PRIMITIVES, attention
from undivided.plan.schedule import load, vocabulary
from undivided.plan.schedule.arena import Lifetime, Region, place
from undivided.plan.schedule.graph import Graph
from undivided.plan.schedule.losses import loss_fields
from undivided.plan.schedule.program import Axis, Buffer, Instruction, Program
from undivided.plan.schedule.recompute import recompute
from undivided.plan.schedule.rewrites import padded
from undivided.plan.schedule.storage import Storage

__all__ = ["Compiler", "Purpose", "compile_program", "group_size"]

Purpose = Literal["predict", "weights", "train", "pull_back", "begin", "continue"]
"""predict: outputs. weights: attention weights. train: loss and gradients. pull_back: gradients
of a given output gradient, for the parameters and the samples. begin: what a plan that goes on
keeps of what does not depend on its tokens. continue: outputs for new tokens."""

GROUP_ROWS = 64
MOST_GROUP = 16
WIDE_WEIGHT, WIDE_ROWS = 1 << 19, 256
"""Weights from so many numbers on are worth a larger group."""
OVERREAD = 64
"""Floats behind the arena that whole-vector reads may touch."""

EMITTERS = {**PRIMITIVES, "load": load}


def compile_program(
    plan: Plan,
    graph: Graph,
    storage: Storage,
    purpose: Purpose,
    longest: int,
    new_rows: int | None = None,
) -> Program:
    """The program of a graph for one purpose. `longest` is the most rows of a ragged axis, of
    which one call brings at most `new_rows` where it is continued."""
    return Compiler(plan, graph, storage, purpose, longest, new_rows).program()


def group_size(graph: Graph, rows_at_once: int = GROUP_ROWS) -> int:
    """How many samples go through the program together, so that their rows fill the tiles.

    Samples that bring their own lengths go one by one: what a length seen later changed would
    change the order of sums.
    """
    rows = [
        _rows(graph, op.output)
        for op in graph.operations
        if op.output not in graph.inputs or op.kind == "load"
    ]
    most = max(rows_at_once if isinstance(r, Ragged) else r for r in rows)
    return max(1, min(MOST_GROUP, rows_at_once // max(most, 1)))


def _rows_to_learn_from(storage: Storage) -> int:
    """How many rows go together in training: more where weights are large, which are read for
    every group, and whose gradients are read and written."""
    largest = max((b.rows * b.stride for b in storage.blocks if b.gradient >= 0), default=0)
    return WIDE_ROWS if largest >= WIDE_WEIGHT else GROUP_ROWS


def _rows(graph: Graph, name: str) -> int | Ragged:
    """How many rows a sample has in a value: the product of all axes but the last."""
    shape = graph.values[name].shape
    if shape and isinstance(shape[0], Ragged):
        return shape[0]
    return math.prod(n for n in shape[:-1] if isinstance(n, int))


class Compiler:
    """A program in the making. Primitives ask it for buffers, then emit their instructions."""

    def __init__(
        self,
        plan: Plan,
        graph: Graph,
        storage: Storage,
        purpose: Purpose,
        longest: int,
        new_rows: int | None = None,
    ) -> None:
        self.plan, self.graph, self.storage = plan, graph, storage
        self.purpose, self.longest = purpose, longest
        self.new_rows = longest if new_rows is None else new_rows
        self.backwards = purpose in ("train", "pull_back")
        rows = _rows_to_learn_from(storage) if self.backwards else GROUP_ROWS
        # Nothing is summed over samples there: single tokens fill the tiles together.
        one = purpose == "continue" and new_rows == 1
        self.group = MOST_GROUP if one else group_size(graph, rows)
        self.axes: list[Axis] = []
        self.axis_index: dict[int | Ragged, int] = {}
        self.regions: list[Region] = []
        self.value_buffers: dict[str, int] = {}
        self.gradient_buffers: dict[str, int] = {}
        self.before_buffers: dict[str, int] = {}
        self.kept: dict[str, Instruction] = {}  # forward instructions that backward asks for
        self.written: set[str] = set()
        self.reached: set[str] = set()
        self.masked: set[str] = set()
        self.transposed: set[int] = set()
        self.instructions: list[Instruction] = []
        self.patterns: list[Any] = []
        self.learned = self._values_with_gradients()

    def _values_with_gradients(self) -> set[str]:
        """The values whose gradient something needs: a parameter, or the samples, above them."""
        learned: set[str] = set()
        for op in self.graph.operations:
            above = {self._base(name) for name in op.inputs}
            trained = bool(op.parameters) or not {"merged", "fold"}.isdisjoint(op.attributes)
            samples = op.kind == "load" and self.purpose == "pull_back"
            if trained or samples or above & learned:
                learned.add(op.output)
        return learned

    def _base(self, name: str) -> str:
        return self.graph.parts[name][0] if name in self.graph.parts else name

    # Buffers.

    def axis(self, rows: int | Ragged) -> int:
        if rows not in self.axis_index:
            self.axis_index[rows] = len(self.axes)
            if isinstance(rows, Ragged):
                most = self.new_rows if rows.continued else self.longest
                self.axes.append(Axis(-1, most, self._bringing(rows), int(rows.continued)))
            else:
                self.axes.append(Axis(rows, rows))
        return self.axis_index[rows]

    def _bringing(self, axis: Ragged) -> int:
        """The number of the input that a ragged axis has its lengths from."""
        return next(i for i, e in enumerate(self.plan.inputs) if e.shape[:1] == (axis,))

    def input_number(self, name: str) -> int:
        """Which of the samples' inputs a value is."""
        return [entry.name for entry in self.plan.inputs].index(name)

    def numbers_before(self, name: str) -> int:
        """How many inputs of numbers, and not of ids, stand before this one."""
        before = self.plan.inputs[: self.input_number(name)]
        return sum(entry.vocabulary is None for entry in before)

    def region(self, axis: int, width: int, stride: int, floats: int) -> int:
        self.regions.append(Region(axis, width, stride, floats, base=len(self.regions)))
        return len(self.regions) - 1

    def _for_value(self, name: str, table: dict[str, int]) -> int:
        if name in table:
            return table[name]
        width = self.graph.values[name].width
        axis = self.axis(_rows(self.graph, name))
        if name in self.graph.parts:
            wide, column = self.graph.parts[name]
            base = self._for_value(wide, table)
            self.regions.append(
                Region(axis, width, self.regions[base].stride, 0, self.regions[base].base, column)
            )
            table[name] = len(self.regions) - 1
        else:
            stride = padded(width)
            rows = self.axes[axis].most * self.group
            table[name] = self.region(axis, width, stride, rows * stride)
        return table[name]

    def value(self, name: str) -> int:
        """The buffer of a value."""
        return self._for_value(name, self.value_buffers)

    def gradient(self, name: str) -> int:
        """The buffer of its gradient."""
        return self._for_value(name, self.gradient_buffers)

    def before(self, name: str) -> int:
        """What an activation is applied to, kept beside the value that it gives."""
        return self._for_value(name, self.before_buffers)

    def scratch(self, floats: int) -> int:
        return self.region(0, 1, 1, floats)

    def most_rows(self, name: str) -> int:
        """The most rows that a sample may have in a value."""
        return self.axes[self.axis(_rows(self.graph, name))].most

    def padded(self, width: int) -> int:
        return padded(width)

    def block(self, op: Operation, role: str) -> int:
        """The block of an operation's parameter; −1 where it has none."""
        return self.storage.index.get((op.output, role), -1)

    # Instructions.

    def emit(self, op: Operation | None, kind: str, **values: object) -> Instruction:
        instruction = Instruction(kind, **values)  # type: ignore[arg-type]
        instruction.layer = op.layer if op else ""
        instruction.operation = op.output if op else ""
        self.instructions.append(instruction)
        return instruction

    def next_weights(self) -> int:
        """Which of the arrays of attention weights the next one is."""
        return sum(i.kind in ("store_weights", "store_linear_weights") for i in self.instructions)

    def into(self, name: str) -> tuple[int, int]:
        """The gradient buffer of an input, and whether to add to what is there."""
        if self._base(name) not in self.learned:
            return -1, 0
        accumulate = int(name in self.written)
        self._mark(name)
        return self.gradient(name), accumulate

    def _mark(self, name: str) -> None:
        """A gradient has been written for this value, and so for what it is a part of."""
        self.written.add(name)
        self.reached.update((name, self._base(name)))

    def program(self) -> Program:
        self.axis(1)
        last = vocabulary.in_chunks(self)
        for op in self.graph.operations:
            if op is last:  # goes with its loss
                continue
            if self.purpose == "begin" and op.output in self.graph.new_rows:
                if op.kind == "attention":
                    attention.begin(self, op)
            elif self.purpose != "continue" or op.output in self.graph.new_rows:
                EMITTERS[op.kind].forward(self, op)
        forward = len(self.instructions)
        if last is None:
            self._finish_forward()
        else:
            vocabulary.emit(self, last)
        if self.backwards:
            for op in reversed(self.graph.operations):
                if op.output in self.learned and op.output in self.reached:
                    EMITTERS[op.kind].backward(self, op)
        buffers, size = self._placed()
        recomputed: frozenset[str] = frozenset()
        if self.backwards and self.plan.recompute:
            buffers, size, recomputed = self._recomputing(forward, buffers, size)
        self._mark_beginnings()
        # Folds read the second weight transposed; backward those that gradients pass through.
        turned = self.transposed | {fold.right for fold in self.storage.folds}
        blocks = tuple(
            block if i in turned else replace(block, transposed=-1)
            for i, block in enumerate(self.storage.blocks)
        )
        return Program(
            tuple(self.instructions),
            buffers,
            blocks,
            self.storage.folds,
            tuple(self.axes),
            size + OVERREAD,
            self.group,
            self.storage.floats,
            self.storage.gradient_floats,
            self.storage.derived_floats,
            self.storage.constants,
            tuple(self.patterns),
            recomputed,
        )

    def _recomputing(
        self, forward: int, buffers: tuple[Buffer, ...], size: int
    ) -> tuple[tuple[Buffer, ...], int, frozenset[str]]:
        """The program that keeps less for backward, where its arena is smaller for it."""
        positions = {op.output: i for i, op in enumerate(self.graph.operations)}
        kept = self.instructions, self.regions
        less = recompute(*kept, forward, positions)
        self.instructions, self.regions = less.instructions, less.regions
        placed, smaller = self._placed()
        if smaller < size:
            return placed, smaller, less.operations
        self.instructions, self.regions = kept
        return buffers, size, frozenset()

    def _mark_beginnings(self) -> None:
        """Who is the first to add to a weight's gradients sets them: they need not be cleared."""
        touched: set[int] = set()
        for each in self.instructions:
            if each.backward and each.kind == "linear" and each.weight not in touched:
                each.begins = 1
            if each.backward or each.kind == "vocabulary":
                touched |= {each.weight, each.bias, each.table, each.gain, each.shift}

    def _finish_forward(self) -> None:
        output = self.graph.output
        if self.purpose in ("predict", "continue"):
            self.emit(None, "store", x=self.value(output))
        elif self.purpose == "train":
            dx, _ = self.into(output)
            kind, fields = loss_fields(self.plan.loss)
            self.emit(None, kind, x=self.value(output), dx=dx, **fields)
        elif self.purpose == "pull_back":
            dx, _ = self.into(output)
            if dx >= 0:
                self.emit(None, "seed", backward=1, dx=dx)

    def _placed(self) -> tuple[tuple[Buffer, ...], int]:
        """Offsets for all regions, from the first and last instruction that touches each."""
        spans: dict[int, tuple[int, int]] = {}
        for i, instruction in enumerate(self.instructions):
            for index in instruction.buffers():
                base = self.regions[index].base
                first, _ = spans.get(base, (i, i))
                spans[base] = first, i
        bases = sorted(spans)
        lifetimes = [Lifetime(self.regions[b].floats, *spans[b]) for b in bases]
        offsets, size = place(lifetimes)
        at = dict(zip(bases, offsets, strict=True))
        buffers = tuple(
            Buffer(at.get(r.base, 0) + r.column, r.axis, r.width, r.stride) for r in self.regions
        )
        return buffers, size

    # What the primitives have in common.

    def mask(self, reader: Operation, source: str) -> int:
        """Where `source` is a relu and `reader` the last to add to its gradient, it is cut here.

        Backward goes from the last operation to the first: the first reader is the last to add.
        """
        producer = self.graph.producers.get(source)
        relu = producer is not None and producer.attributes.get("function") == "relu"
        if not relu or source == self.graph.output or self.graph.readers[source][0] is not reader:
            return -1
        self.masked.add(source)
        return self.value(source)

    def pass_on(self, op: Operation, source: str) -> None:
        """The gradient of `source` is that of op's output: the same buffer, if nobody else adds."""
        if source not in self.learned and self._base(source) not in self.learned:
            return
        alone = (
            self.graph.only_reader(source) is op
            and source not in self.written
            and source not in self.graph.parts
        )
        if alone and source not in self.gradient_buffers:
            self.gradient_buffers[source] = self.gradient(op.output)
            self._mark(source)
            return
        dx, accumulate = self.into(source)
        dy = self.gradient(op.output)
        self.emit(op, "copy", backward=1, dx=dx, dy=dy, accumulate_x=accumulate)

    def share(self, op: Operation) -> None:
        """What comes out of an operation that does nothing here is what goes in."""
        self.value_buffers[op.output] = self.value(op.inputs[0])

    def unary_backward(self, op: Operation, kind: str, **values: object) -> None:
        """dx from dy alone and what is in `values`, where anybody wants it."""
        dx, accumulate = self.into(op.inputs[0])
        if dx < 0:
            return
        dy = self.gradient(op.output)
        self.emit(op, kind, backward=1, dx=dx, dy=dy, accumulate_x=accumulate, **values)
