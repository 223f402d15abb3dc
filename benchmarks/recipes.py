"""What the recipes reach: each is trained as it ships, and compared with what it has to reach.

    python benchmarks/recipes.py                    all of them, with the seeds that are asked for
    python benchmarks/recipes.py iris-attention …   those named
    python benchmarks/recipes.py --seeds 1          fewer seeds, for a quick look

MNIST is needed for those whose names begin with mnist (docs: `undivided.datasets.mnist`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

import undivided
from undivided.cli.targets import open_network_data
from undivided.data import Dataset
from undivided.training.history import Epoch

__all__ = ["BARS", "Bar", "main"]

Run = tuple[undivided.Model, Dataset, list[Epoch]]


@dataclass(frozen=True)
class Bar:
    """What a recipe must reach: a number of a run, its mean over seeds, and the limit."""

    recipe: str
    what: str
    measure: Callable[[Run], float]
    limit: float
    least: bool = True
    """Whether the limit is the least that will do, or the most."""
    seeds: int = 1
    changes: tuple[tuple[str, object], ...] = ()
    """What of `train` differs from the file."""

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.least else value <= self.limit


def accuracy(run: Run) -> float:
    return 100 * (run[2][-1].test_accuracy or 0.0)


def last_loss(run: Run) -> float:
    return run[2][-1].loss


def whole_sequences(run: Run) -> float:
    """Percent of the test sequences of which every number is met within 0.5."""
    model, data, _ = run
    assert data.test is not None
    errors = np.abs(np.asarray(model.predict(data.test.x)) - data.test.y)
    return 100 * float((errors <= 0.5).reshape(len(errors), -1).all(axis=1).mean())


def test_loss(run: Run) -> float:
    return run[2][-1].test_loss or 0.0


NO_SHIFTS = (("augment", None),)

BARS = (
    Bar("iris-attention", "% of held-out rows", accuracy, 90.0, seeds=10),
    Bar("iris-attention", "loss at epoch 100", last_loss, 0.035, least=False, seeds=10),
    Bar("max-row", "loss at epoch 50", last_loss, 2.8, least=False),
    Bar("max-row-solved", "% of new sequences", whole_sequences, 99.0, seeds=3),
    Bar("reverse-seq2seq", "% of new sequences", whole_sequences, 99.5, seeds=3),
    Bar("time-series", "test loss", test_loss, 0.06, least=False, seeds=3),
    Bar("mnist-cnn", "% of test images", accuracy, 91.93),
    Bar("mnist-mlp", "% of test images", accuracy, 94.17),
    Bar("mnist-vit", "% of test images, no shifts", accuracy, 98.5, seeds=3, changes=NO_SHIFTS),
    Bar("mnist-vit", "% of test images", accuracy, 99.2, seeds=3),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipes", nargs="*", help="which; else all")
    parser.add_argument("--seeds", type=int, help="at most so many")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args(arguments)
    unknown = set(given.recipes) - {bar.recipe for bar in BARS}
    if unknown:
        parser.error(f"no bar for {', '.join(sorted(unknown))}")
    chosen = [bar for bar in BARS if not given.recipes or bar.recipe in given.recipes]
    runs: dict[tuple[object, ...], Run] = {}
    missed = 0
    print(f"{'recipe':<16} {'what':<28} {'bar':>8} {'mean':>8} {'least':>8} {'most':>8}  seconds")
    for bar in chosen:
        values, seconds = [], 0.0
        for seed in range(1, min(bar.seeds, given.seeds or bar.seeds) + 1):
            key = bar.recipe, bar.changes, seed
            if key not in runs:
                runs[key] = train(bar, seed, given.threads)
            values.append(bar.measure(runs[key]))
            seconds += sum(entry.seconds for entry in runs[key][2])
        mean = float(np.mean(values))
        missed += not bar.is_met(mean)
        sign = "≥" if bar.least else "≤"
        print(
            f"{bar.recipe:<16} {bar.what:<28} {sign}{bar.limit:>7g} {mean:>8.4g} "
            f"{min(values):>8.4g} {max(values):>8.4g}  {seconds / len(values):7.2f}"
            f"{'' if bar.is_met(mean) else '   MISSED'}",
            flush=True,
        )
    if any(bar.recipe == "time-series" for bar in chosen):
        compare_with_mlp(runs[("time-series", (), 1)], given.threads)
    return 1 if missed else 0


def compare_with_mlp(run: Run, threads: int | None) -> None:
    """The same series, rates and epochs for an MLP of about as many parameters: who wins."""
    model, data, history = run
    assert isinstance(model.network.input, tuple)
    layers = model.network.layers
    shape, outputs = model.network.input, model.plan.output.width
    count, entries = model.plan.parameter_count, int(np.prod([n or 1 for n in shape]))
    hidden = round((count - outputs) / (entries + 1 + outputs))
    mlp = replace(
        model.network,
        layers=(undivided.Flatten(), undivided.Dense(hidden, activation="gelu"), layers[-1]),
    )
    rival = undivided.Model(mlp, seed=1, threads=threads)
    end = rival.fit(data.train, data.test, log=False)[-1]
    ours, theirs = history[-1].test_loss or 0.0, end.test_loss or 0.0
    print(
        f"time-series: attention {ours:.4g} ({count:,} parameters), MLP {theirs:.4g} "
        f"({rival.plan.parameter_count:,} parameters): "
        f"{'attention' if ours < theirs else 'the MLP'} wins."
    )


def train(bar: Bar, seed: int, threads: int | None) -> Run:
    started = perf_counter()
    network = undivided.recipe(bar.recipe)
    network = replace(network, train=replace(network.train, **dict(bar.changes)))  # type: ignore[arg-type]
    data = open_network_data(network)
    model = undivided.Model(network, seed=seed, threads=threads)
    history = model.fit(data.train, data.test, log=False)
    print(f"  {bar.recipe}, seed {seed}: {perf_counter() - started:.0f} s", file=sys.stderr)
    return model, data, history


if __name__ == "__main__":
    sys.exit(main())
