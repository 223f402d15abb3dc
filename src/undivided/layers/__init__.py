"""The layers: one file each, with its arguments, its lowering and its documentation."""

from undivided.layers.activation import Activation
from undivided.layers.attention import MultiHeadAttention
from undivided.layers.base import Layer, Repeat
from undivided.layers.class_token import ClassToken, TokenAt
from undivided.layers.convolution import Conv1D, Conv2D
from undivided.layers.dense import Dense, Output
from undivided.layers.dropout import Dropout
from undivided.layers.embedding import Embedding
from undivided.layers.flatten import Flatten
from undivided.layers.gated import GatedFeedForward
from undivided.layers.normalization import LayerNormalization, RMSNormalization
from undivided.layers.patches import Patches
from undivided.layers.pooling import (
    AttentionPooling,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    MaxPooling1D,
    MaxPooling2D,
)
from undivided.layers.positions import LearnedPositions, SinusoidalPositions
from undivided.layers.rescaling import Rescaling
from undivided.layers.residual import Residual
from undivided.layers.shapes import Permute, Reshape
from undivided.layers.transformer import TransformerDecoder, TransformerEncoder

__all__ = [
    "Activation",
    "AttentionPooling",
    "ClassToken",
    "Conv1D",
    "Conv2D",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GatedFeedForward",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "Layer",
    "LayerNormalization",
    "LearnedPositions",
    "MaxPooling1D",
    "MaxPooling2D",
    "MultiHeadAttention",
    "Output",
    "Patches",
    "Permute",
    "RMSNormalization",
    "Repeat",
    "Rescaling",
    "Reshape",
    "Residual",
    "SinusoidalPositions",
    "TokenAt",
    "TransformerDecoder",
    "TransformerEncoder",
]
