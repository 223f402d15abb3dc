"""`c`: a model becomes files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from undivided.errors import ArgumentError, ExportError
from undivided.export.calls import check_exportable
from undivided.export.check import check_program
from undivided.export.names import is_identifier
from undivided.export.source import Program
from undivided.files import write_beside

if TYPE_CHECKING:
    from undivided.model import Model

__all__ = ["Exported", "c"]


@dataclass(frozen=True)
class Exported:
    """What was written, and the bytes that it takes on a device beside its code."""

    files: tuple[Path, ...]
    arena_bytes: int
    weight_bytes: int


def c(
    model: Model, folder: str | os.PathLike[str], name: str = "undivided", check: Any = None
) -> Exported:
    """Print a model's forward pass as C99, into `name`.c and `name`.h in `folder`.

    The function is `name`_predict(const float *input, float *logits). With samples as `check`
    there is a `name`_check.c too: their expected scores, and a `main` that compares.
    """
    if not isinstance(name, str) or not is_identifier(name):
        raise ArgumentError(
            "The 'name' of a C file must be letters, digits and single _, and begin with a "
            f"letter: it begins the names in it. Got {name!r}.",
            argument="name",
        )
    check_exportable(model.plan)
    for parameter, values in model.parameters.items():
        if not np.isfinite(values).all():
            raise ExportError(
                f"The parameter {parameter!r} holds a number that is not finite, which C has no "
                "literal for. Train the model again."
            )
    program = Program(model.plan, model.parameters, name)
    texts = {f"{name}.h": program.header(), f"{name}.c": program.source()}
    if check is not None:
        texts[f"{name}_check.c"] = check_program(model, program, check)
    where = _folder(folder)
    for file, text in texts.items():
        write_beside(where / file, [text.encode("ascii")])
    return Exported(
        tuple(where / file for file in texts), program.arena_bytes, program.weight_bytes
    )


def _folder(folder: str | os.PathLike[str]) -> Path:
    """The folder, made if it is not there."""
    path = Path(os.path.expanduser(folder))
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ExportError(
            f"The folder {os.fspath(folder)!r} cannot be made: {reason}. Name another."
        ) from error
    return path
