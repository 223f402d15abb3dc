"""`undivided train`."""

from __future__ import annotations

from dataclasses import replace

import click

from undivided.cli.arguments import (
    COUNT,
    RATE,
    SEED,
    engine_options,
    set_option,
    use_option,
    with_settings,
)
from undivided.cli.session import Session
from undivided.cli.targets import network_of, with_data

__all__ = ["train"]


@click.command()
@click.argument("target", metavar="RECIPE|FILE")
@click.option("-b", "--batch", type=COUNT, help="How many samples make a step.")
@click.option("-e", "--epochs", type=COUNT, help="How often all samples are seen.")
@click.option("-l", "--lr", type=RATE, help="The learning rate, in place of the network's.")
@click.option("-s", "--seed", type=SEED, help="What random numbers start from, up to 2^64 - 1.")
@click.option(
    "-d",
    "--data",
    metavar="DATA",
    help="mnist, digits, iris, random, a generated task, an .npz file with arrays x and y, a .ts "
    "file with time series, a .txt file, or a folder with MNIST's files.",
)
@set_option
@use_option
@engine_options
@click.option("--out", metavar="FILE", help="Where the model goes; else NAME.safetensors here.")
@click.option("--log", metavar="FILE", help="A CSV file with one line an epoch.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
def train(
    target: str,
    batch: int | None,
    epochs: int | None,
    lr: float | None,
    seed: int | None,
    data: str | None,
    settings: tuple[str, ...],
    threads: int | None,
    engine: str | None,
    out: str | None,
    log: str | None,
    quiet: bool,
) -> None:
    """Train a network and save the model.

    RECIPE is one of `undivided recipes`. What ends in .neural or contains a slash is a FILE,
    but guide/NAME a network of the attention guide.
    Everything not given is as the network says. Ctrl-C stops between two steps and saves what
    was learned so far.
    """
    network, name = network_of(target)
    network = with_settings(with_data(network, data), settings)
    given = {"batch_size": batch, "epochs": epochs, "seed": seed, "log": log}
    stated = {key: value for key, value in given.items() if value is not None}
    network = replace(network, train=replace(network.train, **stated))  # type: ignore[arg-type]
    if lr is not None:
        network = replace(network, optimizer=replace(network.optimizer, learning_rate=lr))
    Session(network, out or f"{name}.safetensors", threads, engine, quiet).run()
