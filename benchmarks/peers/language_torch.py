"""PyTorch on a language model: the network and optimizer of `encoder_torch.py`, with the recipe's
schedule and clipping around every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import perf_counter

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from peers import encoder_torch
from peers.apart import keep_to_cores, watched
from peers.language import Language, network_of, shape_of, windows_of

__all__ = ["Torch"]

WARM_UP_STEPS = 3


class Torch(encoder_torch.Torch):
    def prepare(self, task: Language, parameters: Sequence[np.ndarray]) -> None:
        keep_to_cores(task.threads)
        torch.set_num_threads(task.threads)
        self.task, self.parameters = shape_of(task), parameters
        self.optimization = network_of(task).optimizer
        data = windows_of(task)
        train, held = data.train, data.test
        self.x, self.y = (torch.from_numpy(a.astype(np.int64)) for a in (train.x, train.y))
        self.test = [torch.from_numpy(a.astype(np.int64)) for a in (held.x, held.y)]
        self.start()
        warm = np.arange(WARM_UP_STEPS * self.task.B) % len(self.x)
        self.steps = 0
        self.learn(warm, np.arange(len(warm)))
        self.steps = 0
        self.start()

    def learn(self, rows: np.ndarray, order: np.ndarray) -> tuple[float, float, float]:
        """One step for each batch of those windows: (seconds, mean loss, share of others)."""
        (seconds, loss), others = watched(lambda: self._learn(rows[order]))
        return seconds, loss, others

    def _learn(self, rows: np.ndarray) -> tuple[float, float]:
        started = perf_counter()
        total = 0.0
        weights = list(self.model.parameters())
        for batch in torch.from_numpy(rows).split(self.task.B):
            for group in self.optimizer.param_groups:
                group["lr"] = self.optimization.learning_rate.at(self.steps)
            self.optimizer.zero_grad()
            loss = self._loss(self.x[batch], self.y[batch])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, self.optimization.clip_norm, foreach=True)
            self.optimizer.step()
            self.steps += 1
            total += loss.item() * len(batch)
        return perf_counter() - started, total / len(rows)

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.run(x, None).flatten(0, 1), y.flatten())

    @torch.no_grad()
    def bits(self) -> float:
        """Bits per character on the held-out windows."""
        total = 0.0
        for x, y in zip(*(part.split(64) for part in self.test), strict=True):
            total += self._loss(x, y).item() * len(x)
        return total / len(self.test[0]) / math.log(2)
