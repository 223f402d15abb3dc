"""`undivided predict`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np

from undivided.cli.arguments import engine_options
from undivided.cli.targets import (
    check_samples,
    existing_model,
    open_network_data,
    tested_split,
    with_data,
)
from undivided.data.npz import read_unlabelled
from undivided.files import check_target, write_beside
from undivided.model import load
from undivided.network import File, Network

__all__ = ["predict"]

_ROWS_AT_ONCE = 4096


@click.command()
@click.argument("model", metavar="MODEL")
@click.option("-d", "--data", metavar="DATA", help="Other data than the model was trained on.")
@click.option("--out", metavar="FILE", help="A CSV file to write; else it is printed.")
@engine_options
def predict(
    model: str, data: str | None, out: str | None, threads: int | None, engine: str | None
) -> None:
    """Say the class of each sample, as CSV.

    The columns are index, label (where the data has labels), predicted, and the probability of
    each class. The samples are the test samples of the data, or all where there are none. An
    .npz file may hold x alone.
    """
    loaded = load(existing_model(model), threads, engine)  # type: ignore[arg-type]
    network = with_data(loaded.network, data)
    if out is not None:
        check_target(out)
    x, labels = _samples(network)
    check_samples(loaded.plan, network, x.shape[1:])
    rows = _rows(loaded.predict_proba(x), labels)
    if out is None:
        for piece in rows:
            click.echo(piece, nl=False)
        return
    write_beside(out, (piece.encode() for piece in rows))
    click.echo(f"Wrote {len(x):,} predictions to {out}")


def _samples(network: Network) -> tuple[np.ndarray, np.ndarray | None]:
    """What to predict, and the labels where there are any."""
    source = network.data
    if isinstance(source, File):
        x = read_unlabelled(Path(source.path).expanduser())
        if x is not None:
            return x, None
    split, _ = tested_split(open_network_data(network))
    return split.x, split.y if split.y.dtype.kind in "iu" else None


def _rows(probabilities: np.ndarray, labels: np.ndarray | None) -> Iterator[str]:
    """The lines of the CSV file, many at a time: index, label, predicted, probability_0, …"""
    classes = probabilities.shape[1]
    label = "" if labels is None else "label,"
    names = ",".join(f"probability_{number}" for number in range(classes))
    yield f"index,{label}predicted,{names}\n"
    predicted = probabilities.argmax(axis=1)
    for start in range(0, len(probabilities), _ROWS_AT_ONCE):
        lines = []
        for index in range(start, min(start + _ROWS_AT_ONCE, len(probabilities))):
            label = "" if labels is None else f"{labels[index]},"
            numbers = ",".join(f"{number:.6g}" for number in probabilities[index].tolist())
            lines.append(f"{index},{label}{predicted[index]},{numbers}\n")
        yield "".join(lines)
