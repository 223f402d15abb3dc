"""`undivided layers`."""

from __future__ import annotations

import click

from undivided.cli.arguments import use_option
from undivided.errors import suggest

__all__ = ["layers"]


@click.command()
@click.argument("name", required=False)
@use_option
def layers(name: str | None) -> None:
    """Say which layers there are; with NAME, what one is.

    That is its arguments with what they may be and their defaults, its equation, and a network to
    try it in.
    """
    from undivided.layers.documentation import known_layers, line_of, page_of

    known = known_layers()
    if name is None:
        width = max(map(len, known))
        for each, cls in known.items():
            click.echo(f"{each.ljust(width)}  {line_of(cls)}".rstrip())
        return
    if name not in known:
        hint = suggest(name, known) or " `undivided layers` lists them."
        raise click.UsageError(f"There is no layer {name[:80]!r}.{hint}")
    click.echo(page_of(known[name]))
