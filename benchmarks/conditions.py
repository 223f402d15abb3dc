"""What else is measured of undivided alone: a busy core, memory, and the accuracy over seeds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import sleep

from comparison import MODELS, Classifier, Orders, Settings, task_of
from peers import Apart

from undivided import Model, recipe
from undivided.data import mnist

__all__ = ["Busy", "Spread", "beside_a_busy_core", "spread_over_seeds", "training_memory"]


@dataclass(frozen=True)
class Busy:
    """Seconds of an epoch on the machine as it is, and with one core taken by another process."""

    idle_seconds: list[float]
    busy_seconds: list[float]

    @property
    def ratio(self) -> float:
        return median(self.busy_seconds) / median(self.idle_seconds)


@dataclass(frozen=True)
class Spread:
    """Test accuracies (fractions) after training with seeds 1, 2, …"""

    epochs: int
    accuracies: list[float]


def beside_a_busy_core(
    classifier: Classifier, settings: Settings, say: Callable[[str], None]
) -> Busy:
    """Epochs by turns without and with a loop that never rests, pinned to one core."""
    images = len(mnist().train)
    task = task_of(classifier, settings, images)
    orders = Orders(recipe(classifier.recipe))
    scale = images / task.samples
    result = Busy([], [])
    with Apart("undivided") as system:
        system.prepare(task, orders.parameters)
        system.epoch(orders.next(task.samples))
        for number in range(settings.rounds):
            result.idle_seconds.append(system.epoch(orders.next(task.samples)) * scale)
            with _busy_core():
                result.busy_seconds.append(system.epoch(orders.next(task.samples)) * scale)
            say(
                f"{classifier.title} round {number + 1} of {settings.rounds}: "
                f"idle {result.idle_seconds[-1]:.3f}, busy {result.busy_seconds[-1]:.3f}"
            )
    return result


@contextmanager
def _busy_core() -> Iterator[None]:
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        os.sched_setaffinity(loop.pid, {min(os.sched_getaffinity(0))})
        sleep(0.2)  # until it is past its own start
        yield
    finally:
        loop.kill()
        loop.wait()


# A process counts what its parent held before it was replaced by another program, so the training
# is started from a bare interpreter and not from here.
_MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(peak * (1 if sys.platform == "darwin" else 1024))
sys.exit(done.returncode)
"""


def training_memory(name: str = "mnist-attention") -> int:
    """Bytes that `undivided train NAME` holds at its peak, as the system counts them."""
    with tempfile.TemporaryDirectory() as folder:
        train = [sys.executable, "-m", "undivided", "train", name, "--quiet"]
        files = ["--out", f"{folder}/model.safetensors", "--log", f"{folder}/log.csv"]
        done = subprocess.run(
            [sys.executable, "-S", "-c", _MEASURED, *train, *files],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return int(done.stdout)


def spread_over_seeds(seeds: int, settings: Settings, say: Callable[[str], None]) -> Spread:
    """The narrow classifier trained as its recipe says, once for each seed from 1."""
    data = mnist()
    network = recipe(MODELS["d16"].recipe)
    samples = task_of(MODELS["d16"], settings, len(data.train)).samples
    spread = Spread(network.train.epochs, [])
    for seed in range(1, seeds + 1):
        model = Model(network, seed=seed, threads=settings.threads)
        history = model.fit(data.train.take(samples), test=data.test, log=False)
        spread.accuracies.append(history[-1].test_accuracy or 0.0)
        say(f"seed {seed}: {100 * spread.accuracies[-1]:.2f} %")
    return spread
