"""`undivided export`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
import numpy as np

from undivided.cli.arguments import use_option
from undivided.cli.targets import (
    check_samples,
    existing_model,
    open_network_data,
    tested_split,
    with_data,
)
from undivided.errors import ArgumentError, suggest
from undivided.model import load

__all__ = ["export"]

CHECKED = 16
"""How many samples --check writes down."""


class Forms(click.Group):
    """What a model can be exported to."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            known = ", ".join(self.commands)
            hint = suggest(args[0], self.commands)
            ctx.fail(f"A model cannot be exported to {args[0]!r}.{hint} The forms are: {known}.")
        return super().resolve_command(ctx, args)


@click.group(cls=Forms)
def export() -> None:
    """Print a trained model in another form: `undivided export c`."""


@export.command()
@click.argument("model", metavar="MODEL")
@click.option("--out", metavar="DIR", required=True, help="The folder for the files.")
@click.option(
    "--name",
    default="undivided",
    show_default=True,
    help="What files and function begin with: NAME.c, NAME.h, NAME_predict.",
)
@click.option(
    "--check", is_flag=True, help="Also NAME_check.c: samples, their scores, a main that compares."
)
@click.option("-d", "--data", metavar="DATA", help="Where --check takes samples from.")
@use_option
def c(model: str, out: str, name: str, check: bool, data: str | None) -> None:
    """Print a model's forward pass as C99 that a person can read.

    One .c and one .h, with the weights in them: no memory is allocated, nothing but sqrtf is
    called. MODEL is a model file. --check takes its samples from the data that the model was
    trained on, or from --data; --data random makes some up.
    """
    from undivided.export import c as export_c

    if data is not None and not check:
        raise click.UsageError("--data is where --check takes samples from. Give --check too.")
    loaded = load(existing_model(model), engine="reference")
    samples: Any = None
    if check and data == "random":
        shape = [n for n in loaded.plan.input.shape if isinstance(n, int)]
        samples = np.random.default_rng(1).standard_normal((CHECKED, *shape), np.float32)
    elif check:
        network = with_data(loaded.network, data)
        split, _ = tested_split(open_network_data(network))
        check_samples(loaded.plan, network, split.sample_shape)
        if isinstance(split.mask, np.ndarray):  # the function takes samples of full length
            split = replace(split, x=np.asarray(split.x)[split.mask.all(axis=1)], mask=None)
        samples = split.x if isinstance(split.x, dict) else split.x[:CHECKED]
    try:
        written = export_c(loaded, out, name, samples)
    except ArgumentError as error:
        raise click.UsageError(str(error).replace("The 'name' of a C file", "--name")) from None
    for file in written.files:
        click.echo(f"Wrote {file}")
    click.echo(f"RAM    {written.arena_bytes:>11,} bytes: the arena")
    click.echo(f"Flash  {written.weight_bytes:>11,} bytes: the weights; the code comes on top")
