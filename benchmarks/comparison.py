"""All systems side by side on one classifier: the same thing computed, epochs interleaved."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from peers import SYSTEMS, Apart, Task

from undivided import Network, _native, recipe
from undivided.data import mnist
from undivided.plan.costs import scheduled_costs
from undivided.plan.schedule import schedule
from undivided.training.generators import GENERATORS
from undivided.training.initial import initialize

__all__ = [
    "MODELS",
    "Classifier",
    "Comparison",
    "Orders",
    "Peak",
    "Settings",
    "Timing",
    "compare",
    "executed_multiply_adds",
    "task_of",
]

CHECK_STEPS = 20
LOSS_TOLERANCE = 1e-4
"""How far the mean losses of the first steps may lie apart: rounding gives about 1e-6."""

DRIFT_TOLERANCE = 1e-2
"""How far, relatively, those of whole epochs may: rounding grows as the models go on."""

WINDOW_SECONDS = 0.05
WINDOWS = 4


@dataclass(frozen=True)
class Classifier:
    """One of the two models, and how many times faster than each library's best it has to be."""

    recipe: str
    title: str
    bars: Mapping[str, float]


MODELS = {
    "d16": Classifier("mnist-attention", "D16/FF32", {"jax": 5.5, "torch": 6.5}),
    "d64": Classifier("mnist-attention-64", "D64/FF128", {"jax": 2.8, "torch": 3.3}),
}


@dataclass(frozen=True)
class Settings:
    systems: Sequence[str]
    rounds: int
    fraction: float
    threads: int


@dataclass
class Timing:
    """One system's epochs; seconds are those of a whole epoch, also where a part of one ran."""

    ready_seconds: float
    epoch_seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    """The share of all cores that other processes had during each epoch."""

    @property
    def median(self) -> float:
        return median(self.epoch_seconds)

    @property
    def best(self) -> float:
        return min(self.epoch_seconds)


@dataclass
class Comparison:
    """What came of one classifier."""

    classifier: Classifier
    samples: int
    multiply_adds: int
    """Executed by undivided for a sample, forward and backward."""
    first_loss_apart: float
    """The largest difference between two systems' losses over the first steps."""
    timings: dict[str, Timing]

    @property
    def operations(self) -> float:
        """Floating-point operations that undivided executes in an epoch."""
        return 2.0 * self.multiply_adds * self.samples

    def best_peer(self, library: str) -> tuple[str, float] | None:
        """The fastest system of a library by its median, and how many times undivided's that is."""
        peers = [name for name in self.timings if SYSTEMS[name].library == library]
        if not peers or "undivided" not in self.timings:
            return None
        name = min(peers, key=lambda each: self.timings[each].median)
        return name, self.timings[name].median / self.timings["undivided"].median

    @property
    def losses_apart(self) -> float:
        """The largest relative difference between two systems' losses of the same epoch."""
        rounds = zip(*(timing.losses for timing in self.timings.values()), strict=True)
        return max((_apart(losses) / max(losses) for losses in rounds), default=0.0)


class Peak:
    """The machine's multiply-adds a second: the best of many short windows, all threads at once.

    They lie between the epochs, so that clock and neighbours are those that the epochs met.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.instruction_set = _native.instruction_sets()[0]
        self.multiply_adds = 0.0
        self.windows = 0

    def watch(self, windows: int = WINDOWS) -> None:
        for _ in range(windows):
            rate = _native.measure_peak(self.instruction_set, self.threads, WINDOW_SECONDS)
            self.multiply_adds = max(self.multiply_adds, rate)
        self.windows += windows

    def share(self, operations: float, seconds: float) -> float:
        """Floating-point operations in so many seconds, of those that the machine could do."""
        return operations / seconds / (2.0 * self.multiply_adds)


class Orders:
    """The initial parameters and shuffles that `Model.fit` makes, made again for the peers."""

    def __init__(self, network: Network, seed: int | None = None) -> None:
        seed = network.train.seed if seed is None else seed
        self._generator = GENERATORS[network.train.generator](seed)
        self.parameters = list(initialize(network.plan(), self._generator).values())
        self._order = np.arange(0, dtype=np.uint32)

    def next(self, count: int) -> np.ndarray:
        """The order of the next epoch over the first `count` samples."""
        if len(self._order) != count:
            self._order = np.arange(count, dtype=np.uint32)
        self._generator.shuffle(self._order)
        return self._order.copy()


def executed_multiply_adds(network: Network) -> int:
    """For a training sample, after rewrites, without the gradient of the input."""
    cost = scheduled_costs(schedule(network.plan()), 1)
    return cost.forward + cost.backward


def task_of(classifier: Classifier, settings: Settings, images: int) -> Task:
    """Whole batches of the wanted fraction of the images, at least one."""
    network = recipe(classifier.recipe)
    batch = network.train.batch_size
    steps = max(1, min(round(settings.fraction * images / batch), images // batch))
    return Task(
        recipe=classifier.recipe,
        seed=network.train.seed,
        samples=steps * batch,
        batch_size=batch,
        learning_rate=network.optimizer.learning_rate,
        threads=settings.threads,
    )


def compare(
    classifier: Classifier, settings: Settings, peak: Peak, say: Callable[[str], None]
) -> Comparison:
    """Prepare every system, check that they agree, then time round after round of epochs."""
    images = len(mnist().train)
    network = recipe(classifier.recipe)
    task = task_of(classifier, settings, images)
    orders = Orders(network)
    with ExitStack() as running:
        systems: list[Apart] = []
        for name in settings.systems:
            system = running.enter_context(Apart(name))
            system.prepare(task, orders.parameters)
            say(f"{classifier.title} {name} ready in {system.ready_seconds:.1f} s")
            systems.append(system)
        comparison = Comparison(
            classifier,
            images,
            executed_multiply_adds(network),
            _check(systems, orders.next(min(CHECK_STEPS * task.batch_size, task.samples))),
            {system.name: Timing(system.ready_seconds) for system in systems},
        )
        scale = images / task.samples
        for number in range(settings.rounds):
            order = orders.next(task.samples)
            first = number % len(systems)
            for system in systems[first:] + systems[:first]:
                timing = comparison.timings[system.name]
                timing.epoch_seconds.append(system.epoch(order) * scale)
                timing.losses.append(system.loss)
                timing.others.append(system.others)
                peak.watch()
            done = (f"{k} {t.epoch_seconds[-1]:.3f}" for k, t in comparison.timings.items())
            say(f"{classifier.title} round {number + 1} of {settings.rounds}: {', '.join(done)}")
        if comparison.losses_apart > DRIFT_TOLERANCE:
            raise RuntimeError(
                f"The systems' losses of an epoch differ by {comparison.losses_apart:.1e}."
            )
    return comparison


def _check(systems: Sequence[Apart], order: np.ndarray) -> float:
    """A few steps from the same parameters, which warm up too: how far the losses lie apart.

    The mean over several steps tells a wrong gradient or update as well as a wrong forward.
    """
    for system in systems:
        system.epoch(order)
    losses = {system.name: system.loss for system in systems}
    apart = _apart(losses.values())
    if not apart <= LOSS_TOLERANCE:
        listed = "\n".join(f"  {name:22} {loss:.6f}" for name, loss in losses.items())
        raise RuntimeError(
            f"The systems do not compute the same thing: their losses over the first steps differ "
            f"by more than {LOSS_TOLERANCE:g}.\n{listed}"
        )
    return apart


def _apart(losses: Iterable[float]) -> float:
    found = list(losses)
    return math.nan if any(map(math.isnan, found)) else max(found) - min(found)
