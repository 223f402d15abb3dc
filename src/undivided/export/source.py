"""The text of the two files: a header that says what goes in and out, and the program.

The program is for a person to read from the top: what the network is, the primitives, the names
and shapes of the weights, the arena, the calls in the plan's order, and the numbers last.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from undivided._version import __version__
from undivided.export.calls import (
    PRIMITIVES,
    Argument,
    Call,
    Constant,
    Scratch,
    functions_for,
    in_place,
    is_renamed,
    number,
    scratch_of,
)
from undivided.export.memory import Memory, numbers_in, placed
from undivided.export.names import Names, in_comment
from undivided.plan.plan import Operation, Plan, Value, show_shape

__all__ = ["Program", "columns"]

FLOAT = 4
WIDTH = 100


@dataclass(frozen=True)
class Program:
    """A plan with its numbers, as C. `name` is what everything visible outside begins with."""

    plan: Plan
    parameters: Mapping[str, np.ndarray]
    name: str

    @cached_property
    def memory(self) -> Memory:
        return placed(self.plan, scratch_of(self.plan), in_place(self.plan), is_renamed)

    @cached_property
    def calls(self) -> list[tuple[Operation, Call]]:
        return [(op, PRIMITIVES[op.kind].call(op, self.plan)) for op in self.plan.operations]

    @cached_property
    def functions(self) -> dict[str, str]:
        calls = [call for _, call in self.calls if call.function]
        if self._output_is_input:
            calls.append(Call("copy", ()))
        return functions_for(calls)

    @cached_property
    def constants(self) -> list[Constant]:
        """The weights and tables, in the order in which they are used; each once."""
        found: dict[str, Constant] = {}
        for _, call in self.calls:
            for argument in call.arguments:
                parts = argument.values() if isinstance(argument, dict) else [argument]
                for part in parts:
                    if isinstance(part, Constant):
                        found.setdefault(part.name, part)
        return list(found.values())

    @property
    def arena_bytes(self) -> int:
        return self.memory.floats * FLOAT

    @property
    def weight_bytes(self) -> int:
        return sum(constant.bytes for constant in self.constants)

    @property
    def input_floats(self) -> int:
        return numbers_in(self.plan.input.shape)

    @property
    def output_floats(self) -> int:
        return numbers_in(self.plan.output.shape)

    @cached_property
    def names(self) -> Names:
        return Names(
            {*self.functions, f"{self.name}_predict", self.name, "input", "logits", "arena"}
        )

    @property
    def _output_is_input(self) -> bool:
        regions = self.memory.regions
        return regions[self.plan.output.name] == regions[self.plan.input.name]

    # The header.

    def header(self) -> str:
        plan, upper = self.plan, self.name.upper()
        sizes = [
            ("INPUTS", self.input_floats, f"{show_shape(plan.input.shape)}, in row order"),
            ("LOGITS", self.output_floats, f"{show_shape(plan.output.shape)}"),
            ("ARENA_BYTES", self.arena_bytes, "of RAM, in the arena"),
            ("WEIGHT_BYTES", self.weight_bytes, "of flash, beside the code"),
        ]
        names = [f"#define {upper}_{name} {value}" for name, value, _ in sizes]
        width = max(map(len, names))
        defines = "\n".join(
            f"{name:<{width}}  /* {meaning} */"
            for name, (_, _, meaning) in zip(names, sizes, strict=True)
        )
        return f"""\
/* {self._title()}. Printed by undivided {__version__}. */
#ifndef {upper}_H
#define {upper}_H

{defines}

#ifdef __cplusplus
extern "C" {{
#endif

/* The scores of one sample. `input` is read only; both arrays are the caller's. Not to be called
 * by two threads at once: they would share the arena. */
void {self.name}_predict(const float *input, float *logits);

#ifdef __cplusplus
}}
#endif

#endif
"""

    # The program.

    def source(self) -> str:
        parts = [
            self._introduction(),
            self._includes(),
            *(source.rstrip("\n") for source in self.functions.values()),
            self._weights_by_name(),
            self._arena(),
            self._predict(),
            *self._numbers(),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _title(self) -> str:
        shapes = f"{show_shape(self.plan.input.shape)} -> {show_shape(self.plan.output.shape)}"
        return f"{in_comment(self.plan.name)}: {shapes}"

    def _introduction(self) -> str:
        lines = [f"{self._title()}. Printed by undivided {__version__}.", ""]
        lines += _table(self._layers())
        lines += ["", f"The arena takes {self.arena_bytes:,} bytes of RAM, the weights"]
        lines[-1] += f" {self.weight_bytes:,} bytes of flash."
        lines += ["", *textwrap.wrap(_PROMISE, WIDTH - 4, break_on_hyphens=False)]
        return "/* " + "\n * ".join(lines).replace(" \n", "\n") + " */"

    def _layers(self) -> Iterator[tuple[str, str, str, str]]:
        yield "layer", "what it is", "gives", "weights"
        yield "input", "", show_shape(self.plan.input.shape), ""
        for name, kind in self.plan.layers:
            own = [op for op in self.plan.operations if op.layer == name]
            shape = show_shape(self.plan.values[own[-1].output].shape) if own else ""
            weights = sum(
                numbers_in(p.shape) for p in self.plan.parameters.values() if p.layer == name
            )
            yield in_comment(name, 40), in_comment(kind, 40), shape, f"{weights:,}"

    def _includes(self) -> str:
        used = "\n".join(self.functions.values())
        headers = {
            "<float.h>": ("FLT_MAX",),
            "<math.h>": ("sqrtf", "HUGE_VALF"),
            "<stdint.h>": ("uint32_t",),
        }
        lines = [f'#include "{self.name}.h"', ""]
        for header, words in headers.items():
            if found := [word for word in words if re.search(rf"\b{word}\b", used)]:
                lines.append(f"#include {header:<10} /* {', '.join(found)} */")
        lines += ["", "#if defined(__clang__)", "#pragma STDC FP_CONTRACT OFF", "#endif"]
        return "\n".join(lines).replace("\n\n\n", "\n\n")

    def _weights_by_name(self) -> str:
        if not self.constants:
            return ""
        lines = [f"{self._declared(constant)};" for constant in self.constants]
        width = max(map(len, lines))
        shown = [
            f"{line:<{width}}  /* {in_comment(constant.name, 60)} {show_shape(constant.shape)} */"
            for line, constant in zip(lines, self.constants, strict=True)
        ]
        return "\n".join(["/* The weights; their numbers are at the end of the file. */", *shown])

    def _declared(self, constant: Constant) -> str:
        size = numbers_in(constant.shape)
        return f"static const {constant.type} {self._weights_name(constant)}[{size}]"

    def _weights_name(self, constant: Constant) -> str:
        """A weight may have the name of the value that it becomes."""
        same = constant.name in self.plan.values
        return self.names[f"{constant.name}.weights" if same else constant.name]

    def _arena(self) -> str:
        if not self.memory.floats:
            return ""
        comment = "/* Where values are until nothing reads them; then others take their place. */"
        return f"{comment}\nstatic float arena[{self.memory.floats}];"

    def _predict(self) -> str:
        lines = [f"void {self.name}_predict(const float *input, float *logits)", "{"]
        if pointers := self._pointers():
            lines += [*pointers, ""]
        for op, call in self.calls:
            lines.append(f"    /* {self._meaning(op)} */")
            if call.function:
                lines += self._call(op, call)
            lines.append("")
        if self._output_is_input:
            lines += [f"    copy(input, {self.output_floats}, logits);", ""]
        lines[-1] = "}"
        return "\n".join(lines)

    def _pointers(self) -> list[str]:
        """A name for each value that is not the caller's: where it lies, and its shape."""
        rows = []
        calls = [call for _, call in self.calls if call.function]
        named = {a.name for call in calls for a in call.arguments if isinstance(a, Value)}
        for op in self.plan.operations:
            value = self.plan.values[op.output]
            region = self.memory.regions[value.name]
            if region in self.memory.offsets and value.name in named:
                at = self.memory.offsets[region]
                where = f"arena + {at}" if at else "arena"
                rows.append((f"float *const {self.names[value.name]} = {where};", value))
        width = max((len(text) for text, _ in rows), default=0)
        return [f"    {text:<{width}}  /* {show_shape(value.shape)} */" for text, value in rows]

    def _meaning(self, op: Operation) -> str:
        kind = dict(self.plan.layers).get(op.layer, op.kind)
        shapes = ", ".join(show_shape(self.plan.values[name].shape) for name in op.inputs)
        gives = show_shape(self.plan.values[op.output].shape)
        part = op.output.removeprefix(op.layer).lstrip(".")
        what = f"{kind}, {part}" if part else kind
        text = f"{op.layer}, {what}: {shapes} -> {gives}"
        if is_renamed(op):
            text += ", the same numbers"
        return in_comment(text)

    def _call(self, op: Operation, call: Call) -> list[str]:
        arguments = [self._argument(op, argument) for argument in call.arguments]
        start = f"    {call.function}("
        return textwrap.wrap(
            f"{call.function}({', '.join(arguments)});",
            WIDTH,
            initial_indent="    ",
            subsequent_indent=" " * len(start),
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _argument(self, op: Operation, argument: Argument) -> str:
        if isinstance(argument, dict):
            fields = (f".{field} = {self._argument(op, each)}" for field, each in argument.items())
            return f"(struct rules){{{', '.join(fields)}}}"
        if isinstance(argument, Value):
            return self._place(argument)
        if isinstance(argument, Constant):
            return self._weights_name(argument)
        if isinstance(argument, Scratch):
            at = self.memory.scratch[op.output]
            return f"arena + {at}" if at else "arena"
        return argument

    def _place(self, value: Value) -> str:
        region = self.memory.regions[value.name]
        if region == self.memory.regions[self.plan.input.name]:
            return "input"
        if region == self.memory.regions[self.plan.output.name]:
            return "logits"
        return self.names[value.name]

    def _numbers(self) -> Iterator[str]:
        for constant in self.constants:
            numbers = constant.numbers(self.parameters)
            yield f"{self._declared(constant)} = {{\n{columns(numbers)}\n}};"


_PROMISE = (
    "No memory is allocated, nothing recurses, and the arena is all that is kept. What is added "
    "is added in the order of this text, and each operation is rounded to float: the same input "
    "gives the same bits on every machine and at every level of optimization (GCC: -std=c99 or "
    "-ffp-contract=off). NaN and infinities go through as in any arithmetic."
)


def columns(values: np.ndarray) -> str:
    """Numbers separated by commas, as many as fit on a line."""
    words = [str(value) if values.dtype == np.uint8 else number(value) for value in values]
    widest = max(map(len, words))
    across = max(1, (WIDTH - 4) // (widest + 2))
    rows = (words[i : i + across] for i in range(0, len(words), across))
    return "\n".join("    " + ", ".join(f"{w:>{widest}}" for w in row) + "," for row in rows)


def _table(rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    last = len(widths) - 1
    return [
        "  ".join(
            cell.rjust(width) if i == last else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
