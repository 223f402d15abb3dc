"""attention with nothing left out: every intermediate value of both ways, head by head.

The same functions that attention.py defines attention by, kept side by side for whoever wants to
look at them: `undivided view` works a query through with these numbers.
"""

# B batch, H heads, G heads that share a key/value head, S queries, T keys, D width of queries and
# keys, F width of values

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from undivided.engines.reference.attention import (
    Descent,
    Look,
    descend,
    heads_of,
    look,
    options_of,
    product,
    split,
    spread,
)

__all__ = ["Steps", "steps"]


class Steps(NamedTuple):
    """What goes in, the way to `out`, what comes back from the loss, and the way back."""

    query: np.ndarray  # [B, H, S, D]
    key: np.ndarray  # [B, H/G, T, D]
    value: np.ndarray  # [B, H/G, T, F]
    scale: float
    way: Look
    out: np.ndarray  # [B, H, S, F]
    d_out: np.ndarray  # [B, H, S, F]
    back: Descent


def steps(
    dy: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    relative: np.ndarray | None = None,
    **layer: Any,
) -> Steps:
    """The arguments are those of `attention.backward`, as the plan has them."""
    heads = layer["heads"]
    d_out, q, k, v = split(dy, heads), *heads_of(query, key, value, **layer)
    options = options_of(q, k, relative, **layer)
    way = look(q, k, **options)
    out = product(way.p * way.kept, way.allowed, spread(v, heads))
    back = descend(way, d_out, q, k, v, **options)
    return Steps(q, k, v, layer["scale"], way, out, d_out, back)
