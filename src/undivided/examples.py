"""Inputs and targets of a network's own shapes, drawn at random: to try it before there is data."""

# N samples

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from undivided.data.dataset import Dataset, Split
from undivided.errors import ArgumentError
from undivided.plan.plan import Input, Plan, Ragged, Shape

if TYPE_CHECKING:
    from undivided.network import Network

__all__ = ["example_batch", "random_data"]

LENGTH = 16
"""The tokens of a sample whose length is its own."""


def example_batch(plan: Plan, count: int, seed: int) -> tuple[Any, np.ndarray]:
    """`count` samples x, and targets y such as the plan's loss wants of them."""
    if count < 1:
        raise ArgumentError(f"An example batch has at least 1 sample. Got {count}.", argument="n")
    random = np.random.Generator(np.random.Philox(key=seed))
    parts = [_samples(entry, count, random) for entry in plan.inputs if entry.begins_with is None]
    x = parts[0] if len(parts) == 1 else tuple(parts)
    return x, _targets(plan, count, random)


def random_data(network: Network, count: int, test: int, seed: int) -> Dataset:
    """A data set of such samples."""
    plan = network.plan()
    x, y = example_batch(plan, count + test, seed)
    if isinstance(x, tuple):
        x = {entry.name: part for entry, part in zip(plan.inputs, x, strict=True)}
    whole = Split(x, y)
    return Dataset(whole[:count], whole[count:], "random")


def _samples(entry: Input, count: int, random: np.random.Generator) -> np.ndarray:
    shape = _extents(entry.shape)
    if entry.vocabulary is None:
        return random.standard_normal((count, *shape), dtype=np.float32)
    ids = random.integers(0, entry.vocabulary, (count, *shape)).astype(np.int32)
    if entry.padding_id is not None and entry.vocabulary > 1:
        ids[ids == entry.padding_id] = (entry.padding_id + 1) % entry.vocabulary
    return ids


def _targets(plan: Plan, count: int, random: np.random.Generator) -> np.ndarray:
    kind, width = plan.loss.targets, plan.output.width
    shape = (count, *_extents(plan.output.shape[:-1]), width)
    if kind == "values":
        return random.standard_normal(shape, dtype=np.float32)
    if kind == "shares":
        return random.integers(0, 2, shape).astype(np.float32)
    classes = random.integers(0, width, shape[:-1]).astype(np.int32)
    return classes if kind == "classes" else np.eye(width, dtype=np.float32)[classes]


def _extents(shape: Shape) -> list[int]:
    return [(n.most or LENGTH) if isinstance(n, Ragged) else n for n in shape]
