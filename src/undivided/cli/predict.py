"""`undivided predict`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

from undivided.cli.arguments import engine_options, use_option
from undivided.cli.targets import (
    check_samples,
    existing_model,
    open_network_data,
    tested_split,
    with_data,
)
from undivided.data.npz import read_unlabelled
from undivided.files import check_target, write_beside
from undivided.model import Model, load
from undivided.network import File, Network

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
    x, labels = _samples(network, loaded)
    check_samples(loaded.plan, network, x.shape[1:])
    rows = _rows(loaded, x, labels)
    if out is None:
        for piece in rows:
            click.echo(piece, nl=False)
        return
    write_beside(out, (piece.encode() for piece in rows))
    click.echo(f"Wrote {len(x):,} predictions to {out}")


def _samples(network: Network, model: Model) -> tuple[np.ndarray, np.ndarray | None]:
    """What to predict, and the targets where there are any: the loss wants classes, or values."""
    source = network.data
    if isinstance(source, File):
        x = read_unlabelled(Path(source.path).expanduser())
        if x is not None:
            return x, None
    split, _ = tested_split(open_network_data(network))
    y, kind = split.y, model.plan.loss.targets
    if kind == "distributions" and y.shape[1:] == model.plan.output.shape:
        return split.x, y.argmax(axis=-1)
    return split.x, y if (y.dtype.kind in "iu") == (kind == "classes") else None


def _rows(model: Model, x: np.ndarray, targets: np.ndarray | None) -> Iterator[str]:
    """The lines of the CSV file, many at a time.

    index (and position, where a sample has several rows), then for classes label, predicted and
    probability_0, …; for values target and predicted, numbered where a row has several.
    """
    loss, width = model.plan.loss, model.plan.output.width
    by_class = loss.targets in ("classes", "distributions")
    found = model.predict_proba(x) if loss.link else model.predict(x)
    each = [np.reshape(sample, (-1, width)) for sample in found]
    positions = len(model.plan.output.shape) > 1
    wanted = ["label"] if by_class else _numbered("target", width)
    names = ["index"] + ["position"] * positions + wanted * (targets is not None)
    names += ["predicted"] if loss.link else _numbered("predicted", width)
    if loss.link:
        names = names if by_class else names[:-1] + _numbered("predicted", width)
        names += _numbered("probability", width, always=True)
    yield ",".join(names) + "\n"
    lines: list[str] = []
    for index, rows in enumerate(each):
        known = None if targets is None else np.asarray(targets[index]).reshape(len(rows), -1)
        for position, row in enumerate(rows):
            cells = [str(index)] + [str(position)] * positions
            if known is not None:
                cells += [f"{value:.9g}" for value in known[position].tolist()]
            if by_class:
                cells.append(str(row.argmax()))
            elif loss.link:
                cells += [str(int(value > 0.5)) for value in row]
            digits = 6 if loss.link else 9
            cells += [f"{value:.{digits}g}" for value in row.tolist()]
            lines.append(",".join(cells) + "\n")
        if len(lines) >= _ROWS_AT_ONCE:
            yield "".join(lines)
            lines = []
    yield "".join(lines)


def _numbered(name: str, count: int, always: bool = False) -> list[str]:
    """`name`, or where there are several `name_0`, `name_1`, …"""
    return [f"{name}_{i}" for i in range(count)] if count > 1 or always else [name]
