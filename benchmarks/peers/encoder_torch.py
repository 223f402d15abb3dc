"""PyTorch on the encoder, written as its best users write one.

Query, key and value are one product, attention is `scaled_dot_product_attention`, the update is
the fused AdamW. `compile` compiles the model, forward and backward. A ragged batch is padded to
its own longest sample and masked. Linear attention is written out; causal by chunks of 64 tokens,
whose states are one cumulative sum.
"""

# the letters of `encoder.py`

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from peers.encoder import CLASSES, FEATURES, VOCABULARY, Encoder, samples_of, sinusoidal

__all__ = ["Torch"]

CHUNK = 64


def linear_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> Tensor:
    query, key = F.elu(query) + 1, F.elu(key) + 1
    if mask is not None:
        key = key * mask.transpose(-1, -2)
    if not causal:
        sums = query @ key.sum(dim=-2)[..., None]
        return query @ (key.transpose(-1, -2) @ value) / sums
    value = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)
    query, key, value = (x.unflatten(2, (-1, CHUNK)) for x in (query, key, value))
    states = key.transpose(-1, -2) @ value
    before = states.cumsum(dim=2) - states
    both = query @ before + (query @ key.transpose(-1, -2)).tril() @ value
    both = both.flatten(2, 3)
    return both[..., :-1] / both[..., -1:]


class Block(nn.Module):
    def __init__(self, task: Encoder) -> None:
        super().__init__()
        self.heads, self.causal, self.dropout = task.H, task.causal, task.dropout
        self.linear = task.linear
        self.norm_1, self.norm_2 = nn.LayerNorm(task.D), nn.LayerNorm(task.D)
        self.qkv, self.output = nn.Linear(task.D, 3 * task.D), nn.Linear(task.D, task.D)
        self.wide, self.narrow = nn.Linear(task.D, 4 * task.D), nn.Linear(4 * task.D, task.D)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        B, S, D = x.shape
        qkv = self.qkv(self.norm_1(x)).view(B, S, 3, self.heads, D // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        if self.linear:
            attended = linear_attention(query, key, value, mask, self.causal)
        else:
            attended = F.scaled_dot_product_attention(
                query,
                key,
                value,
                attn_mask=mask,
                is_causal=self.causal,
                dropout_p=self.dropout if self.training else 0.0,
            )
        x = x + self._dropped(self.output(attended.transpose(1, 2).reshape(B, S, D)))
        return x + self._dropped(self.narrow(F.gelu(self.wide(self.norm_2(x)))))

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class Transformer(nn.Module):
    def __init__(self, task: Encoder) -> None:
        super().__init__()
        self.causal = task.causal
        self.first: nn.Module = (
            nn.Embedding(VOCABULARY, task.D) if task.causal else nn.Linear(FEATURES, task.D)
        )
        self.register_buffer("positions", torch.from_numpy(sinusoidal(task.S, task.D)))
        self.blocks = nn.ModuleList(Block(task) for _ in range(task.L))
        self.norm = nn.LayerNorm(task.D)
        self.last = nn.Linear(task.D, VOCABULARY if task.causal else CLASSES)

    def forward(self, x: Tensor, valid: Tensor | None) -> Tensor:
        x = self.first(x) + self.positions[: x.shape[1]]
        mask = None if valid is None else valid[:, None, None, :]
        for block in self.blocks:
            x = block(x, mask)
        x = self.norm(x)
        if self.causal:
            return self.last(x)
        if valid is None:
            return self.last(x.mean(dim=1))
        weight = valid[:, :, None].to(x.dtype)
        return self.last((x * weight).sum(dim=1) / weight.sum(dim=1))


def fill(model: Transformer, given: Sequence[np.ndarray]) -> None:
    """undivided's parameters, in the order in which its plan lists them; weights are [in, out]."""
    rest = iter(given)

    def take(target: nn.Module) -> None:
        """A layer's own; query, key and value side by side into one."""
        if isinstance(target, nn.Linear):
            count = 3 if target.out_features == 3 * target.in_features else 1
            pairs = [(next(rest), next(rest)) for _ in range(count)]
            target.weight.copy_(torch.from_numpy(np.concatenate([w for w, _ in pairs], axis=1)).T)
            target.bias.copy_(torch.from_numpy(np.concatenate([b for _, b in pairs])))
        elif isinstance(target, nn.LayerNorm):
            target.weight.copy_(torch.from_numpy(next(rest)))
            target.bias.copy_(torch.from_numpy(next(rest)))
        else:
            assert isinstance(target, nn.Embedding)
            target.weight.copy_(torch.from_numpy(next(rest)))

    with torch.no_grad():
        take(model.first)
        for block in model.blocks:
            assert isinstance(block, Block)
            for layer in (block.norm_1, block.qkv, block.output):
                take(layer)
            for layer in (block.norm_2, block.wide, block.narrow):
                take(layer)
        take(model.norm)
        take(model.last)


class Torch:
    def __init__(self, compiled: bool = False) -> None:
        self.compiled = compiled
        self.loss = float("nan")

    def prepare(self, task: Encoder, parameters: Sequence[np.ndarray]) -> None:
        torch.set_num_threads(task.threads)
        torch.manual_seed(task.seed)
        self.task = task
        x, y, lengths = samples_of(task)
        self.x, self.y = torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))
        self.lengths = torch.from_numpy(lengths)
        self.parameters = parameters
        self.start()
        self.epoch(np.arange(min(task.samples, 3 * task.B)))  # compiled, and warm
        self.start()

    def start(self) -> None:
        if not hasattr(self, "model"):
            self.model = Transformer(self.task)
            self.run: Any = torch.compile(self.model) if self.compiled else self.model
        fill(self.model, self.parameters)
        decays = [m.weight for m in self.model.modules() if isinstance(m, nn.Linear)]
        kept = {id(p) for p in decays}
        others = [p for p in self.model.parameters() if id(p) not in kept]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": decays, "weight_decay": self.task.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=self.task.learning_rate,
            fused=True,
        )

    def epoch(self, order: np.ndarray) -> float:
        batches = torch.from_numpy(order.astype(np.int64)).split(self.task.B)
        total = torch.zeros(())
        started = perf_counter()
        for batch in batches:
            x, y, valid = self.x[batch], self.y[batch], None
            if self.task.ragged:
                lengths = self.lengths[batch]
                longest = int(lengths.max())
                x = x[:, :longest]
                valid = torch.arange(longest) < lengths[:, None]
            self.optimizer.zero_grad()
            scores = self.run(x, valid)
            loss = F.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        self.loss = float(total) / len(batches)
        return perf_counter() - started
