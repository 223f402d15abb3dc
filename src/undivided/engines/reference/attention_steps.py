"""attention with nothing left out: every intermediate value of both ways, head by head.

The same functions that attention.py defines attention by, kept side by side for whoever wants to
look at them: `undivided view` works a query through with these numbers.
"""

# B batch, H heads, G heads that share a key/value head, S queries, T keys, D width of queries and
# keys, F width of values

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from undivided.engines.reference.attention import (
    Descent,
    Look,
    descend,
    look,
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
    heads: int,
    scale: float,
) -> Steps:
    """The arguments are those of `attention.backward`, as the plan has them."""
    d_out, q, k, v = (split(x, heads) for x in (dy, query, key, value))
    way = look(q, k, scale=scale)
    out = product(way.p * way.kept, way.allowed, spread(v, heads))
    back = descend(way, d_out, q, k, v, scale=scale)
    return Steps(q, k, v, scale, way, out, d_out, back)
