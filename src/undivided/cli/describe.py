"""`undivided describe`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from undivided.cli.arguments import set_option, use_option, with_settings
from undivided.cli.targets import existing_model, network_of
from undivided.errors import ArgumentError

if TYPE_CHECKING:
    from undivided.export.targets import Target

__all__ = ["describe"]


@click.command()
@click.argument("target", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.option("--graph", is_flag=True, help="A Mermaid graph, forward and gradient flow.")
@click.option(
    "--target",
    "device",
    metavar="DEVICE",
    help="A microcontroller, such as esp32s3 or cortex-m4: whether the network fits, and what to "
    "shrink.",
)
@set_option
@use_option
def describe(
    target: str, as_json: bool, graph: bool, device: str | None, settings: tuple[str, ...]
) -> None:
    """Say what a network is and what it costs.

    That is layers, shapes, parameters, multiply-adds and bytes, before anything is trained. FILE
    is a network's text, a recipe, or a model file (.safetensors).
    """
    from undivided.plan import describe as page

    if as_json and graph:
        raise click.UsageError("--json and --graph are two answers. Ask for one.")
    if device is not None and graph:
        raise click.UsageError("--target and --graph are two answers. Ask for one.")
    room = None if device is None else _target(device)
    if target.endswith(".safetensors"):
        from undivided.files import read_model

        network = read_model(existing_model(target)).network
    else:
        network, _ = network_of(target)
    network = with_settings(network, settings)
    if as_json:
        facts = page.describe_json(network)
        if room is not None:
            from undivided.export.fit import fit_json

            facts["target"] = fit_json(network.plan(), room)
        click.echo(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    click.echo(page.graph(network) if graph else page.describe(network))
    if room is not None:
        from undivided.export.fit import fit_page

        click.echo("\n" + fit_page(network.plan(), room))


def _target(name: str) -> Target:
    from undivided.export.targets import target_named

    try:
        return target_named(name)
    except ArgumentError as error:
        raise click.UsageError(str(error)) from None
