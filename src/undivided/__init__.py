"""undivided: attention models, described once and trained at the speed of the hardware.

    network = undivided.recipe("digits-attention")     # or read("mine.neural"), parse(text)
    data = undivided.datasets.digits()
    model = undivided.Model(network, seed=1)
    model.fit(data.train, test=data.test, progress=True)
    model.save("digits.safetensors")

This file is the public contract and nothing else.
"""

from typing import TYPE_CHECKING, Any

from undivided._version import __version__
from undivided.description import argument
from undivided.errors import (
    ArgumentError,
    DataError,
    ExportError,
    LanguageError,
    ModelFileError,
    NonFiniteError,
    ShapeError,
    UndividedError,
)
from undivided.layers import (
    Activation,
    AttentionPooling,
    ClassToken,
    Conv1D,
    Conv2D,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GatedFeedForward,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    Layer,
    LayerNormalization,
    LearnedPositions,
    MaxPooling1D,
    MaxPooling2D,
    MultiHeadAttention,
    Output,
    Patches,
    Permute,
    Rescaling,
    Reshape,
    Residual,
    RMSNormalization,
    SinusoidalPositions,
    TokenAt,
    TransformerDecoder,
    TransformerEncoder,
)
from undivided.network import Execution, Network, Train
from undivided.recipes import recipe, recipes
from undivided.training.augmentation import RandomShift
from undivided.training.losses import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    Huber,
    MeanAbsoluteError,
    MeanSquaredError,
    SparseCategoricalCrossentropy,
)
from undivided.training.metrics import (
    MAE,
    MSE,
    R2,
    Accuracy,
    BitsPerCharacter,
    Perplexity,
    TopK,
)
from undivided.training.optimizers import SGD, Adam, AdamW, Group
from undivided.training.schedules import (
    Constant,
    CosineDecay,
    ExponentialDecay,
    OneCycle,
    StepDecay,
    Warmup,
)
from undivided.training.stopping import EarlyStopping

if TYPE_CHECKING:
    from undivided import data as datasets
    from undivided import export, masks, positions, reference
    from undivided._operator.attention import attention, attention_varlen, attention_vjp
    from undivided._operator.cache import KeyValueCache
    from undivided._operator.linear import linear_attention, linear_attention_vjp
    from undivided._operator.rotary import rotary
    from undivided.gradient_check import check_gradients
    from undivided.language import parse, parse_fragment, read
    from undivided.model import Model, load
    from undivided.overriding import override
    from undivided.registering import register, use
    from undivided.torch_states import from_torch
    from undivided.training.history import Epoch, Evaluation
    from undivided.training.progress import Progress, StopTraining
    from undivided.weights import WeightsReport

__all__ = [
    "MAE",
    "MSE",
    "R2",
    "SGD",
    "Accuracy",
    "Activation",
    "Adam",
    "AdamW",
    "ArgumentError",
    "AttentionPooling",
    "BinaryCrossentropy",
    "BitsPerCharacter",
    "CategoricalCrossentropy",
    "ClassToken",
    "Constant",
    "Conv1D",
    "Conv2D",
    "CosineDecay",
    "DataError",
    "Dense",
    "Dropout",
    "EarlyStopping",
    "Embedding",
    "Epoch",
    "Evaluation",
    "Execution",
    "ExponentialDecay",
    "ExportError",
    "Flatten",
    "GatedFeedForward",
    "GlobalAveragePooling1D",
    "GlobalAveragePooling2D",
    "GlobalMaxPooling1D",
    "GlobalMaxPooling2D",
    "Group",
    "Huber",
    "KeyValueCache",
    "LanguageError",
    "Layer",
    "LayerNormalization",
    "LearnedPositions",
    "MaxPooling1D",
    "MaxPooling2D",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Model",
    "ModelFileError",
    "MultiHeadAttention",
    "Network",
    "NonFiniteError",
    "OneCycle",
    "Output",
    "Patches",
    "Permute",
    "Perplexity",
    "Progress",
    "RMSNormalization",
    "RandomShift",
    "Rescaling",
    "Reshape",
    "Residual",
    "ShapeError",
    "SinusoidalPositions",
    "SparseCategoricalCrossentropy",
    "StepDecay",
    "StopTraining",
    "TokenAt",
    "TopK",
    "Train",
    "TransformerDecoder",
    "TransformerEncoder",
    "UndividedError",
    "Warmup",
    "WeightsReport",
    "__version__",
    "argument",
    "attention",
    "attention_varlen",
    "attention_vjp",
    "check_gradients",
    "datasets",
    "export",
    "from_torch",
    "linear_attention",
    "linear_attention_vjp",
    "load",
    "masks",
    "override",
    "parse",
    "parse_fragment",
    "positions",
    "read",
    "recipe",
    "recipes",
    "reference",
    "register",
    "rotary",
    "use",
]

# What describing a network does not need is imported when it is first asked for.
_MODULES = {
    "datasets": "undivided.data",
    "export": "undivided.export",
    "masks": "undivided.masks",
    "positions": "undivided.positions",
    "reference": "undivided.reference",
    "torch": "undivided.torch",  # not in __all__: it needs PyTorch
}
_LATER = {
    "Epoch": "undivided.training.history",
    "WeightsReport": "undivided.weights",
    "Evaluation": "undivided.training.history",
    "Model": "undivided.model",
    "Progress": "undivided.training.progress",
    "StopTraining": "undivided.training.progress",
    "KeyValueCache": "undivided._operator.cache",
    "attention": "undivided._operator.attention",
    "attention_varlen": "undivided._operator.attention",
    "attention_vjp": "undivided._operator.attention",
    "check_gradients": "undivided.gradient_check",
    "linear_attention": "undivided._operator.linear",
    "linear_attention_vjp": "undivided._operator.linear",
    "from_torch": "undivided.torch_states",
    "load": "undivided.model",
    "parse": "undivided.language",
    "parse_fragment": "undivided.language",
    "override": "undivided.overriding",
    "read": "undivided.language",
    "register": "undivided.registering",
    "use": "undivided.registering",
    "rotary": "undivided._operator.rotary",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _MODULES:
        value: Any = import_module(_MODULES[name])
    elif name in _LATER:
        value = getattr(import_module(_LATER[name]), name)
    else:
        raise AttributeError(f"module 'undivided' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
