"""What is computed: shapes, variants, and the same inputs for every system."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["LEARNED", "VARIANTS", "WINDOW", "Case", "allowed_pairs", "arrays", "lengths"]
__all__ += ["operations"]

# B batch, H heads, S queries and keys, D width of a head

VARIANTS = ("full", "causal", "padding", "window", "bias")
"""Everything allowed; no key after the query; keys beyond a sample's length forbidden; at most
WINDOW rows away on either side; a bias [1, H, S, S] added to the scores, with its gradient."""
LEARNED = "bias"
WINDOW = 64


@dataclass(frozen=True)
class Case:
    """One call: forward, or forward and the gradients of all inputs."""

    shape: tuple[int, int, int, int]
    variant: str
    gradient: bool
    threads: int

    @property
    def title(self) -> str:
        shape = "×".join(map(str, self.shape))
        return f"{shape} {self.variant} {'forward+backward' if self.gradient else 'forward'}"


def arrays(case: Case) -> dict[str, np.ndarray]:
    """query, key, value and d_out [B, H, S, D], and the bias [1, H, S, S] of that variant."""
    random = np.random.default_rng(0)
    names = ("query", "key", "value", "d_out")
    found = {name: random.standard_normal(case.shape, dtype=np.float32) for name in names}
    if case.variant == "bias":
        _, heads, rows, _ = case.shape
        found["bias"] = random.standard_normal((1, heads, rows, rows), dtype=np.float32)
    return found


def lengths(case: Case) -> np.ndarray:
    """How many keys of each sample are real: from half of them to all."""
    batch, _, rows, _ = case.shape
    return np.random.default_rng(1).integers(rows // 2, rows + 1, batch)


def allowed_pairs(case: Case) -> int:
    """Pairs of a query and a key that may meet, over all samples and heads."""
    batch, heads, rows, _ = case.shape
    if case.variant == "causal":
        each = rows * (rows + 1) // 2
    elif case.variant == "padding":
        return heads * rows * int(lengths(case).sum())
    elif case.variant == "window":
        reach = min(WINDOW, rows - 1)
        each = rows * (2 * reach + 1) - reach * (reach + 1)
    else:
        each = rows * rows
    return batch * heads * each


def operations(case: Case) -> float:
    """Floating-point operations that the definition needs: two products forward, four backward.

    What is computed a second time, to save memory, is not counted, nor are exponentials.
    """
    products = 6 if case.gradient else 2
    return 2.0 * products * case.shape[3] * allowed_pairs(case)
