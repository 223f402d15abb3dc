"""A plan on its way to the native engine: the same operations, open to rewriting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from undivided.plan.plan import Operation, Plan, Value

__all__ = ["Graph", "graph_of"]


@dataclass(frozen=True)
class Graph:
    """Operations over values. `parts` are values that are columns of a wider one.

    `parts[name]` is (the wider value, the first column); the wider value pads each of its parts
    to whole vectors.
    """

    input: str
    output: str
    values: Mapping[str, Value]
    operations: tuple[Operation, ...]
    parts: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def consumers(self, name: str) -> list[Operation]:
        """The operations that read a value; the graph's own output is read by nobody."""
        return [op for op in self.operations if name in op.inputs]

    def producer(self, name: str) -> Operation | None:
        return next((op for op in self.operations if op.output == name), None)

    def only_consumer(self, name: str) -> Operation | None:
        """The one operation that reads a value which nothing else needs."""
        readers = self.consumers(name)
        if len(readers) == 1 and name != self.output and readers[0].inputs.count(name) == 1:
            return readers[0]
        return None

    def replacing(self, old: Iterable[Operation], new: Iterable[Operation]) -> Graph:
        """The graph with `new` standing where the last of `old` stood and `old` gone."""
        gone = {op.output for op in old}
        last = max(i for i, op in enumerate(self.operations) if op.output in gone)
        operations: list[Operation] = []
        for i, op in enumerate(self.operations):
            if i == last:
                operations.extend(new)
            elif op.output not in gone:
                operations.append(op)
        return replace(self, operations=tuple(operations))


def graph_of(plan: Plan) -> Graph:
    return Graph(plan.input.name, plan.output.name, dict(plan.values), plan.operations)
