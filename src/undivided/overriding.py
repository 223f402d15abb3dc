"""`override`: anything in a network replaced by its path, checked as in a file.

override(network, {"layers.3.num_heads": 4, "optimizer.learning_rate": 3e-4})
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from undivided.description import Description
from undivided.errors import ArgumentError, suggest
from undivided.layers.base import Repeat
from undivided.network import Network

__all__ = ["override", "override_text"]

Change = Callable[[type[Description], str, Any], Any]
"""(the description, the name of its argument, what it was) → what it is from now on."""


def override(network: Network, settings: Mapping[str, Any]) -> Network:
    """The network with other values at some paths; `network` stays as it is.

    A path is names and numbers with dots between: `optimizer.learning_rate`, `layers.3.units`.
    Layers count from 0 (from the end: −1) or go by the name that they were given; what is repeated
    is reached through its `* N`.
    """
    for path, value in settings.items():
        network = _changed(network, path, _Fixed(value))
    return network


def override_text(network: Network, path: str, text: str) -> Network:
    """The same with a value as a file has it: `3e-4`, `(2, 2)`, `AdamW(weight_decay=0.1)`."""
    return _changed(network, path, _Read(path, text))


@dataclasses.dataclass(frozen=True)
class _Fixed:
    value: Any

    def __call__(self, cls: type[Description], name: str, old: Any) -> Any:
        return self.value


@dataclasses.dataclass(frozen=True)
class _Read:
    path: str
    text: str

    def __call__(self, cls: type[Description], name: str, old: Any) -> Any:
        from undivided.language.reader import parse_argument

        return parse_argument(self.text, cls, name, file=self.path)


def _changed(network: Network, path: str, change: Change) -> Network:
    steps = path.split(".")
    if not path or "" in steps:
        raise ArgumentError(
            f"A path is names with dots between, such as optimizer.learning_rate. Got {path!r}."
        )
    try:
        return _within(network, steps, 0, change)
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}", argument=path) from None


def _within(node: Any, steps: list[str], at: int, change: Change) -> Any:
    """`node` with the change at the rest of the path."""
    here = ".".join(steps[:at])
    step = steps[at]
    if isinstance(node, tuple) and node and isinstance(node[0], Description):
        index = _index(node, step, here)
        if at + 1 == len(steps):
            raise ArgumentError(
                f"it is {_article(node[index])}: go on to one of its arguments, "
                f"{_names(node[index])}."
            )
        inside = _within(node[index], steps, at + 1, change)
        return (*node[:index], inside, *node[index + 1 :])
    if not isinstance(node, Description):
        raise ArgumentError(f"{here} is {node!r}, which has nothing inside it.")
    fields = {field.name: field for field in dataclasses.fields(node)}  # type: ignore[arg-type]
    if step not in fields and isinstance(node, Repeat):
        return dataclasses.replace(node, layer=_within(node.layer, steps, at, change))
    if step not in fields:
        hint = suggest(step, fields) or f" It has {_names(node)}."
        raise ArgumentError(f"{node.keyword} has no {step!r}.{hint}")
    old = getattr(node, step)
    if at + 1 < len(steps):
        value = _within(old, steps, at + 1, change)
    else:
        value = change(type(node), step, old)
    return dataclasses.replace(node, **{step: value})  # type: ignore[type-var]


def _index(items: tuple[Any, ...], step: str, here: str) -> int:
    """Which of several: by number, or by the name that it was given."""
    named = {item.name: i for i, item in enumerate(items) if getattr(item, "name", None)}
    if step in named:
        return named[step]
    try:
        number = int(step)
    except ValueError:
        hint = suggest(step, named)
        raise ArgumentError(
            f"{here} has no {step!r}.{hint} They go by number, 0 to {len(items) - 1}"
            f"{', or by name: ' + ', '.join(named) if named else ''}."
        ) from None
    if not -len(items) <= number < len(items):
        kinds = ", ".join(f"{i} ({item.keyword})" for i, item in enumerate(items[:20]))
        more = ", …" if len(items) > 20 else ""
        raise ArgumentError(f"{here} has no number {number}. It has {kinds}{more}.")
    return number % len(items)


def _names(node: Description) -> str:
    if isinstance(node, Repeat):
        node = node.layer
    return ", ".join(field.name for field in dataclasses.fields(node))  # type: ignore[arg-type]


def _article(node: Description) -> str:
    return f"{'an' if node.keyword[:1] in 'AEIOU' else 'a'} {node.keyword}"
