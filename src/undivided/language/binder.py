"""Syntax tree → Network: names find their descriptions, values their arguments.

The descriptions themselves know what they take (`undivided.description`), so text and Python
refuse the same mistakes in the same words; the binder adds where, and the nearest known name.
Everything that can be checked alone is checked alone, so one mistake hides no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import Field
from typing import Any, Final

from undivided.description import Description, accept, expectation
from undivided.errors import ArgumentError, suggest
from undivided.language.diagnostics import Diagnostics, shortened
from undivided.language.elsewhere import advice, other_name
from undivided.language.given import Given, arguments, leading_name, sections
from undivided.language.origin import Origin
from undivided.language.signatures import (
    DEEPEST_NETWORK,
    choices,
    families,
    holds_descriptions,
    item_hint,
    kinds_of,
    members,
    noun,
    options,
    required,
    signature,
    sole_member,
    with_article,
)
from undivided.language.syntax import (
    Block,
    Broken,
    Call,
    Definition,
    Entry,
    Node,
    Number,
    Repeated,
    String,
    Tuple,
    Word,
)
from undivided.layers import Repeat
from undivided.network import Network, Source, source_of

__all__ = ["Binder"]

_CONSTANTS = {"True": True, "true": True, "False": False, "false": False, "None": None}
_FAILED: Final = object()  # the value of what has been reported already


class _Unfit(Exception):
    """A piece of syntax has no value that the argument could take; the text says what it is."""


class Binder:
    """Binds the tree of one text."""

    def __init__(self, problems: Diagnostics) -> None:
        self._problems = problems
        self._places: dict[int, tuple[int, int]] = {}
        """Where each description that was made stands, by its identity."""

    def network(self, definition: Definition) -> Network | None:
        """The network of a definition; None if anything in it was reported."""
        damaged = len(self._problems) > 0
        name = definition.name
        given = sections(self._problems, Network, definition.block, bare=None)
        if name is not None:
            title = String(name.start, name.end, name.text)
            given.insert(0, Given("name", name, [title], many=True))
        network = self._construct(Network, given, definition, "section", 0, whole=not damaged)
        if not isinstance(network, Network):
            return None
        origin = Origin(self._problems.text, self._problems.file, self._places)
        object.__setattr__(network, "origin", origin)
        return network

    def fragment(self, block: Block) -> dict[str, Any]:
        """Section name → value, for the sections that a fragment gives."""
        given = sections(self._problems, Network, block, bare="layers")
        values, _ = self._values(Network, given, "section", 0)
        return values

    def argument(self, cls: type[Description], name: str, node: Node) -> Any:
        """The value of one argument alone."""
        field, hint = signature(cls)[name]
        return self._argument(cls, Given(name, node, [node], many=True), field, hint, 1)

    # -- given arguments → descriptions -------------------------------------------------------

    def _call(self, family: type[Description], node: Node, depth: int) -> Any:
        """A member of a family from `Name`, `Name(…)`, `Name { … }` or one of these repeated."""
        if isinstance(node, Repeated):
            return self._repeated(family, node, depth)
        name = leading_name(node)
        assert name is not None
        if depth > DEEPEST_NETWORK:
            self._report(name, f"Layers are nested more than {DEEPEST_NETWORK} deep.")
            return _FAILED
        known = members(family)
        cls = known.get(name.text)
        if cls is None:
            self._report(name, _unknown(family, name.text))
            self._problems.unknown.append(name.text)
            if isinstance(node, Call) and node.block:
                values = [item for item in node.block.items if not isinstance(item, Entry)]
                self._sequence(values, family, depth + 1)
            return _FAILED
        call = node if isinstance(node, Call) else Call(node.start, node.end, name, None, None)
        given, clear = arguments(self._problems, cls, call)
        described = self._construct(cls, given, name, "argument", depth, whole=clear)
        return described if clear else _FAILED

    def _repeated(self, family: type[Description], node: Repeated, depth: int) -> Any:
        if not issubclass(Repeat, family):
            self._report(node, f"Only a layer can be repeated, not {with_article(noun(family))}.")
            return _FAILED
        value: Any = _FAILED
        if not isinstance(node.value, Broken):
            value = self._call(family, node.value, depth + len(node.counts))
        field, hint = signature(Repeat)["times"]
        for count in node.counts:
            given = Given(field.name, count, [count])
            times = self._argument(Repeat, given, field, hint, depth)
            value = _FAILED if _FAILED in (value, times) else Repeat(value, times)
        return value

    def _construct(
        self,
        cls: type[Description],
        given: list[Given],
        at: Node,
        what: str,
        depth: int,
        *,
        whole: bool = True,
    ) -> Any:
        """The description itself; unless `whole`, missing arguments are not worth a word."""
        values, expected = self._values(cls, given, what, depth)
        missing = [
            (field, hint)
            for field, hint in signature(cls).values()
            if required(field) and field.name not in values and field.name not in expected
        ]
        for field, hint in missing if whole else ():
            kind = "" if holds_descriptions(hint) else f": {expectation(field, hint)}"
            meaning = f" ({field.metadata['doc']})" if field.metadata else ""
            self._report(at, f"{cls.keyword} needs the {what} {field.name!r}{meaning}{kind}.")
        if missing or expected or _FAILED in values.values():
            return _FAILED
        try:
            made = cls(**values)
            self._places[id(made)] = at.start, at.end
            return made
        except ArgumentError as error:
            places = {one.name: one.values[0] if one.values else one.at for one in given}
            self._report(places.get(error.argument or "", at), str(error))
            return _FAILED

    def _values(
        self, cls: type[Description], given: list[Given], what: str, depth: int
    ) -> tuple[dict[str, Any], set[str]]:
        """The values by name, and what unknown names were probably meant to be."""
        known = signature(cls)
        first: dict[str, Given] = {}
        values: dict[str, Any] = {}
        meant: set[str] = set()
        for one in given:
            if one.name not in known:
                hint = other_name(one.name, known) or suggest(one.name, known)
                self._report(one.at, _no_such(cls, what, one.name, list(known), hint))
                near = next((name for name in known if repr(name) in hint), "")
                if near and near not in meant:
                    self._argument(cls, one, *known[near], depth)
                meant.add(near)
            elif one.name in first:
                self._report(one.at, f"The {one.name!r} of {cls.keyword} is given twice.")
                values[one.name] = _FAILED
            else:
                first[one.name] = one
                values[one.name] = self._argument(cls, one, *known[one.name], depth)
        return values, meant

    def _argument(
        self, cls: type[Description], given: Given, field: Field[Any], hint: Any, depth: int
    ) -> Any:
        """The value of one argument, checked alone."""
        nodes = given.values
        sequence = given.many and holds_descriptions(hint)
        if sequence and not (len(nodes) == 1 and isinstance(nodes[0], (Tuple, Block))):
            return self._sequence(nodes, item_hint(hint, 0), depth)
        if any(isinstance(node, Broken) for node in nodes):
            return _FAILED
        if len(nodes) != 1:
            extra = nodes[1] if nodes else given.at
            self._report(
                extra,
                f"The {field.name!r} of {cls.keyword} takes one value: "
                f"{_wanted(field, hint)}. Got {len(nodes)}.",
            )
            return _FAILED
        node = nodes[0]
        try:
            value = self._value(node, hint, depth)
        except _Unfit as unfit:
            self._report(
                node,
                f"The {field.name!r} of {cls.keyword} must be {_wanted(field, hint)}. "
                f"Got {self._shown(node)}{unfit}.",
            )
            return _FAILED
        try:
            return _FAILED if value is _FAILED else accept(cls.keyword, field, hint, value)
        except ArgumentError as error:
            self._report(node, f"{error}{_meant(cls, field, hint, value)}")
            return _FAILED

    # -- values -------------------------------------------------------------------------------

    def _value(self, node: Node, hint: Any, depth: int) -> Any:
        """The Python value of a piece of syntax where `hint` is expected."""
        only = sole_member(hint)
        name = leading_name(node)
        alone = only is not None and options(hint) == (only,) and not isinstance(node, Block)
        if only and alone and (not name or name.text != only.keyword):
            raise _Unfit
        match node:
            case Broken():
                return _FAILED
            case Number():
                return node.value
            case String():
                return source_of(node.text) if Source in families(hint) else node.text
            case Tuple():
                if holds_descriptions(hint):
                    return self._sequence(node.items, item_hint(hint, 0), depth)
                items = [
                    self._value(item, item_hint(hint, index), depth)
                    for index, item in enumerate(node.items)
                ]
                return _FAILED if _FAILED in items else tuple(items)
            case Block():
                return self._block(node, hint, depth)
            case Word() if node.text in _CONSTANTS:
                return _CONSTANTS[node.text]
        return self._named(node, hint, depth)

    def _named(self, node: Node, hint: Any, depth: int) -> Any:
        """The value of a word, a call or a repeated one of these."""
        name = leading_name(node)
        if name is None:
            return _FAILED
        takes = families(hint)
        for family in takes:
            if name.text in members(family):
                return self._call(family, node, depth + 1)
        if isinstance(node, Word):
            return node.text
        if kinds := kinds_of(name.text):
            raise _Unfit(f", which is {with_article(kinds[0])}")
        if not takes:
            raise _Unfit
        return self._call(takes[0], node, depth + 1)

    def _block(self, node: Block, hint: Any, depth: int) -> Any:
        cls = sole_member(hint)
        if cls is not None:
            given = sections(self._problems, cls, node, bare=None)
            return self._construct(cls, given, node, "entry", depth + 1)
        if holds_descriptions(hint):
            return self._sequence(node.items, item_hint(hint, 0), depth)
        raise _Unfit

    def _sequence(self, nodes: Sequence[Node], hint: Any, depth: int) -> Any:
        """A tuple of layers, or of whatever family `hint` is."""
        family = families(hint)[0]
        found = []
        for node in nodes:
            value = _FAILED
            if isinstance(node, (String, Word)) and node.text.lower() in family.shorts:
                value = family.shorts[node.text.lower()]()
            elif isinstance(node, String) and family.shorts:
                self._report(node, _unknown(family, node.text))
            elif leading_name(node) is not None and not isinstance(node, Entry):
                value = self._call(family, node, depth + 1)
            elif not isinstance(node, (Broken, Repeated)):
                self._report(
                    node,
                    f"Expected {with_article(noun(family))} as in 'Name(…)'. "
                    f"Got {self._shown(node)}.",
                )
            found.append(value)
        return _FAILED if _FAILED in found else tuple(found)

    def _report(self, node: Node, message: str) -> None:
        self._problems.report(node.start, node.end, message)

    def _shown(self, node: Node) -> str:
        return self._problems.quote(node.start, node.end)


def _wanted(field: Field[Any], hint: Any) -> str:
    """What an argument must be, in the words of the text form."""
    only = sole_member(hint)
    alone = only is not None and options(hint) == (only,)
    return f"a block '{only.keyword} {{ … }}'" if only and alone else expectation(field, hint)


def _meant(cls: type[Description], field: Field[Any], hint: Any, value: Any) -> str:
    """What a string that an argument does not take may have been meant for."""
    if not isinstance(value, str):
        return ""
    for other, other_hint in signature(cls).values():
        if other is not field and value in choices(other_hint):
            return f" Did you mean {other.name}={value!r}?"
    known = choices(hint)
    return other_name(value, known) or suggest(value, known) or advice(value)


def _unknown(family: type[Description], name: str) -> str:
    kinds = kinds_of(name)
    if kinds:
        return f"Expected {with_article(noun(family))}. {name} is {with_article(kinds[0])}."
    known = {**family.shorts, **members(family)}
    near = advice(name) or suggest(name, known) or f" There are: {', '.join(sorted(known))}."
    return f"There is no {noun(family)} {shortened(name)}.{near}"


def _no_such(
    cls: type[Description], what: str, name: str, known: list[str], suggestion: str
) -> str:
    beside = ""
    if what == "entry" and name in signature(Network):
        beside = f" It stands beside {cls.keyword!r}, as a section of the network."
    near = beside or suggestion or advice(name) or f" It has: {', '.join(known)}."
    return f"{cls.keyword} has no {what} {shortened(name)}.{near}"
