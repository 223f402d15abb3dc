"""A plan on its way to the native engine: the same operations, open to rewriting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from undivided.plan.plan import Operation, Parameter, Plan, Value

__all__ = ["Graph", "graph_of"]


@dataclass(frozen=True)
class Graph:
    """Operations over values. `parts` are values that are columns of a wider one.

    `parts[name]` is (the wider value, the first column); the wider value pads each of its parts
    to whole vectors.
    """

    inputs: tuple[str, ...]
    output: str
    values: Mapping[str, Value]
    operations: tuple[Operation, ...]
    parts: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    @cached_property
    def readers(self) -> Mapping[str, list[Operation]]:
        """Value → the operations that read it, in order."""
        readers: dict[str, list[Operation]] = {}
        for op in self.operations:
            for name in dict.fromkeys(op.inputs):
                readers.setdefault(name, []).append(op)
        return readers

    @cached_property
    def new_rows(self) -> set[str]:
        """What depends on the tokens of the last input, the new ones of a plan that goes on."""
        names = {self.inputs[-1]}
        for op in self.operations:
            if not names.isdisjoint(op.inputs):
                names.add(op.output)
                names |= {part for part, (wide, _) in self.parts.items() if wide == op.output}
        return names

    @cached_property
    def kept(self) -> list[Operation]:
        """The attention of a plan that goes on, whose keys and values are kept."""
        return [
            op for op in self.operations if op.kind == "attention" and op.output in self.new_rows
        ]

    @cached_property
    def producers(self) -> Mapping[str, Operation]:
        """Value → the operation that it comes from."""
        return {op.output: op for op in self.operations}

    def only_reader(self, name: str) -> Operation | None:
        """The one operation that reads a value which nothing else needs."""
        readers = self.readers.get(name, [])
        alone = len(readers) == 1 and name != self.output and readers[0].inputs.count(name) == 1
        return readers[0] if alone else None

    def replacing(self, instead: Mapping[str, Sequence[Operation]]) -> Graph:
        """The graph with other operations in place of those that give the values named."""
        operations = [new for op in self.operations for new in instead.get(op.output, (op,))]
        return replace(self, operations=tuple(operations))


def graph_of(plan: Plan) -> Graph:
    inputs = tuple(entry.name for entry in plan.inputs)
    values = dict(plan.values)
    return Graph(inputs, plan.output.name, values, plan.operations, parameters=plan.parameters)
