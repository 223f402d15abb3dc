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
    LanguageError,
    ModelFileError,
    NonFiniteError,
    ShapeError,
    UndividedError,
)
from undivided.layers import (
    Activation,
    Dense,
    Flatten,
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
)
from undivided.network import Execution, Network, Train
from undivided.recipes import recipe, recipes
from undivided.training.optimizers import SGD, Adam, AdamW
from undivided.training.schedules import ExponentialDecay

if TYPE_CHECKING:
    from undivided import data as datasets
    from undivided.gradient_check import check_gradients
    from undivided.language import parse, parse_fragment, read
    from undivided.model import Model, load
    from undivided.training.history import Epoch, Evaluation
    from undivided.training.progress import Progress

__all__ = [
    "SGD",
    "Activation",
    "Adam",
    "AdamW",
    "ArgumentError",
    "DataError",
    "Dense",
    "Epoch",
    "Evaluation",
    "Execution",
    "ExponentialDecay",
    "Flatten",
    "GlobalAveragePooling1D",
    "LanguageError",
    "Layer",
    "LayerNormalization",
    "LearnedPositions",
    "Model",
    "ModelFileError",
    "MultiHeadAttention",
    "Network",
    "NonFiniteError",
    "Output",
    "Patches",
    "Progress",
    "Rescaling",
    "Residual",
    "ShapeError",
    "SinusoidalPositions",
    "Train",
    "UndividedError",
    "__version__",
    "check_gradients",
    "datasets",
    "load",
    "parse",
    "parse_fragment",
    "read",
    "recipe",
    "recipes",
]

# What describing a network does not need is imported when it is first asked for.
_LATER = {
    "Epoch": "undivided.training.history",
    "Evaluation": "undivided.training.history",
    "Model": "undivided.model",
    "Progress": "undivided.training.progress",
    "check_gradients": "undivided.gradient_check",
    "datasets": "undivided.data",
    "load": "undivided.model",
    "parse": "undivided.language",
    "parse_fragment": "undivided.language",
    "read": "undivided.language",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _LATER:
        raise AttributeError(f"module 'undivided' has no attribute {name!r}")
    module = import_module(_LATER[name])
    value = module if name == "datasets" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
