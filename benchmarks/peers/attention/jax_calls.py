"""JAX: attention written out and `jax.nn.dot_product_attention`, each as one `jit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from peers.attention.calls import Form
from peers.attention.case import LEARNED, WINDOW, Case, arrays, lengths

__all__ = ["Jax"]


def allowed(case: Case) -> jax.Array | None:
    rows = jnp.arange(case.shape[2])
    if case.variant == "causal":
        return rows[:, None] >= rows
    if case.variant == "padding":
        return (rows < jnp.asarray(lengths(case))[:, None])[:, None, None, :]
    if case.variant == "window":
        return jnp.abs(rows[:, None] - rows) <= WINDOW
    return None


class Jax:
    def __init__(self, threads: int) -> None:
        pass  # it takes the cores that the process may use

    def forms(self, case: Case) -> dict[str, Form]:
        mask = allowed(case)
        scale = case.shape[3] ** -0.5

        def written_out(q: Any, k: Any, v: Any, bias: Any = None) -> Any:
            scores = jnp.einsum("bhsd,bhtd->bhst", q, k) * scale
            if bias is not None:
                scores = scores + bias
            if mask is not None:
                scores = jnp.where(mask, scores, -jnp.inf)
            return jnp.einsum("bhst,bhtd->bhsd", jax.nn.softmax(scores, axis=-1), v)

        def its_own(q: Any, k: Any, v: Any, bias: Any = None) -> Any:  # [B, S, H, D]
            causal = case.variant == "causal"
            return jax.nn.dot_product_attention(
                q, k, v, bias, mask=None if causal else mask, is_causal=causal
            )

        found = {"written out": self._form(case, written_out, turned=False)}
        found["dot_product_attention"] = self._form(case, its_own, turned=True)
        return found

    @staticmethod
    def _form(case: Case, attend: Callable[..., Any], *, turned: bool) -> Form:
        """turned: rows before heads, as the inputs would lie for a caller who has them so."""
        given = arrays(case)

        def there(name: str) -> jax.Array:
            x = given[name]
            return jnp.asarray(np.ascontiguousarray(x.swapaxes(1, 2)) if turned else x)

        d_out = there("d_out")
        inputs = tuple(there(name) for name in ("query", "key", "value"))
        if LEARNED in given:
            inputs = (*inputs, jnp.asarray(given[LEARNED]))

        def back(x: jax.Array) -> jax.Array:
            return x.swapaxes(1, 2) if turned and x.shape == d_out.shape else x

        forward = jax.jit(attend)

        @jax.jit
        def both(d_out: jax.Array, *inputs: jax.Array) -> tuple[jax.Array, ...]:
            out, pullback = jax.vjp(attend, *inputs)
            return (out, *pullback(d_out))

        class Results(tuple[jax.Array, ...]):
            """In the order of every other system, once somebody looks."""

            def __iter__(self) -> Any:
                return map(back, super().__iter__())

        def call() -> Results:
            found = both(d_out, *inputs) if case.gradient else (forward(*inputs),)
            return Results(jax.block_until_ready(found))

        return call
