"""The layers: one file each, with its arguments, its lowering and its documentation."""

from undivided.layers.activation import Activation
from undivided.layers.attention import MultiHeadAttention
from undivided.layers.base import Layer, Repeat
from undivided.layers.dense import Dense, Output
from undivided.layers.dropout import Dropout
from undivided.layers.embedding import Embedding
from undivided.layers.flatten import Flatten
from undivided.layers.gated import GatedFeedForward
from undivided.layers.normalization import LayerNormalization, RMSNormalization
from undivided.layers.patches import Patches
from undivided.layers.pooling import GlobalAveragePooling1D
from undivided.layers.positions import LearnedPositions, SinusoidalPositions
from undivided.layers.rescaling import Rescaling
from undivided.layers.residual import Residual
from undivided.layers.transformer import TransformerDecoder, TransformerEncoder

__all__ = [
    "Activation",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GatedFeedForward",
    "GlobalAveragePooling1D",
    "Layer",
    "LayerNormalization",
    "LearnedPositions",
    "MultiHeadAttention",
    "Output",
    "Patches",
    "RMSNormalization",
    "Repeat",
    "Rescaling",
    "Residual",
    "SinusoidalPositions",
    "TransformerDecoder",
    "TransformerEncoder",
]
