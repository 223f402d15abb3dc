"""Networks as they are trained, small enough to train them many times over in a test.

Also a program: `python small_models.py THREADS` trains each with each optimizer and prints what
came out as one number, so that a fresh process can be compared with this one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from typing import Any

import numpy as np
from agreement import batch_for, fill, start_values

from undivided.engines.engine import Engine
from undivided.engines.native import NativeEngine
from undivided.layers import (
    Activation,
    Dense,
    Embedding,
    GlobalAveragePooling1D,
    Layer,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    Output,
    Patches,
    Rescaling,
    Residual,
    SinusoidalPositions,
    TransformerDecoder,
    TransformerEncoder,
)
from undivided.network import Network
from undivided.training.optimizers import SGD, Adam, AdamW, Optimizer

__all__ = [
    "NETWORKS",
    "OF_IDS",
    "OPTIMIZERS",
    "STEPS",
    "digest",
    "engine_for",
    "samples_for",
    "trained",
]

STEPS, BATCH, SAMPLES = 20, 16, 40
# Twenty steps of 16 in a ring of 40 samples; the last batch is short.
ORDER = (np.arange(STEPS * BATCH - 5) * 7 % SAMPLES).astype(np.uint32)

BLOCK: tuple[Layer, ...] = (
    Residual((LayerNormalization(), MultiHeadAttention(2))),
    Residual((LayerNormalization(), Dense(20, activation="gelu"), Dense(12))),
    LayerNormalization(),
)

NETWORKS: dict[str, Network] = {
    "classifier": Network(
        input=(12, 12),
        layers=(
            Rescaling(1 / 255),
            Patches(4),
            Dense(16),
            LearnedPositions(),
            Activation("relu"),
            MultiHeadAttention(1, output_projection=False),
            Dense(20, activation="relu"),
            Dense(16),
            GlobalAveragePooling1D(),
            Output(10),
        ),
    ),
    "pre-norm block": Network(
        input=(5, 7),
        layers=(Dense(12), LearnedPositions(), *BLOCK, GlobalAveragePooling1D(), Output(4)),
    ),
    "any length": Network(
        input=(None, 7),
        layers=(Dense(12), SinusoidalPositions(), *BLOCK, GlobalAveragePooling1D(), Output(4)),
    ),
    "linear attention": Network(
        input=(9, 7),
        layers=(
            Dense(12),
            SinusoidalPositions(),
            MultiHeadAttention(2, linear=True, causal=True),
            TransformerEncoder(4, dff=20, kv_heads=2, linear=True),
            GlobalAveragePooling1D(),
            Output(4),
        ),
    ),
    "table": Network(
        input=(9,),
        layers=(Dense(140, activation="relu"), Dense(130, activation="gelu"), Output(3)),
    ),
}

OF_IDS: dict[str, Network] = {
    "ids": Network(
        input=(None,),
        layers=(
            Embedding(11, 12),
            TransformerDecoder(2, dff=20, positions="relative", window=(9, None)),
            TransformerEncoder(3, dff=20, kv_heads=1, softcap=3.0),
            Dense(11, tied_to="embedding_1"),
            GlobalAveragePooling1D(),
        ),
    ),
}
"""Whose samples are ids, which are always some and have no gradient."""

OPTIMIZERS: dict[str, Optimizer] = {
    "SGD": SGD(),
    "momentum": SGD(momentum=0.9),
    "Adam": Adam(),
    "AdamW": AdamW(weight_decay=0.1),
    "AdamW, ε inside": AdamW(weight_decay=0.1, epsilon_inside_root=True),
}


def samples_for(engine: Engine, count: int = SAMPLES, seed: int = 0) -> tuple[Any, np.ndarray]:
    shape = engine.plan.input.shape
    lengths = tuple(1 + n * 5 % 23 for n in range(count)) if not isinstance(shape[0], int) else ()
    batch = batch_for(engine.plan, count, seed=seed, as_bytes=shape == (12, 12), lengths=lengths)
    return batch.x, batch.y


def engine_for(
    name: str, optimizer: Optimizer | None = None, *, threads: int = 1, seed: int = 0
) -> NativeEngine:
    network = {**NETWORKS, **OF_IDS}[name]
    if optimizer is not None:
        network = dataclasses.replace(network, optimizer=optimizer)
    plan = network.plan()
    engine = NativeEngine(plan, threads)
    fill(engine, start_values(plan, seed))
    return engine


def trained(engine: Engine, chunks: tuple[int, ...] = (STEPS,)) -> list[np.ndarray]:
    """Losses, parameters and slots after `STEPS` steps, taken so many in a call."""
    x, y = samples_for(engine)
    rates = 0.02 / (1 + 0.1 * np.arange(STEPS))
    losses, done = [], 0
    for steps in chunks:
        order = ORDER[done * BATCH : (done + steps) * BATCH]
        result = engine.train(x, y, order, BATCH, done, rates[done : done + steps])
        assert not result.failed
        losses.append(result.losses)
        done += steps
    assert done == STEPS
    slots = [array for arrays in engine.slots.values() for array in arrays.values()]
    found = [np.concatenate(losses), *engine.parameters.values(), *slots]
    return [np.array(array) for array in found]


def digest(threads: int = 1) -> str:
    """All bits of everything trained."""
    total = hashlib.sha256()
    for name in NETWORKS:
        for optimizer in OPTIMIZERS.values():
            for array in trained(engine_for(name, optimizer, threads=threads)):
                total.update(array.tobytes())
    return total.hexdigest()


if __name__ == "__main__":
    print(digest(int(sys.argv[1])))
