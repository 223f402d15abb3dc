"""What a command is pointed at: a recipe, a network's text, a model file; and data."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import click

from undivided.data import BUILT_IN, Dataset, Split, mnist, open_data
from undivided.data.tasks import TASKS
from undivided.data.text import text
from undivided.errors import DataError, suggest
from undivided.examples import random_data
from undivided.language import read
from undivided.network import File, Mnist, Network, Random, Text, source_of
from undivided.plan.plan import Plan, Ragged
from undivided.recipes import guide, recipe, recipes

__all__ = [
    "by",
    "check_samples",
    "data_name",
    "existing_model",
    "network_of",
    "open_network_data",
    "tested_split",
    "with_data",
]


_TEXTS = {".txt", ".md", ".py", ".text"}
"""What ends so is a text, of which a language model is given windows of bytes."""
_WINDOW = 128


def network_of(target: str) -> tuple[Network, str]:
    """The network that `target` names, and the short name under which its model is saved.

    What ends in .neural or contains a slash is a file. Anything else is a recipe if there is one
    of that name, so that `undivided train mnist-attention` means the same in every folder. The
    attention guide's networks have a slash in their names, guide/NLPAttention.
    """
    if target in recipes() or target in guide():
        return recipe(target), os.path.basename(target)
    is_path = target.endswith(".neural") or os.path.basename(target) != target
    path = Path(os.path.expanduser(target))
    if os.path.isfile(path):  # which says no to names that no file can have; Path.is_file raises
        return read(path), path.stem
    _refuse_target(target, path, is_path)


def _refuse_target(target: str, path: Path, is_path: bool) -> NoReturn:
    """Say why `target` is neither, and what is near."""
    shown = _shown(target)
    if target and os.path.isdir(path):
        raise click.UsageError(f"{shown} is a folder. Name a .neural file in it.")
    beside = _names_beside(path, ".neural")
    if is_path:
        near = suggest(target, guide()) or suggest(path.name, beside)
        raise click.UsageError(f"There is no file {shown}.{near}")
    known = recipes()
    raise click.UsageError(
        f"There is neither a recipe nor a file named {shown}.{suggest(target, [*known, *beside])} "
        f"The recipes are {', '.join(known)}."
    )


def _shown(target: str) -> str:
    return repr(target if len(target) <= 200 else target[:199] + "…")


def _names_beside(path: Path, suffix: str) -> list[str]:
    try:
        return [file.name for file in path.parent.iterdir() if file.suffix == suffix]
    except (OSError, ValueError):
        return []


def existing_model(target: str) -> Path:
    """The path of a model file that is there."""
    path = Path(os.path.expanduser(target))
    if not os.path.exists(path):
        raise click.UsageError(
            f"There is no model file {_shown(target)}."
            f"{suggest(path.name, _names_beside(path, '.safetensors'))} "
            "`undivided train RECIPE` makes one."
        )
    return path


def with_data(network: Network, data: str | None) -> Network:
    """The network trained on `data`, where --data names it."""
    return network if data is None else replace(network, data=source_of(data))


def open_network_data(network: Network) -> Dataset:
    """What the network says it is trained on."""
    source = network.data
    if isinstance(source, Mnist):
        return mnist(source.folder)
    if isinstance(source, File):
        if Path(source.path).suffix.lower() in _TEXTS:
            length = network.plan().input.shape[0]
            return text(source.path, length if isinstance(length, int) else _WINDOW)
        return open_data(source.path)
    if isinstance(source, Text):
        return text(source.path, source.length, source.unit)
    if isinstance(source, Random):
        return random_data(network, source.count, source.test, source.seed)
    if source is not None and source.keyword in TASKS:
        return TASKS[source.keyword](**vars(source))
    if source is not None:
        return BUILT_IN[source.keyword]()
    raise click.UsageError(
        f"{network.name} does not say what it is trained on. Name it with --data: mnist, digits, "
        "iris, random, a generated task, an .npz file with arrays x and y, a .txt file, or a "
        "folder with the files of MNIST."
    )


def data_name(network: Network) -> str:
    """What people call the network's data."""
    source = network.data
    return source.path if isinstance(source, File) else source.keyword if source else "no data"


def tested_split(dataset: Dataset) -> tuple[Split, str]:
    """What a model is tried on: the test samples, or all where there are none; and their name."""
    if dataset.test is None:
        return dataset.train, "samples"
    return dataset.test, "test samples"


def check_samples(plan: Plan, network: Network, shape: tuple[int, ...]) -> None:
    """Refuse samples of another shape than the network takes, naming both."""
    wanted = plan.input.shape
    fits = len(shape) == len(wanted) and all(
        isinstance(extent, Ragged) or n == extent for n, extent in zip(shape, wanted, strict=True)
    )
    if not fits:
        raise DataError(
            f"The samples of {data_name(network)} are {by(shape)}, and {network.name} takes "
            f"{by(wanted)}. Name other data with --data, or change the network's input."
        )


def by(shape: tuple[int | Ragged, ...]) -> str:
    """A shape as people say it: 28×28."""
    return "×".join(map(str, shape))
