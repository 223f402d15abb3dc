"""Networks in which something else may come to lie behind the last feature of a row.

The engine pads rows to whole vectors and counts on zeros there: a number that is none, or a
gradient that belongs to nothing, would come back through the next product.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
from agreement import batch_for, fill, start_values
from native_cases import network, pooled
from small_models import NETWORKS, STEPS

from undivided.engines.native import NativeEngine
from undivided.layers import (
    Activation,
    Dense,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    Patches,
    Rescaling,
    Residual,
)
from undivided.network import Network
from undivided.training.optimizers import Optimizer

__all__ = ["PADDED", "padding", "padding_after_training"]

PADDED: dict[str, Network] = {
    **NETWORKS,
    "heads that share vectors": pooled((5, 6), MultiHeadAttention(3), MultiHeadAttention(2)),
    "narrow heads": pooled((3, 7), MultiHeadAttention(2, key_dim=1, output_projection=False)),
    "wide heads": pooled((3, 7), MultiHeadAttention(2, key_dim=17, bias=False)),
    "heads after heads": pooled(
        (4, 6), *(MultiHeadAttention(2, output_projection=False),) * 3, Dense(5)
    ),
    "offsets": pooled(
        (4, 6), Rescaling(1, 3), Dense(5), Rescaling(2, -1), Dense(7), Rescaling(1, 2)
    ),
    "offsets and heads": pooled((4, 6), Dense(5), Rescaling(2, -1), MultiHeadAttention(1)),
    "positions": pooled(
        (4, 6), LearnedPositions(), Activation("relu"), LearnedPositions(), Dense(3)
    ),
    "normalized": pooled((4, 6), Rescaling(1, 1), LayerNormalization(), LayerNormalization()),
    "activations": pooled(
        (4, 6), Rescaling(1, 1), *(Activation("gelu"), Dense(9), Activation("relu")) * 2
    ),
    "picture": network((4, 6, 3), Dense(5), Rescaling(1, 1), Patches(2), Dense(7)),
    "residuals": pooled(
        (4, 6), Rescaling(1, 1), Residual((Dense(6), Residual((MultiHeadAttention(2),))))
    ),
}


def padding(flat: np.ndarray, views: Mapping[str, np.ndarray]) -> np.ndarray:
    """What lies in a flat array besides the views of it."""
    outside = np.ones(flat.size, bool)
    for view in views.values():
        first = (view.__array_interface__["data"][0] - flat.__array_interface__["data"][0]) // 4
        steps = [stride // 4 for stride in view.strides]
        places = first + sum(
            (np.arange(n) * step).reshape([-1 if a == axis else 1 for a in range(view.ndim)])
            for axis, (n, step) in enumerate(zip(view.shape, steps, strict=True))
        )
        assert outside[places].all(), "two views share a number"
        outside[places] = False
    return flat[outside]


def padding_after_training(name: str, optimizer: Optimizer) -> np.ndarray:
    """All that lies behind parameters and slots after some steps, where zeros belong."""
    plan = dataclasses.replace(PADDED[name], optimizer=optimizer).plan()
    engine = NativeEngine(plan, 2)
    fill(engine, start_values(plan))
    lengths = (7, 1, 20, 3) * 4 if name == "any length" else ()
    batch = batch_for(plan, 16, lengths=lengths)
    # What another call leaves in the memory that both work in must not come through.
    engine.loss_and_gradients(batch.x, batch.y)
    order = np.arange(16 * STEPS, dtype=np.uint32) % 16
    assert not engine.train(batch.x, batch.y, order, 16, 0, np.full(STEPS, 0.01)).failed
    found = [padding(engine._flat, engine.parameters)]
    found += [padding(flat, engine.slots[slot]) for slot, flat in engine._slots.items()]
    return np.concatenate(found)
