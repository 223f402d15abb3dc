"""What flags may be, and the words in which a wrong one is refused: the flag, what it takes,
what came."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from undivided.errors import ArgumentError, LanguageError, suggest
from undivided.network import Network

__all__ = [
    "COUNT",
    "ENGINE",
    "RATE",
    "SEED",
    "THREADS",
    "engine_options",
    "set_option",
    "use_option",
    "with_settings",
]

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


def use_option(command: Command) -> Command:
    """`--use`: layers of a person's own, known before anything else is looked at."""
    return click.option(
        "--use",
        multiple=True,
        metavar="FILE.py",
        is_eager=True,
        expose_value=False,
        callback=_use,
        help="Python that registers layers of your own. It is run: use none that you do not trust.",
    )(command)


def _use(ctx: click.Context, param: click.Parameter, files: tuple[str, ...]) -> None:
    from undivided.registering import use

    for file in files:
        try:
            use(file)
        except ArgumentError as error:
            raise click.UsageError(f"--use: {error}", ctx) from error


def set_option(command: Command) -> Command:
    """`--set PATH=VALUE`, as often as wanted."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="PATH=VALUE",
        help="Another value in place of the network's, such as layers.3.num_heads=4, "
        "optimizer.learning_rate=3e-4 or train.epochs=3. Layers count from 0.",
    )(command)


def with_settings(network: Network, settings: tuple[str, ...]) -> Network:
    """The network with what `--set` says."""
    from undivided.overriding import override_text

    for setting in settings:
        path, sign, value = setting.partition("=")
        if not sign or not path.strip() or not value.strip():
            raise click.UsageError(
                f"--set takes PATH=VALUE, such as train.epochs=3. Got {setting[:80]!r}."
            )
        try:
            network = override_text(network, path.strip(), value.strip())
        except (ArgumentError, LanguageError) as error:
            raise click.UsageError(f"--set {error}") from error
    return network
