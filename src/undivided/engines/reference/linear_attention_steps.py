"""linear attention with nothing left out: every intermediate value of both ways, head by head.

The definition's own functions and its S×T weights, which no engine works out to predict or to
train: they are what `undivided view` shows.
"""

# B batch, H heads, G heads that share a key/value head, S queries, T keys, D width of queries and
# keys, F width of values

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from undivided.engines.reference.attention import heads_of, split
from undivided.engines.reference.linear_attention import Descent, Look, descend, look, mean_of

__all__ = ["LinearSteps", "steps"]


class LinearSteps(NamedTuple):
    """What goes in, the way to `out`, what comes back from the loss, and the way back."""

    query: np.ndarray  # [B, H, S, D]
    key: np.ndarray  # [B, H/G, T, D]
    value: np.ndarray  # [B, H/G, T, F]
    way: Look
    out: np.ndarray  # [B, H, S, F]
    d_out: np.ndarray  # [B, H, S, F]
    back: Descent


def steps(
    dy: np.ndarray, query: np.ndarray, key: np.ndarray, value: np.ndarray, **layer: Any
) -> LinearSteps:
    """The arguments are those of `linear_attention.backward`, as the plan has them."""
    d_out, q, k, v = split(dy, layer["heads"]), *heads_of(query, key, value, **layer)
    way = look(q, k, causal=layer.get("causal", False))
    return LinearSteps(q, k, v, way, mean_of(way, v), d_out, descend(way, d_out, q, k, v))
