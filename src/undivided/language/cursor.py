"""The parser's place in the text: two tokens, the open brackets, and how to go on after errors.

After an error the parser goes on where a person would: behind the damaged part. Every error is
reported once, at the bracket that is never closed or at the first token that does not fit.
"""

from __future__ import annotations

from collections.abc import Callable

from undivided.language.diagnostics import Diagnostics
from undivided.language.tokens import GIVEN_UP, OPEN_STRING, Kind, Token, tokens

__all__ = ["CLOSING", "DEEPEST", "Cursor"]

DEEPEST = 100  # brackets inside one another
CLOSING = {"(": ")", "[": "]", "{": "}"}


class Cursor:
    """Reads the tokens of one text, with the present one and the one after it in hand."""

    def __init__(self, text: str, problems: Diagnostics) -> None:
        self._problems = problems
        self._next: Callable[[], Token] = tokens(text, problems).__next__
        self._token, self._after = self._next(), self._next()
        self._end = 0  # of the token before the present one
        self._open: list[Token] = []  # the brackets around the present token
        self._reported = -1  # where the last error was
        self._swallowed = -1  # where a string began that may have swallowed brackets

    # -- where we are -------------------------------------------------------------------------

    def _at(self, *signs: str) -> bool:
        return self._token.kind is Kind.SIGN and self._token.value in signs

    def _at_opening(self) -> bool:
        return self._at("(", "[", "{")

    def _at_closing(self) -> bool:
        return self._at(")", "]", "}")

    def _at_end(self) -> bool:
        return self._token.kind is Kind.END

    def _at_value(self) -> bool:
        if self._token.kind is Kind.SIGN:
            return self._at_opening() or self._at("-")
        return not self._at_end()

    def _at_name(self) -> bool:
        """Whether a word with ':' or '=' is next, which names what follows."""
        return (
            self._token.kind is Kind.WORD
            and self._after.kind is Kind.SIGN
            and self._after.value in (":", "=")
        )

    def _closes_outer(self) -> bool:
        """Whether the present bracket closes one of those that are open."""
        return any(CLOSING[str(token.value)] == self._token.value for token in self._open)

    # -- going on -----------------------------------------------------------------------------

    def _advance(self) -> Token:
        token = self._token
        self._token, self._after = self._after, self._next()
        self._end = token.end
        if token.value == OPEN_STRING and token.kind is Kind.BAD:
            self._swallowed = token.start
        return token

    def _skip_comma(self) -> None:
        if self._at(","):
            self._advance()

    def _skip_while(self, passing: Callable[[], bool]) -> None:
        """Pass over tokens, and over brackets with all that is in them."""
        depth = 0
        while not self._at_end() and (depth > 0 or passing()):
            depth += self._at_opening() - self._at_closing()
            self._advance()

    def _give_up(self) -> None:
        """Let the text end here."""
        end = Token(Kind.END, self._token.start, self._token.start, GIVEN_UP)
        self._token = self._after = end
        self._next = lambda: end

    # -- brackets -----------------------------------------------------------------------------

    def _enter(self) -> int:
        """Step over an opening bracket, remembering it; where it stands."""
        start = self._token.start
        self._open.append(self._token)
        if len(self._open) > DEEPEST:
            self._report(self._token, f"Brackets are nested more than {DEEPEST} deep.")
            self._give_up()
        else:
            self._advance()
        return start

    def _leave(self) -> None:
        """Step over the bracket that closes the innermost open one, or say that it is missing."""
        opening = self._open.pop()
        closing = CLOSING[str(opening.value)]
        if self._at(closing):
            self._advance()
        elif self._at_closing() and not self._closes_outer():
            self._refuse(f"'{closing}'")
            self._advance()
        elif opening.start > self._swallowed and not self._said_at_end():
            self._report(
                opening,
                f"This '{opening.value}' is never closed. "
                f"Expected '{closing}' before {self._present()}.",
            )

    def _said_at_end(self) -> bool:
        """At the end of the text, whether something has been reported there; now it has."""
        if not self._at_end():
            return False
        said = self._reported >= self._token.start or self._token.value == GIVEN_UP
        self._reported = self._token.start
        return said

    # -- errors -------------------------------------------------------------------------------

    def _report(self, token: Token, message: str) -> None:
        self._problems.report(token.start, token.end, message)

    def _refuse(self, expected: str, hint: str = "", *, at: Token | None = None) -> None:
        """The present token is not what was expected; said once for each place."""
        told = self._token.kind is Kind.BAD or (self._at_end() and self._token.value == GIVEN_UP)
        if not told and self._reported < self._token.start:
            message = f"Expected {expected}. Got {self._present()}.{hint}"
            self._report(at or self._token, message)
        self._reported = max(self._reported, self._token.start)

    def _present(self) -> str:
        token = self._token
        if token.kind in (Kind.END, Kind.BAD):
            return str(token.kind.value)
        return self._problems.quote(token.start, token.end)
