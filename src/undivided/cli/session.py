"""One training from the command line: say what will happen, do it, say what came of it."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from time import perf_counter

import click

from undivided.cli.bar import Bar
from undivided.cli.targets import by, check_samples, data_name, open_network_data
from undivided.data import Dataset
from undivided.description import Description
from undivided.files import check_target
from undivided.model import Model
from undivided.network import Network
from undivided.training.history import Epoch, percent, shown
from undivided.training.progress import Interruption, Lines, Progress

__all__ = ["Session"]


@dataclass
class Session:
    """What to train, on what it runs, and where the result goes."""

    network: Network
    out: str
    threads: int | None = None
    engine: str | None = None
    quiet: bool = False

    def run(self) -> tuple[Model, list[Epoch]]:
        """Train and save. Whatever can be refused is refused before the first step."""
        started = perf_counter()
        plan = self.network.plan()
        check_target(self.out)
        model = Model(self.network, threads=self.threads, engine=self.engine)  # type: ignore[arg-type]
        dataset = open_network_data(self.network)
        model.class_names = dataset.class_names
        check_samples(plan, self.network, dataset.train.sample_shape)
        loaded = perf_counter()
        self._say(self._configuration(model, dataset))
        history = self._fit(model, dataset)
        self._save(model)
        self._say(self._summary(history, loaded - started, perf_counter() - started))
        return model, history

    def _fit(self, model: Model, dataset: Dataset) -> list[Epoch]:
        try:
            with self._watcher(len(dataset.train)) as watcher:
                return model.fit(dataset.train, dataset.test, progress=watcher)
        except (KeyboardInterrupt, OSError) as stop:
            # Whether a person had enough or closed the pager, or a log found the disk full: what
            # was learned is worth keeping.
            self._keep(model)
            if isinstance(stop, OSError):
                raise
            raise click.exceptions.Exit(130) from None

    def _keep(self, model: Model) -> None:
        if not model.steps:
            click.echo("Stopped before the first step; nothing is saved.", err=True)
            return
        self._save(model)
        click.echo(
            f"Stopped. What was learned so far, {_counted(model.epochs, 'epoch')} and "
            f"{_counted(model.steps, 'step')} in all, is saved in {self.out}.",
            err=True,
        )

    def _save(self, model: Model) -> None:
        with Interruption():  # an impatient second Ctrl-C does not lose what was learned
            model.save(self.out)

    def _watcher(self, samples: int) -> AbstractContextManager[Progress]:
        if self.quiet:
            return nullcontext(Progress())
        if sys.stdout is not None and sys.stdout.isatty():
            return Bar(self.network.train.epochs, samples)
        return nullcontext(Lines())

    def _say(self, text: str) -> None:
        if not self.quiet:
            click.echo(text)

    def _configuration(self, model: Model, dataset: Dataset) -> str:
        network, train = self.network, self.network.train
        counts = f"{len(dataset.train):,} training"
        if dataset.test is not None:
            counts += f" and {len(dataset.test):,} test"
        engine = [model.engine]
        if model.threads is not None:
            engine.append(_counted(model.threads, "thread"))
        if model.instruction_set is not None:
            engine.append(model.instruction_set)
        rows = {
            "Network": f"{network.name}, {model.plan.parameter_count:,} parameters",
            "Data": f"{data_name(network)}, {counts} samples of {by(dataset.train.sample_shape)}",
            "Engine": ", ".join(engine),
            "Optimizer": _written(network.optimizer),
            "Training": f"{_counted(train.epochs, 'epoch')}, batch {train.batch_size}, "
            f"seed {train.seed}",
        }
        if train.log:
            rows["Log"] = train.log
        rows["Model"] = self.out
        return "\n".join(f"{name:<10} {text}" for name, text in rows.items())

    def _summary(self, history: list[Epoch], load: float, total: float) -> str:
        last = history[-1]
        train = sum(entry.seconds for entry in history)
        if last.test_accuracy is not None:
            result = f"Final test accuracy: {percent(last.test_accuracy)}"
        elif last.test_loss is not None:
            result = f"Final test loss: {last.test_loss:.6f}{shown(last.metrics)}"
        else:
            result = f"Final loss: {last.loss:.6f}"
        size = os.path.getsize(os.path.expanduser(self.out))
        return (
            f"{result}\n"
            f"Time: load {load:.2f}s | train {train:.2f}s | total {total:.2f}s\n"
            f"Saved {self.out} ({size:,} bytes)"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _written(description: Description) -> str:
    """`SGD(learning_rate=0.01)`: the rate, and whatever else differs from the default."""
    given = []
    for field in fields(description):  # type: ignore[arg-type]
        value = getattr(description, field.name)
        if field.name == "learning_rate" or value != field.default:
            shown = _written(value) if isinstance(value, Description) else value
            given.append(f"{field.name}={shown}")
    return f"{description.keyword}({', '.join(given)})"
