"""`undivided evaluate`."""

from __future__ import annotations

import click

from undivided.cli.arguments import engine_options, use_option
from undivided.cli.targets import (
    check_samples,
    data_name,
    existing_model,
    open_network_data,
    tested_split,
    with_data,
)
from undivided.model import load

__all__ = ["evaluate"]


@click.command()
@click.argument("model", metavar="MODEL")
@click.option("-d", "--data", metavar="DATA", help="Other data than the model was trained on.")
@use_option
@engine_options
def evaluate(model: str, data: str | None, threads: int | None, engine: str | None) -> None:
    """Test a model on samples whose targets are known.

    These are the test samples of the data that it was trained on, or of --data; where there are
    no test samples, all.
    """
    loaded = load(existing_model(model), threads, engine)  # type: ignore[arg-type]
    network = with_data(loaded.network, data)
    split, kind = tested_split(open_network_data(network))
    check_samples(loaded.plan, network, split.sample_shape)
    result = loaded.evaluate(split)
    click.echo(f"{network.name} on {len(split):,} {kind} of {data_name(network)}")
    click.echo(str(result))
