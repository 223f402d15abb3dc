"""How each primitive of a plan is written in C: one call of the function in `primitives/`.

A new primitive is a file there and an entry in `PRIMITIVES` here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from undivided.errors import ExportError
from undivided.export.memory import numbers_in
from undivided.plan.plan import Operation, Plan, Ragged, Value, show_shape

__all__ = [
    "PRIMITIVES",
    "Call",
    "Constant",
    "check_exportable",
    "functions_for",
    "in_place",
    "number",
    "scratch_of",
]

FOLDER = Path(__file__).parent / "primitives"


@dataclass(frozen=True)
class Constant:
    """Numbers that are part of the program: a parameter by its name in the plan, or a table."""

    name: str
    shape: tuple[int, ...]
    table: np.ndarray | None = None


@dataclass(frozen=True)
class Scratch:
    """The room that a call has for itself."""


Argument = Value | Constant | Scratch | str
"""What stands in a call: a value, weights, its scratch, or a number or function as text."""


@dataclass(frozen=True)
class Call:
    """`function(arguments)`; the last argument is where the result goes."""

    function: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Primitive:
    """How one kind of operation is written, which attributes its C function knows, which inputs
    the result may be written over, and how many floats of scratch it needs."""

    call: Callable[[Operation, Plan], Call]
    attributes: tuple[str, ...] = ()
    over: Callable[[Operation, Plan], tuple[int, ...]] = lambda op, plan: ()
    scratch: Callable[[Operation, Plan], int] = lambda op, plan: 0


def number(value: float) -> str:
    """A float as C writes it, in the fewest digits that are read back as the same float."""
    text = str(np.float32(value))
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _values(op: Operation, plan: Plan) -> tuple[Value, ...]:
    return tuple(plan.values[name] for name in (*op.inputs, op.output))


def _count(value: Value) -> str:
    return str(numbers_in(value.shape))


def _rows(value: Value) -> str:
    return str(numbers_in(value.shape[:-1]))


def _constant(op: Operation, plan: Plan, role: str) -> Constant:
    parameter = plan.parameters[op.parameters[role]]
    return Constant(parameter.name, parameter.shape)


def _first(op: Operation, plan: Plan) -> tuple[int, ...]:
    return (0,)


def _both(op: Operation, plan: Plan) -> tuple[int, ...]:
    return 0, 1


def rescale(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    scale, offset = (number(op.attributes[name]) for name in ("scale", "offset"))
    return Call("rescale", (x, scale, offset, _count(y), y))


def unfold(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    height, width, *channels = (n for n in x.shape if isinstance(n, int))
    down, across = op.attributes["size"]
    sizes = (height // down, width // across, down, across, math.prod(channels))
    return Call("unfold", (x, *map(str, sizes), y))


def linear(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    bias = _constant(op, plan, "bias") if "bias" in op.parameters else "0"
    sizes = (_rows(x), str(x.width), str(y.width))
    return Call("linear", (x, _constant(op, plan, "weight"), bias, *sizes, y))


def position(op: Operation, plan: Plan) -> Call:
    from undivided.engines.reference.position import sinusoidal_table

    x, y = _values(op, plan)
    if "table" in op.parameters:
        table = _constant(op, plan, "table")
    else:
        shape = numbers_in(x.shape[:-1]), x.width
        table = Constant(f"{op.layer}.table", shape, sinusoidal_table(*shape))
    return Call("position", (x, table, _count(y), y))


def attention(op: Operation, plan: Plan) -> Call:
    query, key, value, y = _values(op, plan)
    heads = op.attributes["heads"]
    sizes = (
        *(_rows(query), _rows(key), str(heads)),
        *(str(query.width // heads), str(value.width // heads)),
    )
    return Call(
        "attention",
        (query, key, value, number(op.attributes["scale"]), *sizes, Scratch(), y),
    )


def _over_query(op: Operation, plan: Plan) -> tuple[int, ...]:
    """A row of the result takes the place of its query, which nothing reads any more."""
    query, *_, y = _values(op, plan)
    return (0,) if query.shape == y.shape and op.inputs.count(op.inputs[0]) == 1 else ()


def normalize(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    weights = (_constant(op, plan, role) for role in ("gain", "shift"))
    epsilon = number(op.attributes["epsilon"])
    return Call("normalize", (x, *weights, epsilon, _rows(x), str(x.width), y))


def rms_normalize(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    epsilon = number(op.attributes["epsilon"])
    sizes = (_rows(x), str(x.width))
    return Call("rms_normalize", (x, _constant(op, plan, "gain"), epsilon, *sizes, y))


def activation(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    return Call("activate", (FUNCTIONS[op.attributes["function"]], x, _count(y), y))


def softmax(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    return Call("softmax", (x, _rows(x), str(x.width), y))


def pairwise(op: Operation, plan: Plan) -> Call:
    """add and multiply: two values of one shape."""
    a, b, y = _values(op, plan)
    return Call(op.kind, (a, b, _count(y), y))


def pool(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    return Call("pool", (x, _rows(x), str(x.width), y))


def reshape(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    return Call("", (x, y))


FUNCTIONS = {
    "relu": "relu",
    "leaky_relu": "leaky_relu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_tanh",
    "silu": "silu",
    "sigmoid": "sigmoid",
    "tanh": "hyperbolic_tangent",
}
"""Activation → its C function; tanh is the C library's own name."""

PRIMITIVES: Mapping[str, Primitive] = {
    "rescale": Primitive(rescale, ("scale", "offset"), over=_first),
    "unfold": Primitive(unfold, ("size",)),
    "linear": Primitive(linear),
    "position": Primitive(position, over=_first),
    "attention": Primitive(
        attention,
        ("heads", "scale"),
        over=_over_query,
        scratch=lambda op, plan: numbers_in(plan.values[op.inputs[1]].shape[:-1]),
    ),
    "normalize": Primitive(normalize, ("epsilon",), over=_first),
    "rms_normalize": Primitive(rms_normalize, ("epsilon",), over=_first),
    "activation": Primitive(activation, ("function",), over=_first),
    "softmax": Primitive(softmax, over=_first),
    "add": Primitive(pairwise, over=_both),
    "multiply": Primitive(pairwise, over=_both),
    "pool": Primitive(pool),
    "reshape": Primitive(reshape),
}
"""By the operation's kind. A reshape is no call: the same numbers have another name."""


def in_place(plan: Plan) -> Callable[[Operation], tuple[int, ...]]:
    return lambda op: PRIMITIVES[op.kind].over(op, plan)


def scratch_of(plan: Plan) -> Callable[[Operation], int]:
    return lambda op: PRIMITIVES[op.kind].scratch(op, plan)


def check_exportable(plan: Plan) -> None:
    """Refuse what the C file cannot say, naming the layer and the reason."""
    for value in plan.values.values():
        if any(isinstance(extent, Ragged) for extent in value.shape):
            raise ExportError(
                f"A C file is for samples of one fixed size; the input of {plan.name} is "
                f"{show_shape(plan.input.shape)}. Give it a length, such as input: (64, …)."
            )
    for op in plan.operations:
        if trouble := _trouble(op):
            raise ExportError(
                f"The layer {op.layer!r} cannot be exported to C: {trouble}. "
                "Leave it out, or run the model in Python."
            )


def _trouble(op: Operation) -> str:
    if op.kind not in PRIMITIVES:
        return f"there is no C function for its {op.kind} yet"
    off = (None, False)
    unknown = [
        name
        for name, value in op.attributes.items()
        if name not in PRIMITIVES[op.kind].attributes and not any(value is each for each in off)
    ]
    if unknown:
        return f"its {op.kind} has {_listed(unknown)}, which the C function does not know yet"
    if op.kind == "activation" and op.attributes["function"] not in FUNCTIONS:
        return f"there is no C function for {op.attributes['function']!r} yet"
    return ""


def _listed(names: list[Any]) -> str:
    return " and ".join(repr(name) for name in names)


@dataclass
class _Library:
    """The sources in `primitives/`, and which of them need which."""

    sources: dict[str, str] = field(default_factory=dict)

    def add(self, name: str) -> None:
        if name in self.sources:
            return
        source = (FOLDER / f"{name}.c").read_text(encoding="ascii")
        for path in sorted(FOLDER.glob("*.c")):
            if path.stem != name and re.search(rf"\b{path.stem}\(", source):
                self.add(path.stem)
        self.sources[name] = source


def functions_for(calls: list[Call]) -> dict[str, str]:
    """Name → source of every function that the calls need, each after those that it needs."""
    library = _Library()
    for call in calls:
        for name in (call.function, *(a for a in call.arguments if isinstance(a, str))):
            if name and name in (*FUNCTIONS.values(), call.function):
                library.add(name)
    return library.sources
