"""What a layer says of itself: one line, and a page with arguments, equation and example.

python -m undivided.layers.documentation > docs/layers.md
"""

from __future__ import annotations

import inspect

from undivided.description import Description, expectation
from undivided.language.printer import value_text
from undivided.language.signatures import required, signature
from undivided.layers.base import Layer

__all__ = ["example_of", "heading_of", "known_layers", "line_of", "markdown", "page_of"]


def known_layers() -> dict[str, type[Description]]:
    """The layers by name; without Repeat, which is written `Layer(…) * N`."""
    return {name: cls for name, cls in sorted(Layer.members.items()) if name != "Repeat"}


def line_of(cls: type[Description]) -> str:
    """The first sentence of its documentation, or of its first paragraph where that is none."""
    text = inspect.getdoc(cls) or ""
    if cls.__dict__.get("__doc__") is None or text.startswith(f"{cls.__name__}("):
        return ""  # what dataclass writes where nobody did
    paragraph = " ".join(text.split("\n\n")[0].split())
    end = paragraph.find(". ")
    return paragraph if end < 0 else paragraph[: end + 1]


def heading_of(cls: type[Description]) -> str:
    """`Dense(units, activation=None, bias=true)`, as a file has it."""
    given = []
    for name, (field, _) in signature(cls).items():
        if name != "name":
            given.append(name if required(field) else f"{name}={value_text(field.default)}")
    return f"{cls.keyword}({', '.join(given)})"


def example_of(cls: type[Description]) -> str:
    """A small network that has the layer in it; nothing where it gives none."""
    example: tuple[str, ...] = getattr(cls, "example", ())
    if not example:
        return ""
    shape, *layers = example
    lines = [f"network {cls.keyword}Example {{", f"  input: {shape}", "  layers:"]
    return "\n".join([*lines, *(f"    {layer}" for layer in layers), "}"])


def page_of(cls: type[Description]) -> str:
    """Everything there is to know of a layer, as plain text."""
    parts = [heading_of(cls)]
    if line_of(cls):
        parts.append(_indented(inspect.getdoc(cls) or ""))
    rows = _arguments(cls)
    width = max(len(name) for name, _, _ in rows)
    indent = " " * (width + 4)
    lines = [f"  {name.ljust(width)}  {kind}\n{indent}{doc}".rstrip() for name, kind, doc in rows]
    parts += ["Arguments:", "\n".join(lines)]
    if example_of(cls):
        parts += ["Example:", _indented(example_of(cls))]
    return "\n\n".join(parts)


def markdown() -> str:
    """docs/layers.md: the same for all layers."""
    layers = known_layers()
    parts = [
        "# Layers",
        "This page is made of the layers' own documentation by "
        "`python -m undivided.layers.documentation`; `undivided layers NAME` shows one of them, "
        "yours too (`--use`). `Layer(…) * N` is the same layer N times over, each time with "
        "parameters of its own.",
        "\n".join(
            f"- [{name}](#{name.lower()}): {line_of(cls)}".rstrip() for name, cls in layers.items()
        ),
    ]
    for name, cls in layers.items():
        parts += [f"## {name}", f"```text\n{heading_of(cls)}\n\n{inspect.getdoc(cls)}\n```"]
        table = ["| argument | must be | what it is |", "|---|---|---|"]
        for argument, kind, doc in _arguments(cls):
            table.append(f"| `{argument}` | {_cell(kind)} | {_cell(doc)} |")
        parts += ["\n".join(table), f"```neural\n{example_of(cls)}\n```"]
    return "\n\n".join(parts) + "\n"


def _arguments(cls: type[Description]) -> list[tuple[str, str, str]]:
    """(name, what it must be and its default, what it is) of each argument."""
    rows = []
    for name, (field, hint) in signature(cls).items():
        kind = expectation(field, hint)
        if not required(field):
            kind += f"; {value_text(field.default)} unless given"
        rows.append((name, kind, field.metadata.get("doc", "")))
    return rows


def _indented(text: str) -> str:
    return "\n".join(f"  {line}".rstrip() for line in text.splitlines())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(markdown(), end="")
