"""A pre-norm transformer that every system trains: its sizes, its network, its samples.

    x ── Dense or Embedding ── + positions ── L × [ + attention(norm(x)),  + feed_forward(norm(x)) ]
      ── norm ── mean over tokens ── 10 scores               an encoder
      ── norm ── 256 scores for every token                  a causal language model

The feed-forward part is four times as wide as the model, with the exact gelu. AdamW decays the
weights of linear layers and of the embedding's own table not.
"""

# N samples, B in a batch, S tokens, C features of a token, D model width, H heads, L blocks

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from undivided import Network

__all__ = [
    "CLASSES",
    "FEATURES",
    "VOCABULARY",
    "Encoder",
    "network_of",
    "samples_of",
    "sinusoidal",
]

FEATURES = 16
CLASSES = 10
VOCABULARY = 256


@dataclass(frozen=True)
class Encoder:
    """What is trained, and how much of it."""

    D: int
    H: int
    L: int
    S: int
    B: int
    causal: bool = False
    linear: bool = False
    ragged: bool = False
    dropout: float = 0.0
    steps: int = 8
    threads: int = 1
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    seed: int = 1

    @property
    def samples(self) -> int:
        return self.steps * self.B

    @property
    def title(self) -> str:
        sizes = f"D={self.D}, H={self.H}, L={self.L}, S={self.S}, B={self.B}"
        kind = ", linear attention" if self.linear else ""
        kind += ", causal, vocabulary 256" if self.causal else ""
        lengths = ", ragged" if self.ragged else ""
        return f"{sizes}{kind}{lengths}" + (f", dropout {self.dropout}" if self.dropout else "")


def network_of(task: Encoder) -> Network:
    """The task as undivided describes it; its parameters are those that all systems start from."""
    import undivided as u

    dropout = (u.Dropout(task.dropout),) if task.dropout else ()
    attention: dict[str, Any] = {"dropout": task.dropout} if task.dropout else {}
    if task.linear:
        attention["linear"] = True
    if task.causal:
        attention["causal"] = True
    block = (
        u.Residual([u.LayerNormalization(), u.MultiHeadAttention(task.H, **attention), *dropout]),
        u.Residual(
            [
                u.LayerNormalization(),
                u.Dense(4 * task.D, activation="gelu"),
                u.Dense(task.D),
                *dropout,
            ]
        ),
    )
    first = u.Embedding(VOCABULARY, task.D) if task.causal else u.Dense(task.D)
    last = (
        (u.Output(VOCABULARY),) if task.causal else (u.GlobalAveragePooling1D(), u.Output(CLASSES))
    )
    length = None if task.ragged else task.S
    return u.Network(
        input=(length,) if task.causal else (length, FEATURES),
        layers=(first, u.SinusoidalPositions(), *block * task.L, u.LayerNormalization(), *last),
        optimizer=u.AdamW(task.learning_rate, weight_decay=task.weight_decay),
    )


def samples_of(task: Encoder) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x, y, lengths), the same for every system: x padded to S with zeros."""
    generator = np.random.default_rng(task.seed)
    N, S = task.samples, task.S
    lengths = np.full(N, S)
    if task.ragged:
        lengths = generator.integers(S // 4, S + 1, N)
    if task.causal:
        text = generator.integers(0, VOCABULARY, (N, S + 1))
        return text[:, :-1].copy(), text[:, 1:].astype(np.int32), lengths
    x = generator.normal(size=(N, S, FEATURES)).astype(np.float32)
    x[np.arange(S) >= lengths[:, None]] = 0
    return x, generator.integers(0, CLASSES, N).astype(np.int32), lengths


def sinusoidal(tokens: int, width: int) -> np.ndarray:
    """sin(t/10000^(2⌊d/2⌋/D)) for even d, cos for odd: [tokens, width]."""
    column = np.arange(width)
    angles = np.arange(tokens)[:, None] / 10000.0 ** (2 * (column // 2) / width)
    return np.where(column % 2 == 0, np.sin(angles), np.cos(angles)).astype(np.float32)
