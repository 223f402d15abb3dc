"""Networks of every kind that can be described, drawn from the annotations of the descriptions.

Nothing here names a layer: a new one takes part in the round trips as soon as it exists.
"""

from __future__ import annotations

import typing
from functools import cache
from typing import Any, Literal

from hypothesis import strategies as st

from undivided.description import Description
from undivided.errors import ArgumentError
from undivided.language.signatures import (
    block_field,
    families,
    members,
    options,
    required,
    signature,
)
from undivided.layers import Repeat
from undivided.network import Network, Source, source_of

DEEPEST = 3  # descriptions inside one another
TEXTS = st.text(max_size=8) | st.sampled_from(
    ["", "mnist", "true", "None", 'a"b', "a\\b", "\n\t\0", "\ud800", "\u202e", "ÄÖ 字", "# no", "{"]
)


def networks() -> st.SearchStrategy[Network]:
    return described(Network, 0)


@cache
def described(cls: type[Description], depth: int) -> st.SearchStrategy[Any]:
    """Descriptions of one class; arguments with a default are given half of the time."""
    values = {name: argument(cls, name, depth) for name in signature(cls)}
    optional = {name: values.pop(name) for name, f in signature(cls).items() if not required(f[0])}

    def build(arguments: dict[str, Any]) -> Any:
        try:
            return cls(**arguments)
        except ArgumentError:  # right one by one and wrong together
            return None

    drawn = st.fixed_dictionaries(values, optional=optional).map(build)
    return drawn.filter(lambda one: one is not None)


def argument(cls: type[Description], name: str, depth: int) -> st.SearchStrategy[Any]:
    field, hint = signature(cls)[name]
    strategy = value(hint, field.metadata["limits"], depth)
    return strategy | TEXTS.map(source_of) if hint == Source | None else strategy


def value(hint: Any, limits: dict[str, float], depth: int) -> st.SearchStrategy[Any]:
    """Values that fit an annotation and lie within limits."""
    return st.one_of([_one(option, limits, depth) for option in options(hint)])


def _one(hint: Any, limits: dict[str, float], depth: int) -> st.SearchStrategy[Any]:
    low, high = limits.get("at_least"), limits.get("at_most")
    inner = typing.get_args(hint)
    if families(hint):
        known = list(members(hint).values())
        simple = [one for one in known if block_field(one) is None and one is not Repeat]
        chosen = known if depth < DEEPEST else simple
        return st.sampled_from(chosen).flatmap(lambda cls: described(cls, depth + 1))
    if typing.get_origin(hint) is Literal:
        return st.sampled_from(inner)
    if typing.get_origin(hint) is tuple and inner[1:] == (Ellipsis,):
        return st.lists(value(inner[0], limits, depth), max_size=4).map(tuple)
    if typing.get_origin(hint) is tuple:
        return st.tuples(*(value(item, limits, depth) for item in inner))
    if hint is int:
        most = int(high if high is not None else 10**20)
        return st.integers(-(10**9) if low is None else int(low), most) | st.just(most)
    if hint is float:
        inside = st.floats(
            limits.get("above", low),
            limits.get("below", high),
            exclude_min="above" in limits,
            exclude_max="below" in limits,
            allow_nan=False,
            allow_infinity=False,
        )
        return inside | st.integers(2, 10**6).map(lambda whole: 1 / whole)
    simple_values = {bool: st.booleans(), str: TEXTS, type(None): st.none()}
    return simple_values[hint]
