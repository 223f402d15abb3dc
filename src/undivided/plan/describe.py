"""What a network is and costs, for people (`describe`), programs (`describe_json`) and as a
picture (`graph`, in Mermaid)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from undivided.description import Description, arguments_of
from undivided.layers.base import Repeat
from undivided.network import Network
from undivided.plan.costs import (
    FLOAT,
    NOTHING,
    memory_of,
    operation_costs,
    recomputation_of,
    scheduled_costs,
)
from undivided.plan.plan import Plan, Ragged, show_shape, size_of
from undivided.plan.schedule import Schedule, schedule
from undivided.plan.schedule.graph import graph_of
from undivided.plan.schedule.rewrites import PASSES, padded

__all__ = ["describe", "describe_json", "graph"]

LENGTH = 64
"""The tokens that a ragged sample is taken to have where a number is wanted."""


def describe_json(network: Network, length: int = LENGTH) -> dict[str, Any]:
    """Everything that `describe` says, as plain data."""
    plan = network.plan()
    made = schedule(plan, length)
    batch = network.train.batch_size
    costs = operation_costs(plan, length)
    described = sum(costs.values(), NOTHING)
    layers = []
    for name, kind in plan.layers:
        if kind == Repeat.keyword:  # what it repeats is listed itself
            continue
        own = [op for op in plan.operations if op.layer == name]
        cost = sum((costs[op.output] for op in own), NOTHING)
        parameters = [p for p in plan.parameters.values() if p.layer == name]
        layers.append(
            {
                "name": name,
                "kind": kind,
                "shape": _plain(plan.values[own[-1].output].shape) if own else None,
                "parameters": sum(size_of(p.shape, length) for p in parameters),
                "multiply_adds": asdict(cost),
            }
        )
    return {
        "name": plan.name,
        "input": _plain(plan.input.shape),
        "inputs": [
            {"name": e.name, "shape": _plain(e.shape), "vocabulary": e.vocabulary}
            for e in plan.inputs
        ],
        "notes": list(plan.notes),
        "output": _plain(plan.output.shape),
        "loss": str(plan.loss),
        "optimizer": _in_full(network.optimizer),
        "layers": layers,
        "parameters": plan.parameter_count,
        "multiply_adds": {
            "as_described": asdict(described),
            "as_scheduled": asdict(scheduled_costs(made, length)),
        },
        "batch_size": batch,
        "ragged_length": length if _is_ragged(plan) else None,
        "bytes": asdict(memory_of(plan, batch, length)),
        "recompute": asdict(recomputation_of(plan, length)),
        "schedule": {
            "rewrites": _rewrites_used(plan),
            "samples_in_a_group": made.program("train").group,
            "samples_in_a_slice": made.slice_samples(batch),
            "vocabulary": _vocabulary_json(made),
        },
    }


def describe(network: Network, length: int = LENGTH) -> str:
    """Layers, shapes, parameters, multiply-adds and bytes, as a page of text."""
    facts = describe_json(network, length)
    rows = [
        (
            layer["name"],
            layer["kind"],
            _shown(layer["shape"]),
            f"{layer['parameters']:,}",
            f"{layer['multiply_adds']['forward']:,}",
        )
        for layer in facts["layers"]
    ]
    described = facts["multiply_adds"]["as_described"]
    scheduled = facts["multiply_adds"]["as_scheduled"]
    total = ("total", "", "", f"{facts['parameters']:,}", f"{described['forward']:,}")
    heading = ("layer", "what it is", "gives", "parameters", "multiply-adds")
    lines = [
        f"{facts['name']}: {_inputs(facts['inputs'])} → {_shown(facts['output'])}",
        f"loss {facts['loss']}, optimizer {facts['optimizer']}",
        "",
        *_table([heading, *rows, total], left=3),
        "",
        *_table(
            [
                ("multiply-adds of a sample", "forward", "backward"),
                ("as described", f"{described['forward']:,}", f"{described['backward']:,}"),
                ("as scheduled", f"{scheduled['forward']:,}", f"{scheduled['backward']:,}"),
            ],
            left=1,
        ),
        "",
        *_table(_memory_rows(facts), left=1),
        "",
        f"The native engine takes {_count(facts['schedule']['samples_in_a_group'], 'sample')} at a "
        f"time through all layers and cuts a batch of {facts['batch_size']} into slices of "
        f"{facts['schedule']['samples_in_a_slice']}.",
    ]
    lines += [f"  {name}: {idea}" for name, idea in facts["schedule"]["rewrites"].items()]
    lines += _recomputation(facts["recompute"]) + _vocabulary(facts["schedule"]["vocabulary"])
    if facts["notes"]:
        lines += ["", "As it was read:", *(f"  {note}." for note in facts["notes"])]
    if facts["ragged_length"]:
        lines += ["", f"Numbers are for samples of {facts['ragged_length']} tokens."]
    return "\n".join(lines)


def _recomputation(facts: dict[str, Any]) -> list[str]:
    """What keeping fewer values saves, or would."""
    without, again = facts["arena_training_without"], facts["arena_training_with"]
    if without == again:
        return []
    verb = "takes" if facts["set"] else "would take"
    return [
        f"With recompute: true a training thread's arena {verb} {again:,} bytes in place of "
        f"{without:,}, for {facts['multiply_adds']:,} more multiply-adds a sample."
    ]


def _vocabulary_json(made: Schedule) -> dict[str, int] | None:
    """The last layer's scores where they go with their loss, a few rows at a time."""
    program = made.program("train")
    for instruction in program.instructions:
        if instruction.kind == "vocabulary":
            axis = program.buffers[instruction.x].axis
            a_row = FLOAT * padded(instruction.depth)
            return {
                "scores": instruction.depth,
                "rows_at_a_time": instruction.down,
                "bytes": instruction.down * a_row,
                "bytes_as_a_whole": 2 * program.axes[axis].most * program.group * a_row,
            }
    return None


def _vocabulary(facts: dict[str, int] | None) -> list[str]:
    if facts is None:
        return []
    return [
        f"The last layer's {facts['scores']:,} scores of a row go with their loss, "
        f"{facts['rows_at_a_time']} rows at a time: {facts['bytes']:,} bytes of a training "
        f"thread's arena, where all scores and their gradients would be "
        f"{facts['bytes_as_a_whole']:,}."
    ]


def _inputs(inputs: list[dict[str, Any]]) -> str:
    """`(28, 28)`, `(128,) ids below 30,000`, or several with their names."""
    shown = []
    for entry in inputs:
        ids = "" if entry["vocabulary"] is None else f" ids below {entry['vocabulary']:,}"
        name = f"{entry['name']} " if len(inputs) > 1 else ""
        shown.append(f"{name}{_shown(entry['shape'])}{ids}")
    return ", ".join(shown)


def _memory_rows(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    memory, batch = facts["bytes"], facts["batch_size"]
    labels = {
        "parameters": "parameters, as stored",
        "derived": "their transposed copies, and fixed tables",
        "activations": f"activations of a batch of {batch}, as described",
        "arena_inference": "arena of a thread, inference",
        "arena_training": "arena of a thread, training",
        "gradients": f"gradients of a batch of {batch}, a copy a slice",
        "gradients_spare": "a spare copy for each of several threads",
        "gradients_stretch": "a stretch of a large table's, for each thread",
        "gradients_folded": "gradients of weights that are folded",
        "optimizer": "optimizer",
    }
    return [("memory", "bytes"), *((text, f"{memory[key]:,}") for key, text in labels.items())]


def _table(rows: list[tuple[str, ...]], left: int) -> list[str]:
    """Columns of text; the first `left` are flush left, the others right. A rule under row one."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "─" * max(len(line) for line in lines), *lines[1:]]


def _rewrites_used(plan: Plan) -> dict[str, str]:
    """The passes that changed something, with their idea in a sentence."""
    used, current = {}, graph_of(plan)
    for each in PASSES:
        after = each(current)
        if after.operations != current.operations:
            used[each.__name__] = (each.__doc__ or "").strip().splitlines()[0]
        current = after
    return used


def _in_full(description: Description) -> str:
    """A call with all its arguments, those left at their defaults too, but not what is not used."""
    arguments = (
        f"{field.name}={_in_full(value) if isinstance(value, Description) else value}"
        for field, _ in arguments_of(type(description))
        for value in [getattr(description, field.name)]
        if value is not None and value != ()
    )
    return f"{description.keyword}({', '.join(arguments)})"


def _is_ragged(plan: Plan) -> bool:
    return any(isinstance(n, Ragged) for value in plan.values.values() for n in value.shape)


def _plain(shape: Any) -> list[int | None]:
    return [None if isinstance(n, Ragged) else n for n in shape]


def _shown(shape: list[int | None] | None) -> str:
    if shape is None:
        return ""
    return show_shape(tuple(Ragged("") if n is None else n for n in shape))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def graph(network: Network) -> str:
    """The plan as a Mermaid flowchart: solid arrows forward, dotted arrows where gradients flow."""
    plan = network.plan()
    nodes = {entry.name: f"x{i}" for i, entry in enumerate(plan.inputs)}
    lines = ["flowchart TD"]
    for entry in plan.inputs:
        shape = show_shape(entry.shape)
        lines.append(f'  {nodes[entry.name]}(["{entry.name} {shape}"])')
    learned: set[str] = set()
    edges, gradients = [], []
    for i, op in enumerate(plan.operations, start=1):
        nodes[op.output] = f"n{i}"
        names = ", ".join(name.removeprefix(f"{op.layer}.") for name in op.parameters.values())
        label = f"{op.layer}<br/>{op.kind}" + (f" · {names}" if names else "")
        lines.append(f'  n{i}["{_escaped(label)}"]')
        if op.parameters or any(name in learned for name in op.inputs):
            learned.add(op.output)
        for name in op.inputs:
            shape = show_shape(plan.values[name].shape)
            edges.append(f'  {nodes[name]} -->|"{shape}"| n{i}')
            if name in learned:
                gradients.append(f'  n{i} -.->|"d {shape}"| {nodes[name]}')
    shape = show_shape(plan.output.shape)
    lines.append(f'  loss(["{_escaped(str(plan.loss))}"])')
    edges.append(f'  {nodes[plan.output.name]} -->|"{shape}"| loss')
    gradients.append(f'  loss -.->|"d {shape}"| {nodes[plan.output.name]}')
    return "\n".join([*lines, *edges, *gradients])


def _escaped(text: str) -> str:
    """Text that Mermaid shows as it stands; our own line break is kept."""
    parts = text.split("<br/>")
    table = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;"}
    return "<br/>".join("".join(table.get(c, c) for c in part) for part in parts)
