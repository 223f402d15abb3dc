"""`undivided recipes`."""

from __future__ import annotations

import click

from undivided.errors import ArgumentError
from undivided.recipes import guide, recipe_path
from undivided.recipes import recipes as shipped

__all__ = ["recipes"]


@click.command()
@click.argument("name", required=False)
def recipes(name: str | None) -> None:
    """List the networks that come along, or print one of them.

    `undivided recipes NAME > mine.neural` makes a copy to change.
    """
    if name is None:
        known = shipped()
        width = max(map(len, known))
        for each, summary in known.items():
            click.echo(f"{each:<{width}}  {summary}")
        click.echo("\nThose of the attention guide, unchanged:")
        for each in guide():
            click.echo(f"  {each}")
        return
    try:
        path = recipe_path(name)
    except ArgumentError as error:
        raise click.UsageError(str(error)) from None
    click.echo(path.read_text(encoding="utf-8"), nl=False)
