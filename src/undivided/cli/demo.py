"""`undivided demo`."""

from __future__ import annotations

import os
from dataclasses import replace

import click

from undivided.cli.arguments import engine_options
from undivided.cli.session import Session
from undivided.cli.view import SAMPLES, write_page
from undivided.errors import DataError
from undivided.recipes import recipe

__all__ = ["demo"]

FOLDER = "undivided-demo"


@click.command()
@engine_options
def demo(threads: int | None, engine: str | None) -> None:
    """Train on digits that come along, in seconds.

    The model, a log of its training and a page of what every head looks at go into the folder
    undivided-demo.
    """
    try:
        os.makedirs(FOLDER, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"The folder {FOLDER!r} cannot be made here: {error.strerror}. Go to another folder."
        ) from error
    model_path, log_path = f"{FOLDER}/digits.safetensors", f"{FOLDER}/log.csv"
    page_path = f"{FOLDER}/digits.html"
    network = recipe("digits-attention")
    network = replace(network, train=replace(network.train, log=log_path))
    click.echo(
        "A small attention model learns to read digits of 8×8 pixels, as 16 patches that look\n"
        "at one another. It is tested on 360 digits that it never sees in training.\n"
    )
    model, _ = Session(network, model_path, threads, engine).run()
    write_page(model, network, SAMPLES, page_path, os.path.basename(model_path))
    click.echo(
        f"""
{page_path} shows what every head looks at, and works one query through in numbers.
The log is {log_path}. Try next:

  undivided evaluate {model_path}
  undivided predict {model_path} --out predictions.csv
  undivided describe digits-attention
  undivided recipes digits-attention > mine.neural     a text to change, then
  undivided train mine.neural --epochs 10"""
    )
