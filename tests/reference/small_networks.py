"""Whole networks small enough that every derivative can be found by differences."""

from __future__ import annotations

import numpy as np

from undivided.engines.reference import ReferenceEngine
from undivided.layers import (
    Activation,
    Dense,
    Flatten,
    GlobalAveragePooling1D,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    Output,
    Patches,
    Rescaling,
    Residual,
    SinusoidalPositions,
)
from undivided.network import Network

__all__ = ["NETWORKS", "engine_for", "samples"]

NETWORKS: dict[str, Network] = {
    "as the MNIST classifier": Network(
        input=(6, 4),
        layers=(
            Rescaling(0.5),
            Patches(2),
            Dense(4),
            LearnedPositions(),
            Activation("relu"),
            MultiHeadAttention(num_heads=1, output_projection=False),
            Dense(5, activation="relu"),
            Dense(4),
            GlobalAveragePooling1D(),
            Output(3),
        ),
    ),
    "pre-norm, heads wider than the stream": Network(
        input=(3, 4),
        layers=(
            Residual((LayerNormalization(), MultiHeadAttention(num_heads=2, key_dim=3))),
            Residual((LayerNormalization(), Dense(5, activation="gelu"), Dense(4))),
            LayerNormalization(),
            GlobalAveragePooling1D(),
            Output(3),
        ),
    ),
    "channels, no biases, Flatten": Network(
        input=(4, 4, 2),
        layers=(
            Patches((2, 4)),
            Dense(6, bias=False),
            MultiHeadAttention(num_heads=3, bias=False),
            Flatten(),
            Dense(4, activation="gelu", bias=False),
            Output(2, bias=False),
        ),
    ),
    "residuals in residuals": Network(
        input=(3, 4),
        layers=(
            SinusoidalPositions(),
            Residual(
                (
                    Residual((Dense(4, activation="gelu"),)),
                    Residual((MultiHeadAttention(num_heads=2),)),
                    Dense(4),
                )
            ),
            Residual(()),
            GlobalAveragePooling1D(),
            Output(3),
        ),
    ),
    "a stack of the same block": Network(
        input=(2, 4),
        layers=(
            LearnedPositions(start="sinusoidal"),
            Residual((LayerNormalization(epsilon=0.1), MultiHeadAttention(num_heads=4))) * 2,
            Flatten(),
            Output(2),
        ),
    ),
    "a table": Network(
        input=(5,),
        layers=(
            Dense(4, activation="relu"),
            LayerNormalization(),
            Residual((Dense(4),)),
            Output(3),
        ),
    ),
    "a sequence of any length": Network(
        input=(None, 3),
        layers=(
            Dense(4),
            SinusoidalPositions(),
            Residual((LayerNormalization(), MultiHeadAttention(num_heads=2))),
            GlobalAveragePooling1D(),
            Output(3),
        ),
    ),
}


def engine_for(network: Network, dtype: type = np.float64, seed: int = 0) -> ReferenceEngine:
    """An engine whose parameters, biases and gains too, are all different."""
    engine = ReferenceEngine(network.plan(), dtype)
    random = np.random.default_rng(seed)
    for parameter in engine.parameters.values():
        parameter[...] = random.normal(scale=0.7, size=parameter.shape)
    return engine


def samples(network: Network, count: int, length: int = 3, seed: int = 1) -> np.ndarray:
    """[count, …] in float64; ragged axes get `length`."""
    shape = (length if n is None else n for n in network.input)
    return np.random.default_rng(seed).normal(size=(count, *shape))
