"""`undivided describe`."""

from __future__ import annotations

import json

import click

from undivided.cli.targets import existing_model, network_of

__all__ = ["describe"]


@click.command()
@click.argument("target", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.option("--graph", is_flag=True, help="A Mermaid graph, forward and gradient flow.")
def describe(target: str, as_json: bool, graph: bool) -> None:
    """Say what a network is and what it costs.

    That is layers, shapes, parameters, multiply-adds and bytes, before anything is trained. FILE
    is a network's text, a recipe, or a model file (.safetensors).
    """
    from undivided.plan import describe as page

    if as_json and graph:
        raise click.UsageError("--json and --graph are two answers. Ask for one.")
    if target.endswith(".safetensors"):
        from undivided.files import read_model

        network = read_model(existing_model(target)).network
    else:
        network, _ = network_of(target)
    if as_json:
        click.echo(json.dumps(page.describe_json(network), indent=2, ensure_ascii=False))
    else:
        click.echo(page.graph(network) if graph else page.describe(network))
