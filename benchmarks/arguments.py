"""Arguments that several benchmarks take, checked alike."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["at_least_one", "parser_of", "say", "some_of"]


def parser_of(program: str, documentation: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the documentation of the script."""
    summary, _, rest = (documentation or "").partition("\n\n")
    return argparse.ArgumentParser(
        prog=program,
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def say(line: str) -> None:
    """How far it is, where it does not mix with the result."""
    print(line, file=sys.stderr, flush=True)


def some_of(known: Sequence[str] | dict[str, Any]) -> Any:
    def parse_names(given: str) -> list[str]:
        names = [name.strip() for name in given.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        if not names:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}")
        return list(dict.fromkeys(names))

    return parse_names


def at_least_one(given: str) -> int:
    if not given.isdecimal() or int(given) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {given!r}")
    return int(given)
