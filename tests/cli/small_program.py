"""A small network with its data, for running the whole program in a moment."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
from click.testing import Result

__all__ = ["ENGINES", "NETWORK", "Run", "arrays", "write_folder"]

Run = Callable[..., Result]

ENGINES = ["reference"]
if importlib.util.find_spec("undivided._native"):
    ENGINES.append("native")

NETWORK = """
network Small {
  input: (4, 4)
  data: "small.npz"
  layers:
    Patches(2)
    Dense(8)
    MultiHeadAttention(2)
    GlobalAveragePooling1D()
    Output(3)
  optimizer: Adam(learning_rate=0.02)
  train { epochs: 3 batch_size: 16 seed: 5 }
  execution { engine: "reference" }
}
"""


def arrays(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures whose class is told by where they are bright."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count)
    x = rng.normal(size=(count, 4, 4)).astype(np.float32)
    x[np.arange(count), y] += 3
    return x, y


def write_folder(folder: Path) -> None:
    """Put small.neural and small.npz there."""
    (folder / "small.neural").write_text(NETWORK)
    x, y = arrays(64, 0)
    x_test, y_test = arrays(32, 1)
    np.savez(folder / "small.npz", x=x, y=y, x_test=x_test, y_test=y_test)
