"""From a rewritten graph to a program: forward instructions, then backward in reverse order.

Forward and backward of an operation are emitted side by side below. Which buffers live when
follows from the instructions themselves, so the arena needs no book-keeping here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from undivided.plan.plan import Operation, Plan, Ragged
from undivided.plan.schedule.arena import Lifetime, place
from undivided.plan.schedule.graph import Graph
from undivided.plan.schedule.program import Axis, Buffer, Function, Instruction, Kind, Program
from undivided.plan.schedule.rewrites import padded
from undivided.plan.schedule.storage import Storage

__all__ = ["Purpose", "compile_program", "group_size"]

Purpose = Literal["predict", "weights", "train", "pull_back"]
"""predict: outputs. weights: attention weights. train: loss and gradients. pull_back: gradients
of a given output gradient, for the parameters and the samples."""

GROUP_ROWS = 64
MOST_GROUP = 16
TILE_ROWS = 14
"""The most rows of a native tile (`matrix.h`); scratch has room for that many rows of dP."""
KEY_TILE = 64
"""Transposed keys and values lie in tiles of this many (`attention_call.h`)."""
OVERREAD = 64
"""Floats behind the arena that whole-vector reads may touch."""


@dataclass(frozen=True)
class _Region:
    """A buffer before it has a place: columns `column` … of the region `base`."""

    axis: int
    width: int
    stride: int
    floats: int
    base: int
    column: int = 0


def compile_program(
    plan: Plan, graph: Graph, storage: Storage, purpose: Purpose, longest: int
) -> Program:
    """The program of a graph for one purpose. `longest` is the most rows of a ragged axis."""
    return _Compiler(plan, graph, storage, purpose, longest).program()


def group_size(graph: Graph) -> int:
    """How many samples go through the program together, so that their rows fill the tiles.

    Samples that bring their own lengths go one by one: what a length seen later changed would
    change the order of sums.
    """
    rows = [
        _rows(graph, op.output)
        for op in graph.operations
        if op.output != graph.input or op.kind == "load"
    ]
    most = max(GROUP_ROWS if isinstance(r, Ragged) else r for r in rows)
    return max(1, min(MOST_GROUP, GROUP_ROWS // max(most, 1)))


def _rows(graph: Graph, name: str) -> int | Ragged:
    """How many rows a sample has in a value: the product of all axes but the last."""
    shape = graph.values[name].shape
    if shape and isinstance(shape[0], Ragged):
        return shape[0]
    return math.prod(n for n in shape[:-1] if isinstance(n, int))


class _Compiler:
    def __init__(
        self, plan: Plan, graph: Graph, storage: Storage, purpose: Purpose, longest: int
    ) -> None:
        self.plan, self.graph, self.storage = plan, graph, storage
        self.purpose, self.longest = purpose, longest
        self.group = group_size(graph)
        self.axes: list[Axis] = []
        self.axis_index: dict[int | Ragged, int] = {}
        self.regions: list[_Region] = []
        self.value_buffers: dict[str, int] = {}
        self.gradient_buffers: dict[str, int] = {}
        self.before_buffers: dict[str, int] = {}
        self.attention_instructions: dict[str, Instruction] = {}
        self.written: set[str] = set()
        self.reached: set[str] = set()
        self.masked: set[str] = set()
        self.transposed: set[int] = set()
        self.instructions: list[Instruction] = []
        self.backwards = purpose in ("train", "pull_back")
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
                self.axes.append(Axis(-1, self.longest))
            else:
                self.axes.append(Axis(rows, rows))
        return self.axis_index[rows]

    def region(self, axis: int, width: int, stride: int, floats: int) -> int:
        self.regions.append(_Region(axis, width, stride, floats, base=len(self.regions)))
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
                _Region(axis, width, self.regions[base].stride, 0, self.regions[base].base, column)
            )
            table[name] = len(self.regions) - 1
        else:
            stride = padded(width)
            rows = self.axes[axis].most * self.group
            table[name] = self.region(axis, width, stride, rows * stride)
        return table[name]

    def value(self, name: str) -> int:
        return self._for_value(name, self.value_buffers)

    def gradient(self, name: str) -> int:
        return self._for_value(name, self.gradient_buffers)

    def scratch(self, floats: int) -> int:
        return self.region(0, 1, 1, floats)

    def block(self, op: Operation, role: str) -> int:
        return self.storage.index.get((op.output, role), -1)

    # Instructions.

    def emit(self, op: Operation | None, kind: Kind, **values: object) -> Instruction:
        instruction = Instruction(kind, **values)  # type: ignore[arg-type]
        instruction.layer = op.layer if op else ""
        self.instructions.append(instruction)
        return instruction

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
        for op in self.graph.operations:
            getattr(self, f"{op.kind}_forward")(op)
        self._finish_forward()
        if self.backwards:
            for op in reversed(self.graph.operations):
                if op.output in self.learned and op.output in self.reached:
                    getattr(self, f"{op.kind}_backward")(op)
        buffers, size = self._placed()
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
        )

    def _finish_forward(self) -> None:
        output = self.graph.output
        if self.purpose == "predict":
            self.emit(None, Kind.STORE, x=self.value(output))
        elif self.purpose == "train":
            loss = {"sparse_categorical_crossentropy": Kind.CROSS_ENTROPY}[self.plan.loss]
            dx, _ = self.into(output)
            self.emit(None, loss, x=self.value(output), dx=dx)
        elif self.purpose == "pull_back":
            dx, _ = self.into(output)
            if dx >= 0:
                self.emit(None, Kind.SEED, backward=1, dx=dx)

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

    # The operations, forward beside backward.

    def load_forward(self, op: Operation) -> None:
        shape = self.graph.values[self.graph.input].shape
        geometry: dict[str, int] = {}
        scratch = -1
        if op.attributes["size"] is not None:
            geometry = self._geometry(shape, op.attributes["size"])
            scratch = self.scratch(padded(math.prod(n for n in shape if isinstance(n, int))))
        self.emit(
            op,
            Kind.LOAD,
            y=self.value(op.output),
            scratch=scratch,
            scale=op.attributes["scale"],
            offset=op.attributes["offset"],
            **geometry,
        )

    def load_backward(self, op: Operation) -> None:
        shape = self.graph.values[self.graph.input].shape
        size = op.attributes["size"]
        geometry = {} if size is None else self._geometry(shape, size)
        self.emit(
            op,
            Kind.STORE,
            x=self.gradient(op.output),
            scale=op.attributes["scale"],
            **geometry,
        )

    def _geometry(self, shape: tuple[object, ...], size: tuple[int, int]) -> dict[str, int]:
        height, width, *channels = (n for n in shape if isinstance(n, int))
        return {
            "height": height,
            "across_image": width,
            "depth": math.prod(channels),
            "down": size[0],
            "across": size[1],
        }

    def linear_forward(self, op: Operation) -> None:
        function = Function[op.attributes.get("function", "none").upper()]
        before = -1
        if function is Function.GELU and self.backwards:
            before = self._for_value(op.output, self.before_buffers)
        self.emit(
            op,
            Kind.LINEAR,
            x=self.value(op.inputs[0]),
            y=self.value(op.output),
            before=before,
            weight=self.block(op, "weight"),
            bias=self.block(op, "bias"),
            table=self.block(op, "table"),
            function=function,
        )

    def linear_backward(self, op: Operation) -> None:
        function = Function[op.attributes.get("function", "none").upper()]
        if op.output in self.masked:
            function = Function.NONE
        source = op.inputs[0]
        table = self.block(op, "table")
        if table >= 0 and not self.storage.blocks[table].trained:
            table = -1
        mask = self._mask(op, source)
        dx, accumulate = self.into(source)
        weight = self.block(op, "weight")
        if dx >= 0:
            self.transposed.add(weight)
        self.emit(
            op,
            Kind.LINEAR,
            backward=1,
            x=self.value(source),
            y=self.value(op.output) if function is Function.RELU else -1,
            before=self.before_buffers.get(op.output, -1) if function is Function.GELU else -1,
            dx=dx,
            dy=self.gradient(op.output),
            accumulate_x=accumulate,
            mask=mask,
            weight=weight,
            bias=self.block(op, "bias"),
            table=table,
            function=function,
        )

    def _mask(self, reader: Operation, source: str) -> int:
        """Where `source` is a relu and `reader` the last to add to its gradient, it is cut here.

        Backward goes from the last operation to the first: the first reader is the last to add.
        """
        producer = self.graph.producers.get(source)
        relu = producer is not None and producer.attributes.get("function") == "relu"
        if not relu or source == self.graph.output or self.graph.readers[source][0] is not reader:
            return -1
        self.masked.add(source)
        return self.value(source)

    def position_forward(self, op: Operation) -> None:
        x, y = self.value(op.inputs[0]), self.value(op.output)
        self.emit(op, Kind.POSITION, x=x, y=y, table=self.block(op, "table"))

    def position_backward(self, op: Operation) -> None:
        if "table" in op.parameters:
            dy, table = self.gradient(op.output), self.block(op, "table")
            self.emit(op, Kind.POSITION, backward=1, dy=dy, table=table)
        self._pass_on(op, op.inputs[0])

    def attention_forward(self, op: Operation) -> None:
        query, key, value = op.inputs
        heads = op.attributes["heads"]
        most_queries, most_keys = (
            self.axes[self.axis(_rows(self.graph, name))].most for name in (query, key)
        )
        keeps = self.purpose != "predict"
        # The native side takes a width above 1 to say that every head's weights are kept.
        kept = self.group * heads if keeps else 1
        probabilities = self.region(
            0, 2 if keeps else 1, 1, kept * most_queries * padded(most_keys)
        )
        values = {"x": self.value(query), "z": self.value(key), "v": self.value(value)}
        shared = {
            "probabilities": probabilities,
            "heads": heads,
            "scale": op.attributes["scale"],
        }
        scratch = self.scratch(self._attention_scratch(op, most_queries, most_keys))
        self.attention_instructions[op.output] = self.emit(
            op, Kind.ATTENTION, **values, y=self.value(op.output), scratch=scratch, **shared
        )
        if self.purpose == "weights":
            slot = sum(i.kind is Kind.STORE_WEIGHTS for i in self.instructions)
            self.emit(op, Kind.STORE_WEIGHTS, **values, slot=slot, **shared)

    def _attention_scratch(self, op: Operation, most_queries: int, most_keys: int) -> int:
        """Room for a transposed operand beside rows of dP, or for one head's result."""
        heads = op.attributes["heads"]
        width = padded(max(self.graph.values[name].width // heads for name in op.inputs))
        whole_tiles = -(-most_keys // KEY_TILE) * KEY_TILE
        turned = width * whole_tiles + TILE_ROWS * padded(most_keys)
        return max(turned, max(most_queries, most_keys) * width)

    def attention_backward(self, op: Operation) -> None:
        query, key, value = op.inputs
        # In the order in which the kernel writes them: the same value may be key and value.
        (dv, add_v), (dx, add_x), (dz, add_z) = (self.into(n) for n in (value, query, key))
        forward = self.attention_instructions[op.output]
        self.emit(
            op,
            Kind.ATTENTION,
            backward=1,
            x=forward.x,
            z=forward.z,
            v=forward.v,
            dx=dx,
            dz=dz,
            dv=dv,
            dy=self.gradient(op.output),
            accumulate_x=add_x,
            accumulate_z=add_z,
            accumulate_v=add_v,
            probabilities=forward.probabilities,
            scratch=self.scratch(self.regions[forward.scratch].floats),
            heads=forward.heads,
            scale=forward.scale,
        )

    def normalize_forward(self, op: Operation) -> None:
        self.emit(op, Kind.NORMALIZE, y=self.value(op.output), **self._normalize(op))

    def normalize_backward(self, op: Operation) -> None:
        shared = self._normalize(op)
        dx, accumulate = self.into(op.inputs[0])
        dy = self.gradient(op.output)
        self.emit(op, Kind.NORMALIZE, backward=1, dx=dx, dy=dy, accumulate_x=accumulate, **shared)

    def _normalize(self, op: Operation) -> dict[str, float]:
        return {
            "x": self.value(op.inputs[0]),
            "gain": self.block(op, "gain"),
            "shift": self.block(op, "shift"),
            "offset": op.attributes["epsilon"],
        }

    def activation_forward(self, op: Operation) -> None:
        function = Function[op.attributes["function"].upper()]
        x, y = self.value(op.inputs[0]), self.value(op.output)
        self.emit(op, Kind.ACTIVATION, x=x, y=y, function=function)

    def activation_backward(self, op: Operation) -> None:
        function = Function[op.attributes["function"].upper()]
        kept = (
            {"y": self.value(op.output)}
            if function is Function.RELU
            else {"x": self.value(op.inputs[0])}
        )
        self._unary_backward(op, Kind.ACTIVATION, function=function, **kept)

    def add_forward(self, op: Operation) -> None:
        x, z = (self.value(name) for name in op.inputs)
        self.emit(op, Kind.ADD, x=x, z=z, y=self.value(op.output))

    def add_backward(self, op: Operation) -> None:
        left, right = op.inputs
        dx, accumulate = self.into(left)
        if dx >= 0:
            dy = self.gradient(op.output)
            self.emit(op, Kind.COPY, backward=1, dx=dx, dy=dy, accumulate_x=accumulate)
        self._pass_on(op, right)

    def _pass_on(self, op: Operation, source: str) -> None:
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
        self.emit(op, Kind.COPY, backward=1, dx=dx, dy=dy, accumulate_x=accumulate)

    def pool_forward(self, op: Operation) -> None:
        self.emit(op, Kind.POOL, x=self.value(op.inputs[0]), y=self.value(op.output))

    def pool_backward(self, op: Operation) -> None:
        mask = self._mask(op, op.inputs[0])
        self._unary_backward(op, Kind.POOL, mask=mask)

    def reshape_forward(self, op: Operation) -> None:
        self.emit(op, Kind.RESHAPE, x=self.value(op.inputs[0]), y=self.value(op.output))

    def reshape_backward(self, op: Operation) -> None:
        self._unary_backward(op, Kind.RESHAPE)

    def rescale_forward(self, op: Operation) -> None:
        x, y = self.value(op.inputs[0]), self.value(op.output)
        scale, offset = op.attributes["scale"], op.attributes["offset"]
        self.emit(op, Kind.RESCALE, x=x, y=y, scale=scale, offset=offset)

    def rescale_backward(self, op: Operation) -> None:
        self._unary_backward(op, Kind.RESCALE, scale=op.attributes["scale"])

    def unfold_forward(self, op: Operation) -> None:
        x, y = self.value(op.inputs[0]), self.value(op.output)
        shape = self.graph.values[op.inputs[0]].shape
        self.emit(op, Kind.UNFOLD, x=x, y=y, **self._geometry(shape, op.attributes["size"]))

    def unfold_backward(self, op: Operation) -> None:
        shape = self.graph.values[op.inputs[0]].shape
        self._unary_backward(op, Kind.UNFOLD, **self._geometry(shape, op.attributes["size"]))

    def _unary_backward(self, op: Operation, kind: Kind, **values: object) -> None:
        dx, accumulate = self.into(op.inputs[0])
        if dx < 0:
            return
        dy = self.gradient(op.output)
        self.emit(op, kind, backward=1, dx=dx, dy=dy, accumulate_x=accumulate, **values)
