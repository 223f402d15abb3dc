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

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import undivided
from undivided.cli.targets import open_network_data
from undivided.data import Split

Parameters = dict[str, nn.Parameter]
Way = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def linear(p: Parameters, name: str, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, p[f"{name}.weight"].T, p.get(f"{name}.bias"))


def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1) @ v


WAYS: dict[str, Way] = {
    "scaled_dot_product_attention": F.scaled_dot_product_attention,
    "a softmax between two products": written_out,
}
"""Of computing what heads give. Which is the faster depends on the sizes: both are run."""


def attention(p: Parameters, name: str, x: torch.Tensor, heads: int, way: Way) -> torch.Tensor:
    split = (
        linear(p, f"{name}.{role}", x).unflatten(-1, (heads, -1)).transpose(1, 2)
        for role in ("query", "key", "value")
    )
    return linear(p, f"{name}.output", way(*split).transpose(1, 2).flatten(2))


def normalize(p: Parameters, name: str, x: torch.Tensor, epsilon: float) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.gain"], p[f"{name}.shift"], epsilon)


def max_row(p: Parameters, x: torch.Tensor, way: Way) -> torch.Tensor:
    return attention(p, "attention_1", x, 1, way)


def vit(p: Parameters, x: torch.Tensor, way: Way) -> torch.Tensor:
    """Every layer of mnist-vit in its order."""
    x = (x / 255).unflatten(1, (7, 4)).unflatten(3, (7, 4)).transpose(2, 3).flatten(3).flatten(1, 2)
    x = linear(p, "dense_1", x) + p["positions_1.table"]
    for block in range(2):
        norms = [n for n in p if n.endswith(".gain")]
        first, second = (n.removesuffix(".gain") for n in norms[2 * block : 2 * block + 2])
        x = x + attention(p, f"attention_{block + 1}", normalize(p, first, x, 1e-5), 4, way)
        inner = F.gelu(linear(p, f"dense_{2 * block + 2}", normalize(p, second, x, 1e-5)))
        x = x + linear(p, f"dense_{2 * block + 3}", inner)
    last = [n for n in p if n.endswith(".gain")][-1].removesuffix(".gain")
    return linear(p, "output_1", normalize(p, last, x, 1e-5).mean(dim=1))


FORWARD: dict[str, Callable[[Parameters, torch.Tensor, Way], torch.Tensor]] = {
    "max-row": max_row,
    "mnist-vit": vit,
}


class Torch:
    """A recipe's loop in PyTorch, from the same weights."""

    def __init__(self, model: undivided.Model, recipe: str, split: Split, way: Way) -> None:
        self.parameters = {
            name: nn.Parameter(torch.tensor(np.array(values)))
            for name, values in model.parameters.items()
        }
        self.recipe, self.way = FORWARD[recipe], way
        self.loss = F.mse_loss if model.plan.loss.targets == "values" else F.cross_entropy
        self.optimizer = torch.optim.AdamW(self.parameters.values(), lr=1e-3, fused=True)
        self.x = torch.tensor(split.x.astype(np.float32))
        values = model.plan.loss.targets == "values"
        self.y = torch.tensor(split.y if values else split.y.astype(np.int64))
        self.batch = model.network.train.batch_size

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.recipe(self.parameters, x, self.way)

    def epoch(self) -> float:
        """The mean loss."""
        total = 0.0
        for rows in self._batches():
            self.optimizer.zero_grad()
            loss = self.loss(self.forward(self.x[rows]), self.y[rows])
            loss.backward()
            self.optimizer.step()
            total += loss.item() * len(rows)
        return total / len(self.x)

    def _batches(self) -> Iterator[torch.Tensor]:
        return iter(torch.randperm(len(self.x)).split(self.batch))


def predictions(model: undivided.Model, peers: dict[str, Torch], split: Split) -> Iterator[str]:
    """One sample at a time, by turns; PyTorch on one thread and on all, whichever is faster."""
    turns: dict[str, list[float]] = {}
    for _ in range(5):
        turns.setdefault("undivided", []).append(
            _microseconds(lambda: model.predict(split.x[:1]), 2000)
        )
        for name, peer in peers.items():
            for threads in {1, model.threads or 1}:
                torch.set_num_threads(threads)
                with torch.inference_mode():
                    microseconds = _microseconds(lambda p=peer: p.forward(p.x[:1]).numpy(), 500)
                turns.setdefault(f"{name}, threads: {threads}", []).append(microseconds)
    ours = median(turns.pop("undivided"))
    yield f"one sample, undivided {ours:.1f} µs"
    for name, found in turns.items():
        other = median(found)
        yield f"PyTorch, by {name}: {other:.0f} µs, {other / ours:.1f} times as long"


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
    peers = {name: Torch(model, given.recipe, split, way) for name, way in WAYS.items()}
    if given.predict:
        print("\n".join(predictions(model, peers, split)))
        return 0
    seconds: dict[str, list[float]] = {name: [] for name in ("undivided", *peers)}
    for epoch in range(given.epochs):
        entry = model.fit(split, epochs=1, log=False)[-1]
        seconds["undivided"].append(entry.seconds)
        losses = [entry.loss]
        for name, peer in peers.items():
            started = perf_counter()
            losses.append(peer.epoch())
            seconds[name].append(perf_counter() - started)
        print(f"epoch {epoch + 1}: loss {', '.join(f'{loss:.4f}' for loss in losses)}")
    ours = median(seconds.pop("undivided"))
    print(
        f"{given.recipe}: {ours:.3f} s an epoch on {model.threads} threads; PyTorch with attention"
    )
    for name, found in seconds.items():
        other = median(found)
        print(
            f"PyTorch {torch.__version__}, {name}: {other:.3f} s, {other / ours:.2f} times as long"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
