"""Going on: the plan of a call that brings new tokens alone, and what earlier calls left for it.

    plan                            continuing(plan)
    ids, all of a sequence          ids, those that are new       axis `continued`
    attention(q, k, v)              attention(q, k, v)            k and v: the rows of all calls
    cross(q, k, v of a source)      cross(q, k, v of a source)    k and v: made by the first call
    scores of every token           scores of the last token

The operations are the same. A row of a continued axis stands behind those of earlier calls, which
matters to primitives that are `PLACED`. Attention sees all rows of its keys and values so far:
these are the plan's states. Operations that the new tokens do not reach run once, where a sequence
begins; what attention wants of them is a state too, which does not grow.

So a network can go on where each token follows from itself and from those before it. Whatever
looks ahead, or makes one row of several, has no such plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from undivided.plan.plan import Input, Operation, Plan, Ragged, Value
from undivided.plan.primitives import PRIMITIVES
from undivided.plan.primitives.attention import looks_back

__all__ = ["continuing", "reached", "states_of"]


def continuing(plan: Plan) -> Plan | None:
    """The plan that goes on with sequences of the last input; None where there is no such plan."""
    given = plan.inputs[-1]
    axis = given.shape[0]
    if not isinstance(axis, Ragged) or plan.output.shape[:1] != (axis,):
        return None
    new = replace(axis, continued=True)
    values = {name: _on(value, axis, new) for name, value in plan.values.items()}
    new_rows = reached(plan.operations, given.name)
    for op in plan.operations:
        if op.output in new_rows and not _goes_on(op, new_rows, values):
            return None
    if plan.output.name not in new_rows:
        return None
    last = Value(f"{plan.output.name}.last", plan.output.shape[1:])
    pick = Operation("pick", (plan.output.name,), last.name, "", {}, {"index": -1})
    values[last.name] = last
    inputs = [values[entry.name] for entry in plan.inputs]
    return replace(
        plan,
        inputs=tuple(entry for entry in inputs if isinstance(entry, Input)),
        output=last,
        values=values,
        operations=(*plan.operations, pick),
        states=states_of(plan.operations, values, new_rows),
    )


def reached(operations: Iterable[Operation], name: str) -> set[str]:
    """The value of that name, and all that are made with its help."""
    names = {name}
    for op in operations:
        if not names.isdisjoint(op.inputs):
            names.add(op.output)
    return names


def states_of(
    operations: Iterable[Operation], values: Mapping[str, Value], new_rows: set[str]
) -> dict[str, Value]:
    """The keys and values that attention of new rows keeps, by name."""
    looking = (op for op in operations if op.kind == "attention" and op.output in new_rows)
    return {name: values[name] for op in looking for name in op.inputs[1:]}


def _goes_on(op: Operation, new_rows: set[str], values: Mapping[str, Value]) -> bool:
    """Whether new rows give new rows, and nothing besides states is needed for them."""
    rows = {values[name].shape[:1] for name in (op.inputs[0], op.output)}
    if len(rows) > 1 or len(values[op.output].shape) != 2:
        return False
    if op.kind != "attention":
        return getattr(PRIMITIVES[op.kind], "BY_ROW", False) and new_rows.issuperset(op.inputs)
    query, key, value = (name in new_rows for name in op.inputs)
    return query and key == value and (looks_back(op) or not key)


def _on(value: Value, axis: Ragged, new: Ragged) -> Value:
    """A value whose axis is the continued one, where it had that axis."""
    return replace(value, shape=tuple(new if extent == axis else extent for extent in value.shape))
