"""The commands, and what the program does with everything that can go wrong in them.

Exit codes: 0 done; 1 failed (a damaged file, wrong data, a loss that is not finite); 2 called
wrongly (a flag, a recipe or file that is not there); 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import errno
import sys
from typing import Any, NoReturn

import click

from undivided import __version__
from undivided.cli.demo import demo
from undivided.cli.describe import describe
from undivided.cli.evaluate import evaluate
from undivided.cli.export import export
from undivided.cli.generate import generate
from undivided.cli.layers import layers
from undivided.cli.predict import predict
from undivided.cli.recipes import recipes
from undivided.cli.train import train
from undivided.cli.view import debug, view
from undivided.errors import UndividedError, suggest

__all__ = ["main"]


class Program(click.Group):
    """A group of commands in which a person's mistake is never a traceback."""

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run, say what went wrong, and exit."""
        extra["standalone_mode"] = False  # so that its errors come here
        extra["prog_name"] = "undivided"  # also where Python was asked for the module
        _print_anything()
        try:
            code = super().main(*args, **extra)
            if sys.stdout is not None:  # it is None where the caller closed it
                sys.stdout.flush()
        except click.ClickException as error:
            error.show()
            code = error.exit_code
        except (click.Abort, KeyboardInterrupt):
            click.echo("Stopped.", err=True)
            code = 130
        except BrokenPipeError:
            # Who read the output has gone; the interpreter must not complain of it at its end.
            sys.stdout = None
            code = 1
        except UndividedError as error:
            click.echo(f"Error: {error}", err=True)
            code = 1
        except MemoryError as error:
            click.echo(f"Error: there is not enough memory. {error}".rstrip(), err=True)
            code = 1
        except OSError as error:
            reason = str(error)
            if error.errno == errno.ENOSPC and error.filename is None:
                reason = "No space left on device, where the output goes. Make room there."
            click.echo(f"Error: {reason}", err=True)
            code = 1
        sys.exit(code if isinstance(code, int) else 0)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            hint = suggest(args[0], self.commands)
            ctx.fail(
                f"There is no command {args[0]!r}.{hint} "
                f"The commands are {', '.join(sorted(self.commands))}."
            )
        return super().resolve_command(ctx, args)


def _print_anything() -> None:
    """A terminal without a sign for ≥ or × gets a question mark, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"]},
    commands=[
        *(debug, demo, describe, evaluate, export, generate),
        *(layers, predict, recipes, train, view),
    ],
)
@click.version_option(__version__, "--version", message="undivided %(version)s")
def main() -> None:
    """Attention models: described once, trained at the speed of the hardware.

    \b
    undivided demo                         train on digits that come along, in seconds
    undivided recipes                      networks that come along
    undivided train mine.neural -d mine.npz
    """
