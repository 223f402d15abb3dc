"""embed: each id becomes its row of a table.

    y[s] = table[ids[s]]
    dtable[i] = Σ dy[s] over all places s where the id was i

Ids are whole numbers and have no gradient.
"""

# B batch, S tokens, V vocabulary, E width
#
# ids     [B, S], whole numbers below V
# table   [V, E]
# y       [B, S, E]

from __future__ import annotations

import numpy as np

__all__ = ["backward", "forward"]


def forward(ids: np.ndarray, table: np.ndarray) -> np.ndarray:
    return table[ids]


def backward(dy: np.ndarray, ids: np.ndarray, table: np.ndarray) -> np.ndarray:
    dtable = np.zeros(table.shape, table.dtype)
    np.add.at(dtable, ids, dy)  # one after the other: an id may stand in many places
    return dtable
