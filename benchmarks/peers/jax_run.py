"""JAX, set up as someone would who wants it fast on a CPU.

A whole epoch is one compiled call: a `scan` over batches that gathers, takes value and gradient
and updates, with the parameters donated. Data lie on the device as patches. (Which other ways
were tried: LOG.md.)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from peers.system import Task, mnist_patches

__all__ = ["Jax"]

Parameters = list[jax.Array]


def logits(p: Parameters, x: jax.Array, *, pooled: bool) -> jax.Array:
    """x [B, S, C] → [B, 10]; D, F as in `system.py`."""
    w_patch, b_patch, positions, w_qkv, b_qkv, w_1, b_1, w_2, b_2, w_class, b_class = p
    width = w_patch.shape[1]
    token = jax.nn.relu(x @ w_patch + b_patch + positions)
    query, key, value = jnp.split(token @ w_qkv + b_qkv, 3, axis=-1)  # each [B, S, D]
    scores = jnp.einsum("bqd,bkd->bqk", query, key) * width**-0.5
    attended = jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores, axis=-1), value)
    hidden = jax.nn.relu(attended @ w_1 + b_1)  # [B, S, F]
    mean = hidden.mean(axis=1) @ w_2 + b_2 if pooled else (hidden @ w_2 + b_2).mean(axis=1)
    return mean @ w_class + b_class


def epoch(
    p: Parameters,
    x: jax.Array,
    y: jax.Array,
    batches: jax.Array,
    rate: float,
    pooled: bool,
) -> tuple[Parameters, jax.Array]:
    """One step for each row of `batches` [steps, B]; the parameters, and the mean loss."""

    def loss_of(p: Parameters, batch: jax.Array) -> jax.Array:
        scores = jax.nn.log_softmax(logits(p, x[batch], pooled=pooled))
        return -jnp.take_along_axis(scores, y[batch][:, None], axis=1).mean()

    def step(p: Parameters, batch: jax.Array) -> tuple[Parameters, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(p, batch)
        return jax.tree.map(lambda each, gradient: each - rate * gradient, p, gradients), loss

    p, losses = jax.lax.scan(step, p, batches)
    return p, losses.mean()


class Jax:
    def __init__(self, pooled: bool = False) -> None:
        self.pooled = pooled
        self.loss = float("nan")

    def prepare(self, task: Task, parameters: Sequence[np.ndarray]) -> None:
        x, y = mnist_patches(task.samples)
        self.x, self.y = jnp.asarray(x), jnp.asarray(y)
        self.batch_size = task.batch_size
        w_patch, b_patch, positions, *attention = parameters[:9]
        w_qkv, b_qkv = (np.concatenate(attention[i::2], axis=-1) for i in (0, 1))
        joined = (w_patch, b_patch, positions, w_qkv, b_qkv, *parameters[9:])
        self.p = [jnp.array(each) for each in joined]
        run = partial(epoch, rate=task.learning_rate, pooled=self.pooled)
        self._jitted = jax.jit(run, donate_argnums=0)
        self._compiled: dict[int, Any] = {}
        self._for_steps(task.samples // task.batch_size)

    def epoch(self, order: np.ndarray) -> float:
        batches = order.astype(np.int32).reshape(-1, self.batch_size)
        run = self._for_steps(len(batches))
        started = perf_counter()
        self.p, loss = run(self.p, self.x, self.y, jnp.asarray(batches))
        self.loss = float(loss)
        jax.block_until_ready(self.p)
        return perf_counter() - started

    def _for_steps(self, steps: int) -> Any:
        if steps not in self._compiled:
            batches = jax.ShapeDtypeStruct((steps, self.batch_size), jnp.int32)
            self._compiled[steps] = self._jitted.lower(self.p, self.x, self.y, batches).compile()
        return self._compiled[steps]
