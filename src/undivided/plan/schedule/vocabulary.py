"""A vocabulary's scores are never there as a whole: linear layer and loss go a few rows at a time.

Where the last operation gives each row as many scores as a vocabulary has words, they would be most
of what training needs memory for. One instruction works out those of a chunk of rows, their loss
and all gradients, and reuses its room for the next chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.plan.plan import Operation
from undivided.plan.primitives import linear
from undivided.plan.schedule.losses import loss_fields

if TYPE_CHECKING:
    from undivided.plan.schedule.compile import Compiler

__all__ = ["CHUNK_ROWS", "LEAST_WORDS", "emit", "in_chunks"]

LEAST_WORDS = 2048
"""From so many scores a row on."""
CHUNK_ROWS = 128
"""Rows at a time: every chunk reads all weights and adds to all their gradients."""


def in_chunks(compiler: Compiler) -> Operation | None:
    """The last linear layer of a training program, if it is to go with its loss.

    How many scores a row has decides, and not how many rows there are: a sample's length must not
    change the order of anybody's sums.
    """
    graph, loss = compiler.graph, compiler.plan.loss
    last = graph.producers.get(graph.output)
    if compiler.purpose != "train" or last is None or last.kind != "linear":
        return None
    plain = set(last.attributes) <= {"turned"} and not graph.readers.get(graph.output)
    of_classes = loss.primitive == "cross_entropy" and loss.targets == "classes"
    wide = graph.values[graph.output].width >= LEAST_WORDS
    return last if plain and of_classes and wide else None


def emit(compiler: Compiler, op: Operation) -> None:
    """The instruction for the layer, its loss and its way back."""
    width = compiler.graph.values[op.output].width
    rows = min(CHUNK_ROWS, compiler.most_rows(op.output) * compiler.group)
    _, fields = loss_fields(compiler.plan.loss)
    compiler.emit(
        op,
        "vocabulary",
        **linear.gradients(compiler, op),
        scratch=compiler.scratch(rows * compiler.padded(width)),
        depth=width,
        down=rows,
        **fields,
    )
