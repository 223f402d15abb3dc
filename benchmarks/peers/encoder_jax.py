"""JAX on the encoder: an epoch is one compiled call, a `scan` over batches with donated state.

Query, key and value are one product, attention is written out (`jax.nn.dot_product_attention` is
slower on a CPU: LOG.md), AdamW is a `tree.map`. A ragged batch is padded to S and masked: a shape
of its own for each batch would be compiled anew. Linear attention is as PyTorch's peer has it.
"""

# the letters of `encoder.py`

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from peers.encoder import Encoder, samples_of, sinusoidal

__all__ = ["Jax"]

Parameters = dict[str, Any]
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


def arranged(task: Encoder, given: Sequence[np.ndarray]) -> Parameters:
    """undivided's parameters, in the order in which its plan lists them."""
    rest = iter(map(jnp.asarray, given))

    def pair() -> tuple[jax.Array, jax.Array]:
        return next(rest), next(rest)

    first = (next(rest),) if task.causal else pair()
    blocks = []
    for _ in range(task.L):
        norm_1, pairs = pair(), [pair() for _ in range(3)]
        qkv = tuple(jnp.concatenate(each, axis=-1) for each in zip(*pairs, strict=True))
        blocks.append((norm_1, qkv, pair(), pair(), pair(), pair()))
    return {"first": first, "blocks": blocks, "norm": pair(), "last": pair()}


def normalized(x: jax.Array, pair: tuple[jax.Array, jax.Array]) -> jax.Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = jnp.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)
    return centred / deviation * pair[0] + pair[1]


CHUNK = 64


def linear_attention(
    query: jax.Array, key: jax.Array, value: jax.Array, valid: jax.Array | None, causal: bool
) -> jax.Array:
    query, key = jax.nn.elu(query) + 1, jax.nn.elu(key) + 1
    if valid is not None:
        key = key * valid[:, None, :, None]
    if not causal:
        return query @ (key.swapaxes(-1, -2) @ value) / (query @ key.sum(axis=-2)[..., None])
    value = jnp.concatenate([value, jnp.ones_like(value[..., :1])], axis=-1)
    B, H, S, _ = query.shape
    query, key, value = (
        x.reshape(B, H, S // CHUNK, CHUNK, x.shape[-1]) for x in (query, key, value)
    )
    states = key.swapaxes(-1, -2) @ value
    before = states.cumsum(axis=2) - states
    both = query @ before + jnp.tril(query @ key.swapaxes(-1, -2)) @ value
    both = both.reshape(B, H, S, -1)
    return both[..., :-1] / both[..., -1:]


def scores_of(
    p: Parameters, x: jax.Array, valid: jax.Array | None, key: jax.Array, task: Encoder
) -> jax.Array:
    B, S = x.shape[:2]
    H, D, rate = task.H, task.D, task.dropout

    def dropped(x: jax.Array, number: int) -> jax.Array:
        if not rate:
            return x
        kept = jax.random.bernoulli(jax.random.fold_in(key, number), 1 - rate, x.shape)
        return jnp.where(kept, x / (1 - rate), 0)

    x = p["first"][0][x] if task.causal else x @ p["first"][0] + p["first"][1]
    x = x + sinusoidal(task.S, D)[:S]
    allowed = None
    if task.causal and not task.linear:
        allowed = jnp.tril(jnp.ones((S, S), bool))
    if valid is not None:
        allowed = valid[:, None, None, :] if allowed is None else allowed & valid[:, None, None, :]
    for i, (norm_1, qkv, output, norm_2, wide, narrow) in enumerate(p["blocks"]):
        joined = normalized(x, norm_1) @ qkv[0] + qkv[1]
        query, keys, value = joined.reshape(B, S, 3, H, D // H).transpose(2, 0, 3, 1, 4)
        if task.linear:
            attended = linear_attention(query, keys, value, valid, task.causal)
        else:
            scores = query @ keys.swapaxes(-1, -2) * (D // H) ** -0.5
            if allowed is not None:
                scores = jnp.where(allowed, scores, -jnp.inf)
            attended = dropped(jax.nn.softmax(scores, axis=-1), 3 * i) @ value
        merged = attended.transpose(0, 2, 1, 3).reshape(B, S, D)
        x = x + dropped(merged @ output[0] + output[1], 3 * i + 1)
        hidden = jax.nn.gelu(normalized(x, norm_2) @ wide[0] + wide[1], approximate=False)
        x = x + dropped(hidden @ narrow[0] + narrow[1], 3 * i + 2)
    x = normalized(x, p["norm"])
    if not task.causal:
        x = (
            x.mean(axis=1)
            if valid is None
            else jnp.average(
                x, axis=1, weights=jnp.broadcast_to(valid[..., None], x.shape).astype(x.dtype)
            )
        )
    return x @ p["last"][0] + p["last"][1]


def epoch(
    state: Any, x: jax.Array, y: jax.Array, lengths: jax.Array, batches: jax.Array, task: Encoder
) -> tuple[Any, jax.Array]:
    """One AdamW step for each row of `batches` [steps, B]; the state, and the mean loss."""

    def loss_of(p: Parameters, batch: jax.Array, key: jax.Array) -> jax.Array:
        valid = jnp.arange(task.S) < lengths[batch][:, None] if task.ragged else None
        scores = jax.nn.log_softmax(scores_of(p, x[batch], valid, key, task))
        return -jnp.take_along_axis(scores, y[batch][..., None], axis=-1).mean()

    def decays(path: Any, each: jax.Array) -> bool:
        return each.ndim == 2 and not (task.causal and path[0].key == "first")

    def step(state: Any, batch: jax.Array) -> tuple[Any, jax.Array]:
        p, mean, square, t = state
        t = t + 1
        key = jax.random.fold_in(jax.random.key(task.seed), t)
        loss, g = jax.value_and_grad(loss_of)(p, batch, key)
        mean = jax.tree.map(lambda m, g: m + (1 - BETA_1) * (g - m), mean, g)
        square = jax.tree.map(lambda v, g: v + (1 - BETA_2) * (g * g - v), square, g)
        rate = task.learning_rate

        def update(path: Any, p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
            kept = 1 - rate * task.weight_decay if decays(path, p) else 1.0
            root = jnp.sqrt(v / (1 - BETA_2**t)) + EPSILON
            return p * kept - rate * m / (1 - BETA_1**t) / root

        p = jax.tree_util.tree_map_with_path(update, p, mean, square)
        return (p, mean, square, t), loss

    state, losses = jax.lax.scan(step, state, batches)
    return state, losses.mean()


class Jax:
    def __init__(self) -> None:
        self.loss = float("nan")

    def prepare(self, task: Encoder, parameters: Sequence[np.ndarray]) -> None:
        self.task = task
        self.data = tuple(map(jnp.asarray, samples_of(task)))
        p = arranged(task, parameters)
        zeros = jax.tree.map(jnp.zeros_like, p)
        self.state = (p, zeros, jax.tree.map(jnp.copy, zeros), jnp.zeros((), jnp.float32))
        self._jitted = jax.jit(partial(epoch, task=task), donate_argnums=0)
        self._compiled: dict[int, Any] = {}
        self._for_steps(task.steps)

    def epoch(self, order: np.ndarray) -> float:
        batches = order.astype(np.int32).reshape(-1, self.task.B)
        run = self._for_steps(len(batches))
        started = perf_counter()
        self.state, loss = run(self.state, *self.data, jnp.asarray(batches))
        self.loss = float(loss)
        jax.block_until_ready(self.state)
        return perf_counter() - started

    def _for_steps(self, steps: int) -> Any:
        if steps not in self._compiled:
            batches = jax.ShapeDtypeStruct((steps, self.task.B), jnp.int32)
            run = self._jitted.lower(self.state, *self.data, batches)
            self._compiled[steps] = run.compile()
        return self._compiled[steps]
