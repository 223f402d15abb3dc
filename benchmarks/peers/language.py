"""A recipe's language model that every system trains: its sizes, its windows, its rates.

The network is the recipe's own, read from its file; `Encoder` says the same of it to PyTorch.
"""

# N windows of S tokens

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from peers.encoder import Encoder

if TYPE_CHECKING:
    from undivided import Network
    from undivided.data import Dataset

__all__ = ["Language", "network_of", "shape_of", "windows_of"]


@dataclass(frozen=True)
class Language:
    """What is trained, on which text, and how long."""

    recipe: str
    text: str
    steps: int
    threads: int
    seed: int = 1


def network_of(task: Language) -> Network:
    """The recipe, with its schedule over as many steps as there are."""
    import undivided as u

    network = u.recipe(task.recipe)
    warm = network.optimizer.learning_rate
    assert isinstance(warm, u.Warmup) and isinstance(warm.schedule, u.CosineDecay)
    left = max(1, task.steps - warm.steps)
    rate = replace(warm, schedule=replace(warm.schedule, decay_steps=left))
    return replace(network, optimizer=replace(network.optimizer, learning_rate=rate))


def shape_of(task: Language) -> Encoder:
    """The same network for the peer: an embedding, pre-norm causal blocks with gelu, a norm, a
    dense layer."""
    import undivided as u

    network = u.recipe(task.recipe)
    embedding, blocks, *_ = network.layers
    width, heads = embedding.output_dim, blocks.layer.num_heads
    expected = (
        u.Embedding(256, width),
        u.TransformerDecoder(heads, width, 4 * width, activation="gelu") * blocks.times,
        u.LayerNormalization(),
        u.Dense(256),
    )
    if network.layers != expected or not isinstance(network.input, tuple):
        raise ValueError(f"{task.recipe} is no longer the network that PyTorch is given.")
    return Encoder(
        D=width,
        H=heads,
        L=blocks.times,
        S=network.input[0],
        B=network.train.batch_size,
        causal=True,
        threads=task.threads,
        weight_decay=network.optimizer.weight_decay,
        seed=task.seed,
    )


def windows_of(task: Language) -> Dataset:
    """The text's windows, those for training in an order of their own, once for all."""
    import undivided as u

    data = u.datasets.text(task.text, shape_of(task).S)
    order = np.random.Generator(np.random.Philox(key=task.seed)).permutation(len(data.train))
    mixed = u.datasets.Split(data.train.x[order], data.train.y[order])
    return replace(data, train=mixed)
