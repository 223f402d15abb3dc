"""What a command is pointed at: a recipe, a network's text, a model file; and data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import click
import numpy as np

from undivided.data import BUILT_IN, Dataset, Split, aeon, mnist, open_data, read_ts
from undivided.data.dataset import PerInput
from undivided.data.npz import read_unlabelled
from undivided.data.tasks import TASKS
from undivided.data.text import text
from undivided.errors import DataError, suggest
from undivided.examples import random_data
from undivided.language import read
from undivided.model import Model
from undivided.network import Aeon, File, Inputs, Mnist, Network, Random, Series, Text, source_of
from undivided.plan.plan import Plan, Ragged
from undivided.recipes import guide, recipe, recipes

__all__ = [
    "Tried",
    "by",
    "check_samples",
    "data_name",
    "existing_model",
    "network_of",
    "open_network_data",
    "tested_split",
    "tried",
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
        return open_data(source.path, inputs=_arrays_of(network))
    if isinstance(source, Series):
        return read_ts(source.path, source.normalize)
    if isinstance(source, Aeon):
        return aeon(source.name, source.normalize)
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
        "iris, random, a generated task, an .npz file with arrays x and y, a .ts file, a .txt "
        "file, or a folder with the files of MNIST."
    )


def data_name(network: Network) -> str:
    """What people call the network's data."""
    source = network.data
    if source is None:
        return "no data"
    return getattr(source, "path", None) or getattr(source, "name", None) or source.keyword


def _arrays_of(network: Network) -> tuple[str, ...]:
    """What the arrays of the network's samples are called in a file."""
    return ("source", "target") if isinstance(network.input, Inputs) else ("x",)


def tested_split(dataset: Dataset) -> tuple[Split, str]:
    """What a model is tried on: the test samples, or all where there are none; and their name."""
    if dataset.test is None:
        return dataset.train, "samples"
    return dataset.test, "test samples"


@dataclass(frozen=True)
class Tried:
    """What a model is tried on, where targets need not be known, and what people call it."""

    split: Split
    targets: np.ndarray | None
    """None where there are none, or none such as the network's loss wants."""
    class_names: tuple[str, ...] | None = None
    vocabulary: tuple[str, ...] | None = None

    def first(self, count: int) -> Tried:
        """The first so many samples."""
        targets = None if self.targets is None else self.targets[:count]
        return replace(self, split=self.split[:count], targets=targets)


def tried(network: Network, model: Model) -> Tried:
    """The test samples of the network's data, or all; an .npz file may be without targets."""
    source = network.data
    if isinstance(source, File):
        split = read_unlabelled(Path(source.path).expanduser(), _arrays_of(network))
        if split is not None:
            check_samples(model.plan, network, split.sample_shape)
            return Tried(split, None, model.class_names)
    data = open_network_data(network)
    split, _ = tested_split(data)
    check_samples(model.plan, network, split.sample_shape)
    by_class = model.plan.loss.targets == "classes"
    known = (split.y.dtype.kind in "iu") == by_class
    names = data.class_names or model.class_names
    return Tried(split, split.y if known else None, names, data.vocabulary)


def check_samples(plan: Plan, network: Network, shape: PerInput[tuple[int, ...]]) -> None:
    """Refuse samples of another shape than the network takes, naming both."""
    wanted = {e.name: e.shape for e in plan.inputs if e.begins_with is None}
    found = shape if isinstance(shape, dict) else dict.fromkeys(list(wanted)[:1], shape)
    fits = found.keys() == wanted.keys() and all(_fits(found[n], wanted[n]) for n in wanted)
    if not fits:
        takes = by(wanted if len(wanted) > 1 else next(iter(wanted.values())))
        raise DataError(
            f"The samples of {data_name(network)} are {by(shape)}, and {network.name} takes "
            f"{takes}. Name other data with --data, or change the network's input."
        )


def _fits(found: tuple[int, ...], wanted: tuple[int | Ragged, ...]) -> bool:
    return len(found) == len(wanted) and all(
        isinstance(extent, Ragged) or n == extent for n, extent in zip(found, wanted, strict=True)
    )


def by(shape: Mapping[str, tuple[int | Ragged, ...]] | tuple[int | Ragged, ...]) -> str:
    """A shape as people say it: 28×28, or source 16 and target 12."""
    if isinstance(shape, tuple):
        return "×".join(map(str, shape))
    return " and ".join(f"{name} {by(part)}" for name, part in shape.items())
