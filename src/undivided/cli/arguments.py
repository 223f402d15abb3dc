"""What flags may be, and the words in which a wrong one is refused: the flag, what it takes,
what came."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from undivided.errors import suggest

__all__ = ["COUNT", "ENGINE", "RATE", "SEED", "THREADS", "engine_options"]

Command = TypeVar("Command", bound=Callable[..., Any])


class Checked(click.ParamType):
    """A flag's value; a subclass says what it must be."""

    expected = ""

    def parse(self, text: str) -> Any:
        """The value, or None if `text` is not one."""
        raise NotImplementedError

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        parsed = self.parse(value)
        if parsed is None:
            self.refuse(value, param, ctx)
        return parsed

    def refuse(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None, hint: str = ""
    ) -> NoReturn:
        flag = max(param.opts, key=len) if param is not None else "The value"
        shown = value if len(value) <= 80 else value[:77] + "…"
        raise click.UsageError(f"{flag} must be {self.expected}. Got {shown!r}.{hint}", ctx)


class Whole(Checked):
    """A whole number in decimal digits."""

    name = "number"

    def __init__(self, at_least: int, at_most: int | None = None) -> None:
        self.at_least, self.at_most = at_least, at_most
        bounds = f"≥ {at_least}" if at_most is None else f"from {at_least} to {at_most}"
        self.expected = f"a whole number {bounds}"

    def parse(self, text: str) -> int | None:
        if not re.fullmatch(r"[0-9]{1,40}", text):
            return None
        number = int(text)
        inside = number >= self.at_least and (self.at_most is None or number <= self.at_most)
        return number if inside else None


class Rate(Checked):
    """A finite number above zero."""

    name = "number"
    expected = "a number > 0"

    def parse(self, text: str) -> float | None:
        try:
            number = float(text)
        except ValueError:
            return None
        return number if math.isfinite(number) and number > 0 else None


class Engine(Checked):
    """The name of an engine."""

    name = "engine"
    known = ("native", "reference")
    expected = "native or reference"

    def parse(self, text: str) -> str | None:
        return text if text in self.known else None

    def refuse(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None, hint: str = ""
    ) -> NoReturn:
        super().refuse(value, param, ctx, suggest(value, self.known))


COUNT = Whole(1)
SEED = Whole(0, 2**64 - 1)
THREADS = Whole(1, 1024)
RATE = Rate()
ENGINE = Engine()


def engine_options(command: Command) -> Command:
    """`--threads` and `--engine`, which every command that computes has."""
    command = click.option("--engine", type=ENGINE, help="native (the default) or reference.")(
        command
    )
    return click.option(
        "--threads", type=THREADS, help="How many threads; else one for each core in reach."
    )(command)
