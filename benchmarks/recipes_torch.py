"""Recipes beside the same loops in PyTorch: seconds an epoch, by turns, and what both reach.

    python benchmarks/recipes_torch.py max-row              5 epochs of each, by turns
    python benchmarks/recipes_torch.py mnist-vit --samples 6400
    python benchmarks/recipes_torch.py mnist-vit --predict    one sample at a time

The networks, the data, the batches and the update rules are the same; PyTorch starts from
undivided's initial weights. Each side has the machine to itself while it is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import undivided
from undivided.cli.targets import open_network_data
from undivided.data import Split

Parameters = dict[str, nn.Parameter]


def linear(p: Parameters, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, p[f"{name}.weight"].T, p.get(f"{name}.bias"))


def attention(p: Parameters, name: str, x: torch.Tensor, heads: int) -> torch.Tensor:
    split = (
        linear(p, f"{name}.{role}", x).unflatten(-1, (heads, -1)).transpose(1, 2)
        for role in ("query", "key", "value")
    )
    mixed = F.scaled_dot_product_attention(*split)
    return linear(p, f"{name}.output", mixed.transpose(1, 2).flatten(2))


def normalize(p: Parameters, name: str, x: torch.Tensor, epsilon: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.gain"], p[f"{name}.shift"], epsilon)


def max_row(p: Parameters, x: torch.Tensor) -> torch.Tensor:
    return attention(p, "attention_1", x, heads=1)


def vit(p: Parameters, x: torch.Tensor) -> torch.Tensor:
    """Every layer of mnist-vit in its order."""
    x = (x / 255).unflatten(1, (7, 4)).unflatten(3, (7, 4)).transpose(2, 3).flatten(3).flatten(1, 2)
    x = linear(p, "dense_1", x) + p["positions_1.table"]
    for block in range(2):
        norms = [n for n in p if n.endswith(".gain")]
        first, second = (n.removesuffix(".gain") for n in norms[2 * block : 2 * block + 2])
        x = x + attention(p, f"attention_{block + 1}", normalize(p, first, x, 1e-5), heads=4)
        inner = F.gelu(linear(p, f"dense_{2 * block + 2}", normalize(p, second, x, 1e-5)))
        x = x + linear(p, f"dense_{2 * block + 3}", inner)
    last = [n for n in p if n.endswith(".gain")][-1].removesuffix(".gain")
    return linear(p, "output_1", normalize(p, last, x, 1e-5).mean(dim=1))


FORWARD: dict[str, Callable[[Parameters, torch.Tensor], torch.Tensor]] = {
    "max-row": max_row,
    "mnist-vit": vit,
}


class Torch:
    """A recipe's loop in PyTorch, from the same weights."""

    def __init__(self, model: undivided.Model, forward: Callable[..., Any], split: Split) -> None:
        self.parameters = {
            name: nn.Parameter(torch.tensor(np.array(values)))
            for name, values in model.parameters.items()
        }
        self.forward = forward
        self.loss = F.mse_loss if model.plan.loss.targets == "values" else F.cross_entropy
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=1e-3, fused=True)
        self.x = torch.tensor(split.x.astype(np.float32))
        values = model.plan.loss.targets == "values"
        self.y = torch.tensor(split.y if values else split.y.astype(np.int64))
        self.batch = model.network.train.batch_size

    def epoch(self) -> float:
        """The mean loss."""
        total = 0.0
        for rows in self._batches():
            self.optimizer.zero_grad()
            loss = self.loss(self.forward(self.parameters, self.x[rows]), self.y[rows])
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(rows)
        return total / len(self.x)

    def _batches(self) -> Iterator[torch.Tensor]:
        return iter(torch.randperm(len(self.x)).split(self.batch))


def predictions(model: undivided.Model, theirs: Torch, split: Split, calls: int = 2000) -> str:
    """One sample at a time, by turns; PyTorch on one thread and on all, whichever is faster."""
    ours, x = split.x[:1], theirs.x[:1]

    def torch_on(threads: int) -> float:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            return _microseconds(lambda: theirs.forward(theirs.parameters, x).numpy(), calls // 4)

    found = []
    for _ in range(5):
        own = _microseconds(lambda: model.predict(ours), calls)
        found.append((own, torch_on(1), torch_on(model.threads or 1)))
    mine, alone, together = (median(each) for each in zip(*found, strict=True))
    return (
        f"one sample {mine:.1f} µs, PyTorch {torch.__version__} eager {alone:.0f} µs on one thread "
        f"and {together:.0f} on {model.threads}: {min(alone, together) / mine:.1f} times as fast"
    )


def _microseconds(call: Callable[[], object], calls: int) -> float:
    seconds = []
    for _ in range(calls):
        started = perf_counter()
        call()
        seconds.append(perf_counter() - started)
    return 1e6 * median(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipe", choices=FORWARD)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, help="at most so many")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--predict", action="store_true", help="one sample at a time, no training")
    given = parser.parse_args()
    network = undivided.recipe(given.recipe)
    split = open_network_data(network).train
    split = split[: given.samples] if given.samples else split
    model = undivided.Model(network, threads=given.threads)
    torch.set_num_threads(model.threads or 1)
    theirs = Torch(model, FORWARD[given.recipe], split)
    if given.predict:
        print(f"{given.recipe}: {predictions(model, theirs, split)}")
        return 0
    seconds: dict[str, list[float]] = {"undivided": [], "PyTorch": []}
    for epoch in range(given.epochs):
        entry = model.fit(split, epochs=1, log=False)[-1]
        seconds["undivided"].append(entry.seconds)
        started = perf_counter()
        loss = theirs.epoch()
        seconds["PyTorch"].append(perf_counter() - started)
        print(f"epoch {epoch + 1}: loss {entry.loss:.4f} and {loss:.4f}")
    ours, other = (median(seconds[name]) for name in ("undivided", "PyTorch"))
    print(
        f"{given.recipe}: {ours:.3f} s an epoch, PyTorch {torch.__version__} {other:.3f} s: "
        f"{other / ours:.2f} times as fast ({model.threads} threads)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
