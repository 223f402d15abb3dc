"""Tokens → syntax tree, by one rule for every call. The grammar:

    text       = "network" [ WORD | STRING ] block END .
    fragment   = { item } END .                          (parse_fragment: sections, bare layers)

    block      = "{" { item } "}" .
    item       = ( entry | value ) [ "," ] .
    entry      = WORD ( ":" | "=" ) value { [ "," ] value } .
    value      = ( WORD | call | tuple | block | number | STRING ) { "*" number } .
    call       = WORD ( arguments [ block ] | block ) .
    arguments  = "(" [ argument { "," argument } [ "," ] ] ")" .
    argument   = [ WORD ( "=" | ":" ) ] value .
    tuple      = "(" [ value { "," value } [ "," ] ] ")" | "[" … "]" .
    number     = [ "-" ] NUMBER [ "/" NUMBER ] .

    WORD       = a letter or "_", then letters, digits and "_" .
    NUMBER     = digits [ "." digits ] [ "e" [ "+" | "-" ] digits ] .
    STRING     = '"' … '"' | "'" … "'" , with backslash escapes, on one line .
    comment    = "#" … | "//" … , to the end of the line .

White space only separates. A value that is followed by a word with ":" or "=" is the last one
of its entry: so a section ends where the next begins. `train { … }` among the values of an
entry has the form of a call; that it is a section is the binder's knowledge, not the grammar's.

How the parser goes on after an error stands in `cursor.py`.
"""

from __future__ import annotations

from undivided.errors import suggest
from undivided.language.cursor import CLOSING, Cursor
from undivided.language.syntax import (
    Argument,
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
from undivided.language.tokens import GIVEN_UP, Kind, Token, ratio

__all__ = ["Parser"]


class Parser(Cursor):
    """Reads one text."""

    def definition(self) -> Definition | None:
        """The one network of a text; None where the text is something else."""
        first = self._token
        known = first.kind is Kind.WORD and first.value == "network"
        if not known:
            hint = suggest(str(first.value), ["network"])
            if self._problems.text.endswith(".neural"):
                hint = " A file is read by 'read'."
            self._refuse("'network NAME { … }'", hint)
            if first.kind is not Kind.WORD:
                return None
        self._advance()
        name = None
        if self._token.kind in (Kind.WORD, Kind.STRING):
            name = _word(self._advance())
        if not self._at("{"):
            if known:
                self._refuse("the network's '{'" if name else "the network's name and '{'")
            return None
        end = self._end
        block = self._block()
        if not self._at_end():
            self._refuse("the end of the text after the network's '}'")
        return Definition(first.start, end, name, block)

    def fragment(self) -> Block:
        """Sections and layers without a network around them."""
        if self._token.value == "network" and not self._at_name():
            self._report(self._token, "A whole network is read by 'parse', not as a fragment.")
            return Block(0, 0, ())
        items = self._items()
        return Block(0, self._end, items)

    def value(self) -> Node:
        """One value and nothing else."""
        value = self._value()
        if not self._at_end():
            self._refuse("the end")
        return value

    # -- blocks, entries, values ------------------------------------------------------------

    def _block(self) -> Block:
        start = self._enter()
        items = self._items()
        self._leave()
        return Block(start, self._end, items)

    def _items(self) -> tuple[Node, ...]:
        """The items up to a closing bracket that belongs to this block or one around it."""
        items: list[Node] = []
        while not self._at_end():
            if self._at_closing():
                if self._closes_outer():
                    break
                self._report(self._token, f"This '{self._token.value}' closes nothing.")
                self._advance()
            elif self._at_name():
                items.append(self._entry())
            elif self._at_value():
                items.append(self._value())
                self._skip_comma()
            else:
                self._refuse("a word, as in 'name: value' or 'Name(…)'")
                self._skip_while(lambda: self._at(",", ":", "=", "*", "/"))
        return tuple(items)

    def _entry(self) -> Entry:
        name = self._advance()
        sign = self._advance()
        values: list[Node] = []
        while self._at_value() and not self._at_name():
            values.append(self._value())
            self._skip_comma()
        if not values:
            self._refuse(f"a value after {self._problems.quote(name.start, sign.end)}", at=name)
            values.append(Broken(sign.end, sign.end))
        return Entry(name.start, self._end, _word(name), tuple(values))

    def _value(self) -> Node:
        token = self._token
        value: Node
        if token.kind is Kind.WORD:
            value = self._word_or_call()
        elif token.kind is Kind.STRING:
            self._advance()
            value = String(token.start, token.end, str(token.value))
        elif token.kind is Kind.NUMBER or self._at("-"):
            value = self._number()
        elif token.kind is Kind.BAD:
            self._advance()
            value = Broken(token.start, token.end)
        elif self._at("{"):
            value = self._block()
        elif self._at_opening():
            value = self._tuple()
        else:
            self._refuse("a value")
            return Broken(token.start, token.start)
        if self._at_end() and self._token.value == GIVEN_UP:
            return Broken(token.start, self._end)
        return self._repeated(value) if self._at("*") else value

    def _word_or_call(self) -> Node:
        """A call's place in the text is its head, without the block."""
        name = _word(self._advance())
        arguments = None
        if self._at("("):
            arguments = self._arguments(named=True)
        if self._at("{"):
            return Call(name.start, self._end, name, arguments, self._block())
        return name if arguments is None else Call(name.start, self._end, name, arguments, None)

    def _tuple(self) -> Node:
        start = self._token.start
        arguments = self._arguments(named=False)
        for argument in arguments:
            if argument.name is not None:
                name = argument.name
                got = self._problems.quote(name.start, name.end)
                message = f"The values of a tuple have no names. Got {got}."
                self._problems.report(name.start, name.end, message)
                return Broken(start, self._end)
        return Tuple(start, self._end, tuple(argument.value for argument in arguments))

    def _repeated(self, value: Node) -> Node:
        counts: list[Node] = []
        if not isinstance(value, (Word, Call, Broken)):
            self._report(self._token, "Only a layer can be repeated with '*'.")
            value = Broken(value.start, value.end)
        while self._at("*"):
            sign = self._advance()
            if self._token.kind is Kind.NUMBER or self._at("-"):
                counts.append(self._number())
            else:
                self._refuse("a whole number after '*'", at=sign)
                counts.append(Broken(self._end, self._end))
                if self._token.kind is Kind.BAD:
                    self._advance()
        return Repeated(value.start, self._end, value, tuple(counts))

    # -- arguments and numbers --------------------------------------------------------------

    def _arguments(self, *, named: bool) -> tuple[Argument, ...]:
        """What stands between '(' and ')' or '[' and ']'."""
        self._enter()
        closing = CLOSING[str(self._open[-1].value)]
        found: list[Argument] = []
        while not self._at_closing() and not self._at_end():
            start = self._token.start
            name = None
            if self._at_name():
                name = _word(self._advance())
                self._advance()
            value = self._value()
            found.append(Argument(start, self._end, name, value))
            if self._at(","):
                self._advance()
            elif not self._at_closing() and not self._goes_on(closing, named):
                break
        self._leave()
        return tuple(found)

    def _goes_on(self, closing: str, named: bool) -> bool:
        """After an argument came neither a comma nor the end. Is there another argument?

        A missing comma is the likelier mistake on the same line and before `name=`, a missing
        closing bracket where a new line or, in a tuple, something with a name begins.
        """
        between = self._problems.text[self._end : self._token.start]
        new_line = "\n" in between or "\r" in between
        if self._at_end() or (self._at_name() and not named):
            return False
        if new_line and not (self._at_name() and self._after.value == "="):
            return False
        self._refuse(f"',' or '{closing}'")
        if not self._at_value():
            self._skip_while(lambda: not (self._at(",") or self._at_closing() or self._at_end()))
            if self._at(","):
                self._advance()
        return True

    def _number(self) -> Node:
        start = self._token.start
        negative = self._at("-")
        if negative:
            self._advance()
        if self._token.kind is not Kind.NUMBER:
            if self._token.kind is not Kind.BAD:
                item = self._token.kind is Kind.WORD
                hint = " Layers stand without a '-' before them." if item else ""
                self._refuse("a number after '-'", hint)
            return Broken(start, self._end)
        value = self._advance().value
        assert not isinstance(value, str)
        if self._at("/"):
            self._advance()
            if self._token.kind is not Kind.NUMBER:
                self._refuse("a number after '/'")
                return Broken(start, self._end)
            below = self._advance().value
            assert not isinstance(below, str)
            divided = ratio(value, below)
            if isinstance(divided, str):
                self._problems.report(start, self._end, divided)
                return Broken(start, self._end)
            value = divided
        return Number(start, self._end, -value if negative else value)


def _word(token: Token) -> Word:
    return Word(token.start, token.end, str(token.value))
