"""What the recipes reach: each is trained as it ships, and compared with what it has to reach.

    python benchmarks/recipes.py                    all of them, with the seeds that are asked for
    python benchmarks/recipes.py iris-attention …   those named
    python benchmarks/recipes.py --seeds 1          fewer seeds, for a quick look

MNIST is needed for those whose names begin with mnist (docs: `undivided.datasets.mnist`), and
`pip install aeon` for time-series-motions and time-series-vowels, which are left out without it.
Networks for texts and series stand beside MLPs of as many parameters, with one hidden layer and
with two, trained alike by this script: the samples flattened, those of ids embedded before; and of
ids a bag of words, the mean of what they are embedded to. The page says who wins.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

import undivided
from undivided.cli.targets import open_network_data
from undivided.data import Dataset, Split
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
    Bar("text-classifier", "% of new sentences", accuracy, 95.0, seeds=3),
    Bar("time-series", "test loss", test_loss, 0.02, least=False, seeds=3),
    Bar("time-series-motions", "% of test series", accuracy, 95.0, seeds=5),
    Bar("time-series-vowels", "% of test series", accuracy, 95.0, seeds=5),
    Bar("mnist-cnn", "% of test images", accuracy, 91.93),
    Bar("mnist-mlp", "% of test images", accuracy, 94.17),
    Bar("mnist-vit", "% of test images, no shifts", accuracy, 98.5, seeds=3, changes=NO_SHIFTS),
    Bar("mnist-vit", "% of test images", accuracy, 99.2, seeds=3),
)

COMPARED = ("text-classifier", "time-series", "time-series-motions", "time-series-vowels")
"""Recipes that stand beside networks without attention."""
OF_AEON = ("time-series-motions", "time-series-vowels")


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
    if importlib.util.find_spec("aeon") is None:
        chosen = [bar for bar in chosen if bar.recipe not in OF_AEON]
        say = "aeon is not installed: without time-series-motions and time-series-vowels."
        print(say, file=sys.stderr)
    runs: dict[tuple[object, ...], Run] = {}
    missed = 0
    print(f"{'recipe':<20} {'what':<28} {'bar':>8} {'mean':>8} {'least':>8} {'most':>8}  seconds")
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
            f"{bar.recipe:<20} {bar.what:<28} {sign}{bar.limit:>7g} {mean:>8.4g} "
            f"{min(values):>8.4g} {max(values):>8.4g}  {seconds / len(values):7.2f}"
            f"{'' if bar.is_met(mean) else '   MISSED'}",
            flush=True,
        )
    for name in dict.fromkeys(bar.recipe for bar in chosen if bar.recipe in COMPARED):
        compare([run for key, run in runs.items() if key[0] == name], name, given.threads)
    return 1 if missed else 0


def compare(runs: Sequence[Run], name: str, threads: int | None) -> None:
    """What the rivals reach on the same data, with the same rates, epochs and seeds: who wins."""
    model, data, _ = runs[0]
    reached = {"attention": [final(history) for _, _, history in runs]}
    sizes = {"attention": model.plan.parameter_count}
    for rival, (network, given) in rivals(model.network, data, sizes["attention"]).items():
        reached[rival] = []
        for seed in range(1, len(runs) + 1):
            trained = undivided.Model(network, seed=seed, threads=threads)
            reached[rival].append(final(trained.fit(given.train, given.test, log=False)))
        sizes[rival] = trained.plan.parameter_count
    by_accuracy = runs[0][2][-1].test_accuracy is not None
    means = {each: float(np.mean(values)) for each, values in reached.items()}
    best = max(means, key=lambda each: means[each])
    shown = ", ".join(
        f"{each} {means[each]:.2f} %" if by_accuracy else f"{each} {-means[each]:.4g}"
        for each in means
    )
    counts = ", ".join(f"{count:,}" for count in sizes.values())
    print(
        f"{name}: {'accuracy' if by_accuracy else 'loss'} of {shown} "
        f"({counts} parameters): {best} wins."
    )


def final(history: Sequence[Epoch]) -> float:
    """Percent of what is right at the end, or the loss below zero: more is better."""
    end = history[-1]
    return -(end.test_loss or 0.0) if end.test_accuracy is None else 100 * end.test_accuracy


def rivals(
    network: undivided.Network, data: Dataset, size: int
) -> dict[str, tuple[undivided.Network, Dataset]]:
    """Networks of about `size` parameters without attention, and the data as they take it."""
    first, last = network.layers[0], network.layers[-1]
    whole = replace(data, train=unmasked(data.train), test=unmasked(data.test))
    shape = data.train.x.shape[1:]
    if not isinstance(first, undivided.Embedding):
        flat = replace(network, input=shape)
        return {
            f"MLP-{depth}": (sized(flat, (undivided.Flatten(),), depth, last, size), whole)
            for depth in (1, 2)
        }
    table = replace(first, padding_id=None)
    bag = (first, undivided.GlobalAveragePooling1D())
    flat_ids = (table, undivided.Flatten())
    return {
        **{f"MLP-{d}": (sized(network, flat_ids, d, last, size), whole) for d in (1, 2)},
        "bag of words": (sized(network, bag, 1, last, size), data),
    }


def unmasked(split: Split | None) -> Split | None:
    """The samples filled up, for a network that takes all places alike."""
    return split and replace(split, mask=None)


def sized(
    network: undivided.Network,
    before: tuple[undivided.Layer, ...],
    depth: int,
    last: undivided.Layer,
    size: int,
) -> undivided.Network:
    """`depth` hidden layers between `before` and `last`, as wide as `size` parameters allow."""

    def of(hidden: int) -> undivided.Network:
        inner = [undivided.Dense(hidden, activation="gelu")] * depth
        return replace(network, layers=(*before, *inner, last))

    def apart(hidden: int) -> int:
        return abs(of(hidden).plan().parameter_count - size)

    hidden = 1
    while apart(hidden + 1) <= apart(hidden):
        hidden += 1
    return of(hidden)


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
