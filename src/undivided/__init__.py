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
    Dense,
    Embedding,
    Flatten,
    GlobalAveragePooling1D,
    Layer,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    Output,
    Patches,
    Rescaling,
    Reshape,
    Residual,
    SinusoidalPositions,
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
    from undivided.training.history import Epoch, Evaluation
    from undivided.training.progress import Progress, StopTraining

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
    "BinaryCrossentropy",
    "BitsPerCharacter",
    "CategoricalCrossentropy",
    "Constant",
    "CosineDecay",
    "DataError",
    "Dense",
    "EarlyStopping",
    "Embedding",
    "Epoch",
    "Evaluation",
    "Execution",
    "ExponentialDecay",
    "ExportError",
    "Flatten",
    "GlobalAveragePooling1D",
    "Group",
    "Huber",
    "KeyValueCache",
    "LanguageError",
    "Layer",
    "LayerNormalization",
    "LearnedPositions",
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
    "Perplexity",
    "Progress",
    "RandomShift",
    "Rescaling",
    "Reshape",
    "Residual",
    "ShapeError",
    "SinusoidalPositions",
    "SparseCategoricalCrossentropy",
    "StepDecay",
    "StopTraining",
    "TopK",
    "Train",
    "TransformerDecoder",
    "TransformerEncoder",
    "UndividedError",
    "Warmup",
    "__version__",
    "attention",
    "attention_varlen",
    "attention_vjp",
    "check_gradients",
    "datasets",
    "export",
    "linear_attention",
    "linear_attention_vjp",
    "load",
    "masks",
    "parse",
    "parse_fragment",
    "positions",
    "read",
    "recipe",
    "recipes",
    "reference",
    "rotary",
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
    "load": "undivided.model",
    "parse": "undivided.language",
    "parse_fragment": "undivided.language",
    "read": "undivided.language",
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
