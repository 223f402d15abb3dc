"""Does a network fit into a microcontroller, to predict there and to learn there? And what to
shrink when it does not: said before anything is trained, from the plan alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from undivided.export.calls import check_exportable
from undivided.export.memory import numbers_in
from undivided.export.source import Program
from undivided.export.targets import Target
from undivided.plan.plan import Operation, Plan, Shape, show_shape
from undivided.plan.schedule.arena import Lifetime, place

__all__ = ["Fit", "fit", "fit_json", "fit_page"]

FLOAT = 4
NAMED = 3
"""How many of the largest things are named where something does not fit."""


@dataclass(frozen=True)
class Fit:
    """The bytes of a use (to predict, to learn), and what is largest in them."""

    use: str
    flash: Mapping[str, int]
    ram: Mapping[str, int]
    advice: tuple[str, ...]
    target: Target

    @property
    def flash_bytes(self) -> int:
        return sum(self.flash.values())

    @property
    def ram_bytes(self) -> int:
        return sum(self.ram.values())

    @property
    def fits(self) -> bool:
        return self.flash_bytes <= self.target.flash and self.ram_bytes <= self.target.ram


def fit(plan: Plan, target: Target) -> tuple[Fit, Fit]:
    """What predicting takes on a target, as `undivided export c` prints it, and what learning
    takes, one sample at a time."""
    check_exportable(plan)
    return _predicting(plan, target), _learning(plan, target)


def _predicting(plan: Plan, target: Target) -> Fit:
    program = Program(plan, {}, "undivided")
    flash = {"weights": program.weight_bytes}
    ends = (program.input_floats + program.output_floats) * FLOAT
    ram = {"arena": program.arena_bytes, "input and scores": ends}
    advice = []
    if sum(flash.values()) > target.flash:
        weights = {c.name: (c.shape, c.bytes) for c in program.constants}
        advice.append(f"The largest weights are {_largest(weights)}. {_NARROW}")
    if sum(ram.values()) > target.ram:
        during, live = program.memory.peak
        shapes = {name: value.shape for name, value in plan.values.items()}
        values = {name: (shapes.get(name, ()), floats * FLOAT) for name, floats in live}
        advice.append(f"The arena is fullest at {during}: {_largest(values)}. {_SHRINK}")
    return Fit("to predict", flash, ram, tuple(advice), target)


def _learning(plan: Plan, target: Target) -> Fit:
    parameters = plan.parameter_count * FLOAT
    slots = len(plan.optimizer.kept())
    ram = {
        "weights": parameters,
        "gradients": parameters,
        "optimizer": slots * parameters,
        "arena": _learning_floats(plan) * FLOAT,
        "input": numbers_in(plan.input.shape) * FLOAT,
    }
    advice = []
    if (missing := sum(ram.values()) - target.ram) > 0:
        if slots:
            saved = f"SGD() without momentum keeps nothing and saves {slots * parameters:,} bytes"
            enough = "that is enough" if slots * parameters >= missing else "that is not enough"
            advice.append(f"{plan.optimizer.keyword} is costly: {saved}; {enough}.")
        if ram["arena"] > missing or ram["arena"] >= parameters:
            values = {
                name: (value.shape, numbers_in(value.shape) * FLOAT)
                for name, value in plan.values.items()
            }
            advice.append(f"The largest values are {_largest(values)}. {_SHRINK}")
        if 2 * parameters > ram["arena"]:
            sizes = {
                name: (each.shape, numbers_in(each.shape) * FLOAT)
                for name, each in plan.parameters.items()
            }
            advice.append(f"The largest weights are {_largest(sizes)}. {_NARROW}")
    return Fit("to learn there", {}, ram, tuple(advice), target)


_NARROW = "Make those layers narrower."
_SHRINK = "Fewer tokens (larger patches) or narrower layers make them smaller."


Sizes = Mapping[str, tuple[Shape, int]]
"""Name → shape and bytes."""


def _largest(sizes: Sizes) -> str:
    """`a (49, 16) with 3,136 bytes, …`, the largest first."""
    ordered = sorted(sizes.items(), key=lambda entry: -entry[1][1])[:NAMED]
    return ", ".join(
        f"{name} {show_shape(shape)} with {size:,} bytes"
        if shape
        else f"{name} with {size:,} bytes"
        for name, (shape, size) in ordered
    )


READ_BACKWARD = {
    "linear": True,
    "attention": True,
    "linear_attention": True,
    "normalize": True,
    "rms_normalize": True,
    "activation": True,
    "softmax": True,
    "multiply": True,
    "rescale": False,
    "unfold": False,
    "position": False,
    "add": False,
    "pool": False,
    "reshape": False,
    "dropout": False,
    "embed": True,
    "rotary": False,
    "windows": False,
    "max_pool": True,
    "permute": False,
    "pick": False,
    "learned": False,
    "concatenate": False,
}
"""Whether an operation's backward pass reads what went in; if not, nothing need be kept for it."""


def _learning_floats(plan: Plan) -> int:
    """The arena for a sample forward and back: values kept for backward, gradients, and the
    weights of attention, of which linear attention keeps the sums. Step i is operation i forward,
    step end − i its way back."""
    end = 2 * len(plan.operations)
    learned: set[str] = set()
    for op in plan.operations:
        if op.parameters or learned.intersection(op.inputs):
            learned.add(op.output)
    producers = {op.output: i for i, op in enumerate(plan.operations)}
    readers: dict[str, list[int]] = {name: [] for name in plan.values}
    for i, op in enumerate(plan.operations):
        for name in op.inputs:
            readers[name].append(i)
    lifetimes = []
    for name, first in producers.items():
        floats = numbers_in(plan.values[name].shape)
        last = max(readers[name], default=first)
        back = [i for i in readers[name] if _kept(plan.operations[i], learned)]
        lifetimes.append(Lifetime(floats, first, max([last, *(end - i for i in back)])))
        if name in learned:
            lifetimes.append(Lifetime(floats, end - last, end - first))
    for i, op in enumerate(plan.operations):
        if op in plan.attentions:
            queries, keys = (numbers_in(plan.values[n].shape[:-1]) for n in op.inputs[:2])
            weights = op.attributes["heads"] * queries * (keys if op.kind == "attention" else 1)
            lifetimes.append(Lifetime(weights, i, end - i))
    return place(lifetimes, alignment=1)[1]


def _kept(op: Operation, learned: set[str]) -> bool:
    return READ_BACKWARD.get(op.kind, True) and op.output in learned


# As text and as plain data.


def fit_page(plan: Plan, target: Target) -> str:
    """Both uses as a table, each with its verdict."""
    lines = [f"On {target.name} ({target.what}: {_size(target.ram)} of RAM, "]
    lines[0] += f"{_size(target.flash)} of flash), in float32, one sample at a time:"
    for use in fit(plan, target):
        rows = [(part, "flash", size) for part, size in use.flash.items()]
        rows += [(part, "RAM", size) for part, size in use.ram.items()]
        lines += ["", f"{use.use:<36}{'bytes':>14}", "─" * 50]
        lines += [f"{part:<30}{where:<6}{size:>14,}" for part, where, size in rows]
        lines.append(_verdict(use))
        lines += [f"  {sentence}" for sentence in use.advice]
    lines += ["", "The program's code comes on top: a few KB of flash and a few hundred bytes of"]
    lines[-1] += " stack."
    return "\n".join(lines)


def _verdict(use: Fit) -> str:
    shares = []
    for word, taken, there in (
        ("flash", use.flash_bytes, use.target.flash),
        ("RAM", use.ram_bytes, use.target.ram),
    ):
        if taken:
            share = 100 * taken / there
            shares.append(f"{share:,.{0 if share > 99.95 else 1}f} % of the {word}")
    return f"{'Fits' if use.fits else 'Does NOT fit'}: {' and '.join(shares)}."


def fit_json(plan: Plan, target: Target) -> dict[str, Any]:
    uses = {}
    for key, use in zip(("predict", "learn"), fit(plan, target), strict=True):
        uses[key] = {
            "flash": dict(use.flash),
            "ram": dict(use.ram),
            "fits": use.fits,
            "advice": list(use.advice),
        }
    return {"name": target.name, "ram": target.ram, "flash": target.flash, **uses}


def _size(size: int) -> str:
    return f"{size >> 20} MB" if size % (1 << 20) == 0 else f"{size >> 10} KB"
