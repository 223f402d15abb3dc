"""`undivided predict`."""

from __future__ import annotations

from collections.abc import Iterator

import click
import numpy as np

from undivided.cli.arguments import engine_options, use_option
from undivided.cli.targets import Tried, existing_model, tried, with_data
from undivided.data.dataset import PerInput
from undivided.files import check_target, write_beside
from undivided.model import Model, load
from undivided.plan.plan import Ragged

__all__ = ["predict"]

_ROWS_AT_ONCE = 4096


@click.command()
@click.argument("model", metavar="MODEL")
@click.option("-d", "--data", metavar="DATA", help="Other data than the model was trained on.")
@click.option("--out", metavar="FILE", help="A CSV file to write; else it is printed.")
@use_option
@engine_options
def predict(
    model: str, data: str | None, out: str | None, threads: int | None, engine: str | None
) -> None:
    """Say the class of each sample, or its values, as CSV.

    The columns are index, label (where the data has labels), predicted, and the probability of
    each class; for values index, target and predicted. The samples are the test samples of the
    data, or all where there are none. An .npz file may hold x alone.
    """
    loaded = load(existing_model(model), threads, engine)  # type: ignore[arg-type]
    network = with_data(loaded.network, data)
    if out is not None:
        check_target(out)
    samples = tried(network, loaded)
    rows = _rows(loaded, samples)
    if out is None:
        for piece in rows:
            click.echo(piece, nl=False)
        return
    write_beside(out, (piece.encode() for piece in rows))
    click.echo(f"Wrote {len(samples.split):,} predictions to {out}")


def _rows(model: Model, samples: Tried) -> Iterator[str]:
    """The lines of the CSV file, many at a time.

    index (and position, where a sample has several rows), then for classes label, predicted and
    probability_0, …; for values target and predicted, numbered where a row has several. Classes
    that have names go by them.
    """
    loss, width = model.plan.loss, model.plan.output.width
    by_class = loss.targets in ("classes", "distributions")
    x, mask, targets = samples.split.x, samples.split.mask, _labels(model, samples.targets)
    called = _Names(samples.class_names if by_class else None)
    found = model.predict_proba(x, mask) if loss.link else model.predict(x, mask)
    each = [np.reshape(sample, (-1, width)) for sample in found]
    positions = len(model.plan.output.shape) > 1
    wanted = ["label"] if by_class else _numbered("target", width)
    names = ["index"] + ["position"] * positions + wanted * (targets is not None)
    names += ["predicted"] if loss.link else _numbered("predicted", width)
    if loss.link:
        names = names if by_class else names[:-1] + _numbered("predicted", width)
        names += [called.cell(f"probability_{called(c)}") for c in range(width)]
    yield ",".join(names) + "\n"
    lines: list[str] = []
    real = _real_positions(model, mask)
    for index, rows in enumerate(each):
        known = None if targets is None else np.asarray(targets[index])
        if real is not None:
            rows = rows[real[index]] if len(rows) == len(real[index]) else rows
            known = None if known is None else known[real[index]]
        known = None if known is None else known.reshape(len(rows), -1)
        for position, row in enumerate(rows):
            cells = [str(index)] + [str(position)] * positions
            if known is not None:
                values = known[position].tolist()
                cells += [called.cell(called(v)) if by_class else f"{v:.9g}" for v in values]
            if by_class:
                cells.append(called.cell(called(row.argmax())))
            elif loss.link:
                cells += [str(int(value > 0.5)) for value in row]
            digits = 6 if loss.link else 9
            cells += [f"{value:.{digits}g}" for value in row.tolist()]
            lines.append(",".join(cells) + "\n")
        if len(lines) >= _ROWS_AT_ONCE:
            yield "".join(lines)
            lines = []
    yield "".join(lines)


def _labels(model: Model, targets: np.ndarray | None) -> np.ndarray | None:
    """Targets as they stand in the file: of the probabilities of classes the most probable."""
    if targets is None or model.plan.loss.targets != "distributions":
        return targets
    return targets.argmax(axis=-1) if targets.shape[1:] == model.plan.output.shape else targets


def _real_positions(model: Model, mask: PerInput[np.ndarray] | None) -> np.ndarray | None:
    """[N, S], which positions of the outputs are no padding; None where nothing says so."""
    axis = model.plan.output.shape[0]
    if not isinstance(axis, Ragged):
        return None
    return mask.get(axis.name) if isinstance(mask, dict) else mask


class _Names:
    """What classes are called: by their names, where there are any, else by their numbers."""

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self.names = names or ()

    def __call__(self, number: int) -> str:
        return self.names[number] if 0 <= number < len(self.names) else str(number)

    @staticmethod
    def cell(text: str) -> str:
        """As a cell of the file, in quotes where it has to be."""
        if not set(text) & set(',"\r\n'):
            return text
        return '"' + text.replace('"', '""') + '"'


def _numbered(name: str, count: int) -> list[str]:
    """`name`, or where there are several `name_0`, `name_1`, …"""
    return [f"{name}_{i}" for i in range(count)] if count > 1 else [name]
