"""PyTorch, set up as someone would who wants it fast on a CPU.

The data are ready-made patches in memory; query, key and value are one product; scores are
scaled inside `baddbmm`. Three ways to take a step (which were kept, and which not: LOG.md):

    eager    forward, autograd, one `foreach` update
    compile  the loss compiled, its backward by autograd, one `foreach` update: the customary way
    step     gathering, forward, gradients (`torch.func`) and update as one compiled function
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from peers.system import Task, mnist_patches

__all__ = ["Torch"]

WARM_UP_STEPS = 20


def logits(p: Sequence[Tensor], x: Tensor, *, sdpa: bool, pooled: bool) -> Tensor:
    """x [B, S, C] → [B, 10]; D, F as in `system.py`."""
    w_patch, b_patch, positions, w_qkv, b_qkv, w_1, b_1, w_2, b_2, w_class, b_class = p
    batch, tokens, pixels = x.shape
    width = w_patch.shape[1]
    token = torch.addmm(b_patch, x.reshape(-1, pixels), w_patch).view(batch, tokens, width)
    token = torch.relu(token + positions)
    qkv = torch.addmm(b_qkv, token.view(-1, width), w_qkv).view(batch, tokens, 3 * width)
    query, key, value = qkv.split(width, dim=-1)  # each [B, S, D]
    if sdpa:
        heads = (each.unsqueeze(1) for each in (query, key, value))
        attended = F.scaled_dot_product_attention(*heads).squeeze(1)
    else:
        nothing = query.new_zeros(1)
        keys = key.transpose(1, 2)
        scores = torch.baddbmm(nothing, query, keys, beta=0, alpha=width**-0.5)  # [B, S, S]
        attended = torch.softmax(scores, dim=-1) @ value
    hidden = torch.relu(torch.addmm(b_1, attended.reshape(-1, width), w_1))  # [B·S, F]
    if pooled:
        mean = torch.addmm(b_2, hidden.view(batch, tokens, -1).mean(dim=1), w_2)
    else:
        mean = torch.addmm(b_2, hidden, w_2).view(batch, tokens, width).mean(dim=1)
    return torch.addmm(b_class, mean, w_class)


def merged(parameters: Sequence[np.ndarray]) -> list[Tensor]:
    """The parameters as tensors, those of query, key and value side by side."""
    w_patch, b_patch, positions, *attention = parameters[:9]
    w_qkv, b_qkv = (np.concatenate(attention[i::2], axis=-1) for i in (0, 1))
    joined = (w_patch, b_patch, positions, w_qkv, b_qkv, *parameters[9:])
    return [torch.tensor(array) for array in joined]


class Torch:
    def __init__(
        self, mode: Literal["eager", "compile", "step"], sdpa: bool = False, pooled: bool = False
    ) -> None:
        self.mode = mode
        self.logits = partial(logits, sdpa=sdpa, pooled=pooled)
        self.loss = float("nan")

    def prepare(self, task: Task, parameters: Sequence[np.ndarray]) -> None:
        torch.set_num_threads(task.threads)
        x, y = mnist_patches(task.samples)
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))
        self.batch_size = task.batch_size
        self.rate = task.learning_rate
        self.step = self._whole_step() if self.mode == "step" else self._step_by_autograd()
        # Compiled, and its buffers allocated, with parameters that are thrown away.
        self._start(parameters)
        batch = torch.arange(self.batch_size) % task.samples
        for _ in range(WARM_UP_STEPS):
            self.step(self.p, batch)
        self._start(parameters)

    def _start(self, parameters: Sequence[np.ndarray]) -> None:
        self.p = [p.requires_grad_(self.mode != "step") for p in merged(parameters)]

    def epoch(self, order: np.ndarray) -> float:
        indices = torch.from_numpy(order.astype(np.int64))
        total = torch.zeros(())
        started = perf_counter()
        batches = indices.split(self.batch_size)
        for batch in batches:
            total += self.step(self.p, batch)
        self.loss = float(total) / len(batches)
        return perf_counter() - started

    def _loss(self, p: Sequence[Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(p, x), y)

    def _step_by_autograd(self) -> Callable[[list[Tensor], Tensor], Tensor]:
        loss_of: Any = self._loss
        if self.mode == "compile":
            loss_of = torch.compile(self._loss, fullgraph=True, dynamic=False)

        def step(p: list[Tensor], batch: Tensor) -> Tensor:
            loss = loss_of(p, self.x[batch], self.y[batch])
            gradients = torch.autograd.grad(loss, p)
            with torch.no_grad():
                torch._foreach_add_(p, gradients, alpha=-self.rate)
            return loss.detach()

        return step

    def _whole_step(self) -> Callable[[list[Tensor], Tensor], Tensor]:
        gradients_and_loss = torch.func.grad_and_value(self._loss)
        x, y, rate = self.x, self.y, self.rate

        def step(p: list[Tensor], batch: Tensor) -> Tensor:
            gradients, loss = gradients_and_loss(p, x[batch], y[batch])
            for each, gradient in zip(p, gradients, strict=True):
                each.sub_(gradient, alpha=rate)
            return loss

        # A C++ wrapper around the kernels: less interpreter in a step.
        options = {"cpp_wrapper": True}
        return torch.compile(step, fullgraph=True, dynamic=False, options=options)
