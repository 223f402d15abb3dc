"""How each primitive of a plan is written in C: one call of the function in `primitives/`.

A new primitive is a file there and an entry in `PRIMITIVES` here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
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
    "is_renamed",
    "number",
    "scratch_of",
]

FOLDER = Path(__file__).parent / "primitives"


Parameters = Mapping[str, np.ndarray]
"""The numbers of a model, by the plan's names."""


@dataclass(frozen=True)
class Constant:
    """Numbers that are part of the program: a parameter by its name in the plan, or a table that
    is made when it is printed. Tables of truth values are bytes."""

    name: str
    shape: tuple[int, ...]
    table: Callable[[Parameters], np.ndarray] | None = None
    type: str = "float"

    @property
    def bytes(self) -> int:
        return numbers_in(self.shape) * (4 if self.type == "float" else 1)

    def numbers(self, parameters: Parameters) -> np.ndarray:
        """In row order, as they are printed."""
        values = parameters[self.name] if self.table is None else self.table(parameters)
        return np.asarray(values, np.float32 if self.type == "float" else np.uint8).reshape(-1)


@dataclass(frozen=True)
class Scratch:
    """The room that a call has for itself."""


Argument = Value | Constant | Scratch | str | dict[str, Any]
"""What stands in a call: a value, weights, its scratch, a number or function as text, or what a
`struct rules` says, by field."""


@dataclass(frozen=True)
class Call:
    """`function(arguments)`; the last argument is where the result goes."""

    function: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Primitive:
    """How one kind of operation is written, which attributes its C function knows, which inputs
    the result may be written over, how many floats of scratch it needs, and whether it only gives
    its input another name."""

    call: Callable[[Operation, Plan], Call]
    attributes: tuple[str, ...] = ()
    over: Callable[[Operation, Plan], tuple[int, ...]] = lambda op, plan: ()
    scratch: Callable[[Operation, Plan], int] = lambda op, plan: 0
    same: bool = False


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
    function = "linear_turned" if op.attributes.get("turned") else "linear"
    return Call(function, (x, _constant(op, plan, "weight"), bias, *sizes, y))


def position(op: Operation, plan: Plan) -> Call:
    from undivided.engines.reference.position import sinusoidal_table

    x, y = _values(op, plan)
    if "table" in op.parameters:
        table = _constant(op, plan, "table")
    else:
        shape = numbers_in(x.shape[:-1]), x.width
        table = Constant(f"{op.layer}.table", shape, lambda _: sinusoidal_table(*shape))
    return Call("position", (x, table, _count(y), y))


def attention(op: Operation, plan: Plan) -> Call:
    query, key, value, y = _values(op, plan)
    heads, scale = op.attributes["heads"], number(op.attributes["scale"])
    widths = (str(query.width // heads), str(y.width // heads))
    before = (query, key, value, scale, _rows(query), _rows(key), str(heads), *widths)
    if rules := _rules(op, plan):
        return Call("attention_by_rules", (*before, rules, Scratch(), y))
    return Call("attention", (*before, Scratch(), y))


def _rules(op: Operation, plan: Plan) -> dict[str, Any]:
    """The fields of C's `struct rules`; none where the layer says nothing of the kind."""
    given = op.attributes
    query, key = (plan.values[name] for name in op.inputs[:2])
    queries, keys = (numbers_in(value.shape[:-1]) for value in (query, key))
    left, right = (n if n not in (None, -1) else keys - 1 for n in given.get("window") or (-1, -1))
    rules: dict[str, Any] = {}
    if given.get("softcap"):
        rules["softcap"] = number(given["softcap"])
    if given.get("alibi") or "relative" in op.parameters:
        shape = (given["heads"], queries + keys - 1)
        table = partial(_by_distance, op, queries, keys)
        rules["by_distance"] = Constant(f"{op.output}.by_distance", shape, table)
    if (pattern := given.get("pattern")) is not None:
        rules["allowed"] = Constant(
            f"{op.output}.allowed",
            (queries, keys),
            lambda _: pattern.to_array(queries, keys),
            "unsigned char",
        )
    alike = given.get("key_heads") in (None, given["heads"])
    if not rules and alike and not given.get("causal") and given.get("window") is None:
        return {}
    return {
        "key_heads": str(given.get("key_heads") or given["heads"]),
        "before": str(left),
        "after": "0" if given.get("causal") else str(right),
        **rules,
    }


def _by_distance(op: Operation, queries: int, keys: int, parameters: Parameters) -> np.ndarray:
    """What the definition adds to scores, a row for each head: it depends on key − query alone."""
    from undivided.engines.reference.attention import options_of

    heads = op.attributes["heads"]
    q, k = np.zeros((1, heads, queries, 1)), np.zeros((1, heads, keys, 1))
    relative = parameters[op.parameters["relative"]] if "relative" in op.parameters else None
    bias = options_of(q, k, relative, **op.attributes)["bias"].reshape(heads, queries, keys)
    distance = np.arange(1 - queries, keys)
    row = np.maximum(-distance, 0)  # the first query that has a key so far away
    return bias[:, row, row + distance]


def linear_attention(op: Operation, plan: Plan) -> Call:
    query, key, value, y = _values(op, plan)
    heads, key_heads, width, value_width = _heads(op, plan)
    sizes = (_rows(query), _rows(key), *map(str, (heads, key_heads, width, value_width)))
    causal = str(int(op.attributes.get("causal", False)))
    return Call("linear_attention", (query, key, value, *sizes, causal, Scratch(), y))


def _state(op: Operation, plan: Plan) -> int:
    """A head's sums, and one query's features."""
    _, _, width, value_width = _heads(op, plan)
    return width * (value_width + 2)


def _heads(op: Operation, plan: Plan) -> tuple[int, int, int, int]:
    """Heads of queries, heads of keys, and the widths of a key and of a value."""
    query, _, _, y = _values(op, plan)
    heads = op.attributes["heads"]
    return heads, op.attributes.get("key_heads", heads), query.width // heads, y.width // heads


def embed(op: Operation, plan: Plan) -> Call:
    ids, y = _values(op, plan)
    table = _constant(op, plan, "table")
    return Call("embed", (ids, table, _count(ids), *map(str, table.shape), y))


def rotary(op: Operation, plan: Plan) -> Call:
    from undivided.engines.reference.rotary import angles

    x, y = _values(op, plan)
    rows, heads = numbers_in(x.shape[:-1]), op.attributes["heads"]
    width = x.width // heads

    def turns(_: Parameters) -> np.ndarray:
        angle = angles(rows, width, op.attributes["base"])
        return np.stack([np.cos(angle), np.sin(angle)], axis=-1)

    table = Constant(f"{op.output}.turns", (rows, width // 2 * 2), turns)
    return Call("rotary", (x, table, str(rows), str(heads), str(width), y))


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


def windows(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    return Call("windows", (x, *_windows(op, x, y), y))


def max_pool(op: Operation, plan: Plan) -> Call:
    """Over all tokens, or over windows of a picture."""
    x, y = _values(op, plan)
    if op.attributes.get("size") is None:
        return Call("max_pool", (x, _rows(x), str(x.width), y))
    return Call("max_windows", (x, *_windows(op, x, y), y))


def _windows(op: Operation, x: Value, y: Value) -> tuple[str, ...]:
    """The picture, a window, where windows begin, and how many there are."""
    height, width, *channels = (n for n in x.shape if isinstance(n, int))
    (above, _), (left, _) = op.attributes["pads"]
    picture = (height, width, math.prod(channels))
    given = (*op.attributes["size"], *op.attributes["strides"], above, left)
    return tuple(map(str, (*picture, *given, *y.shape[:2])))


def permute(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    axes = op.attributes["axes"]
    strides = [numbers_in(x.shape[axis + 1 :]) for axis in axes]
    arrays = (f"(const int[]){{{', '.join(map(str, each))}}}" for each in (y.shape, strides))
    return Call("permute", (x, str(len(axes)), *arrays, _count(y), y))


def pick(op: Operation, plan: Plan) -> Call:
    x, y = _values(op, plan)
    return Call("pick", (x, str(op.attributes["index"]), str(x.width), y))


def learned(op: Operation, plan: Plan) -> Call:
    *_, y = _values(op, plan)
    return Call("copy", (_constant(op, plan, "table"), _count(y), y))


def concatenate(op: Operation, plan: Plan) -> Call:
    a, b, y = _values(op, plan)
    return Call("concatenate", (a, _count(a), b, _count(b), y))


def renamed(op: Operation, plan: Plan) -> Call:
    """reshape and dropout: the same numbers have another name."""
    return Call("", _values(op, plan))


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
    "linear": Primitive(linear, ("turned",)),
    "embed": Primitive(embed),
    "rotary": Primitive(rotary, ("heads", "base"), over=_first),
    "position": Primitive(position, over=_first),
    "attention": Primitive(
        attention,
        (
            *("heads", "scale", "key_heads", "causal", "window", "softcap", "pattern"),
            *("dropout", "number"),  # of training alone
            *("alibi", "buckets", "max_distance"),
        ),
        over=_over_query,
        scratch=lambda op, plan: numbers_in(plan.values[op.inputs[1]].shape[:-1]),
    ),
    "linear_attention": Primitive(
        linear_attention, ("heads", "key_heads", "causal"), over=_over_query, scratch=_state
    ),
    "normalize": Primitive(normalize, ("epsilon",), over=_first),
    "rms_normalize": Primitive(rms_normalize, ("epsilon",), over=_first),
    "activation": Primitive(activation, ("function",), over=_first),
    "softmax": Primitive(softmax, over=_first),
    "add": Primitive(pairwise, over=_both),
    "multiply": Primitive(pairwise, over=_both),
    "pool": Primitive(pool),
    "windows": Primitive(windows, ("size", "strides", "pads")),
    "max_pool": Primitive(max_pool, ("size", "strides", "pads")),
    "permute": Primitive(permute, ("axes",)),
    "pick": Primitive(pick, ("index",)),
    "learned": Primitive(learned),
    "concatenate": Primitive(concatenate),
    "reshape": Primitive(renamed, same=True),
    "dropout": Primitive(renamed, ("rate", "number"), same=True),
}
"""By the operation's kind. A reshape is no call, nor is what acts in training alone."""


def in_place(plan: Plan) -> Callable[[Operation], tuple[int, ...]]:
    return lambda op: PRIMITIVES[op.kind].over(op, plan)


def is_renamed(op: Operation) -> bool:
    return PRIMITIVES[op.kind].same


def scratch_of(plan: Plan) -> Callable[[Operation], int]:
    return lambda op: PRIMITIVES[op.kind].scratch(op, plan)


def check_exportable(plan: Plan) -> None:
    """Refuse what the C file cannot say, naming the layer and the reason."""
    if len(plan.inputs) > 1:
        raise ExportError(
            f"A C file takes one input; {plan.name} has {len(plan.inputs)}: "
            f"{', '.join(value.name for value in plan.inputs)}. Run the model in Python."
        )
    if plan.input.padding_id is not None:
        raise ExportError(
            f"A C file is for samples of one fixed size; those of {plan.name} are as long as they "
            f"have tokens other than the padding {plan.input.padding_id}. Train it without padding."
        )
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
