"""`undivided view` and `undivided debug --attention-weights`: a page about a model's heads."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from undivided.cli.arguments import COUNT, engine_options, use_option
from undivided.cli.session import Session
from undivided.cli.targets import (
    data_name,
    existing_model,
    network_of,
    tried,
    with_data,
)
from undivided.errors import ArgumentError
from undivided.files import check_target
from undivided.model import Model, load
from undivided.network import Network

__all__ = ["debug", "view", "write_page"]

SAMPLES = 12
"""How many samples a page shows unless told otherwise."""

MOST_SAMPLES = 1000

BYTES = [chr(byte) if byte < 128 else f"\\x{byte:02x}" for byte in range(256)]
"""What 256 ids are called: the bytes of a text."""

Command = TypeVar("Command", bound=Callable[..., Any])


def page_options(command: Command) -> Command:
    """What `view` and `debug` have in common."""
    for option in (
        click.option("--open", "opened", is_flag=True, help="Show the page in a browser."),
        click.option("--out", metavar="FILE", help="Where the page goes; else NAME.html here."),
        click.option(
            "--samples",
            type=COUNT,
            default=SAMPLES,
            help=f"How many samples it shows, the first of the test data; {SAMPLES} unless given.",
        ),
        click.option("-d", "--data", metavar="DATA", help="Other data than the network names."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("model", metavar="MODEL")
@page_options
@use_option
def view(model: str, data: str | None, samples: int, out: str | None, opened: bool) -> None:
    """Make a page of what every head looks at.

    One file of HTML that needs no network: what each token looks at and who looks at it, for
    some samples of the test data, and one query worked through in numbers, forward and backward.
    """
    path = existing_model(model)
    out = out or f"{path.stem}.html"
    check_target(out)
    loaded = load(path, engine="reference")
    network = with_data(loaded.network, data)
    write_page(loaded, network, samples, out, path.name, opened)


@click.command()
@click.argument("target", metavar="FILE")
@click.option("--attention-weights", is_flag=True, help="Make a page about every head.")
@click.option("--model", metavar="MODEL", help="A trained model of this network; else it trains.")
@page_options
@use_option
@engine_options
def debug(
    target: str,
    attention_weights: bool,
    model: str | None,
    data: str | None,
    samples: int,
    out: str | None,
    opened: bool,
    threads: int | None,
    engine: str | None,
) -> None:
    """Look into a network while it is being made.

    With --attention-weights it is the page that `undivided view` makes. Trains the network on its
    data first, as `undivided train` does, and saves the model beside the page; or takes the one
    that --model names.
    """
    if not attention_weights:
        raise click.UsageError("Say what to look at: --attention-weights.")
    network, name = network_of(target)
    network = with_data(network, data)
    out = out or f"{name}.html"
    check_target(out)
    if model is None:
        path = Path(os.path.expanduser(out)).with_suffix(".safetensors")
        trained, _ = Session(network, str(path), threads, engine).run()
    else:
        path = existing_model(model)
        trained = load(path, threads, engine)  # type: ignore[arg-type]
        if (trained.network.input, trained.network.layers) != (network.input, network.layers):
            raise click.UsageError(
                f"{model} is a model of another network than {target}: its layers differ. "
                f"`undivided view {model}` shows it."
            )
        network = replace(trained.network, data=network.data)
    write_page(trained, network, samples, out, path.name, opened)


def write_page(
    model: Model, network: Network, samples: int, out: str, source: str, opened: bool = False
) -> None:
    """Write the page about the first samples that the network is tested on, and name it."""
    if samples > MOST_SAMPLES:
        raise ArgumentError(f"--samples must be at most {MOST_SAMPLES:,}. Got {samples:,}.")
    shown_on = tried(network, model).first(samples)
    split = shown_on.split
    bytes_of = BYTES if model.plan.input.vocabulary == len(BYTES) else None
    shown = model.view(
        split if shown_on.targets is not None else split.x,
        mask=split.mask,
        classes=shown_on.class_names,
        vocabulary=shown_on.vocabulary or bytes_of,
        source=f"{source} on {data_name(network)}",
    )
    path = shown.save(out)
    click.echo(f"Wrote {out} ({path.stat().st_size:,} bytes): open it in a browser")
    if opened:
        import webbrowser

        webbrowser.open(path.as_uri())
