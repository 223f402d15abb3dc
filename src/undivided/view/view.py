"""View: a page about some samples of a model, to be saved, opened or shown in a notebook."""

from __future__ import annotations

import html
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from undivided.errors import ArgumentError, DataError
from undivided.view.collect import LIMIT, Names, collect
from undivided.view.page import render

if TYPE_CHECKING:
    from undivided.engines.engine import Samples
    from undivided.model import Model
    from undivided.targets import Targets

__all__ = ["View", "view_of"]


@dataclass(frozen=True)
class View:
    """One self-contained page of HTML: no network, works from disk."""

    html: str
    title: str

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page; until it is whole, `path` keeps what it was."""
        from undivided.files import check_target, write_beside

        write_beside(path, [self.html.encode()])
        return check_target(path)

    def _repr_html_(self) -> str:
        """The page inside a notebook's page, kept apart from it."""
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="allow-scripts" '
            f'style="width:100%;height:52rem;border:0" srcdoc="{html.escape(self.html)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"View({self.title!r}, {len(self.html):,} bytes)"


def view_of(
    model: Model,
    samples: Samples,
    targets: Targets | None,
    *,
    classes: Sequence[object] | None = None,
    vocabulary: Sequence[object] | None = None,
    tokens: Sequence[Sequence[object]] | None = None,
    source: str = "",
    limit: int = LIMIT,
) -> View:
    """The page about checked samples; what `Model.view` calls."""
    if not len(samples):
        raise DataError("x must hold at least one sample to look at.")
    if tokens is not None and len(tokens) != len(samples):
        raise ArgumentError(
            f"The 'tokens' of view must be one list for each of {len(samples)} samples. "
            f"Got {len(tokens)}.",
            argument="tokens",
        )
    if classes is None and model.plan.output.width == model.plan.input.vocabulary:
        classes = vocabulary  # what a language model predicts are ids
    names = Names(model.network.name, source, classes, tokens, vocabulary)
    return View(render(collect(model, samples, targets, names, limit)), model.network.name)
