"""Embedding: ids become vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.description import argument
from undivided.errors import ArgumentError
from undivided.layers.base import Layer
from undivided.plan.plan import Initial

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Embedding"]


@dataclass(frozen=True)
class Embedding(Layer):
    """y[s] = table[ids[s]], a row of the table for each id: (S,) → (S, output_dim).

    It stands first in a network, and makes its input ids: whole numbers from 0 to input_dim − 1.
    An input of two axes whose second is `output_dim`, such as (128, 512), means 128 ids.

    Tokens with the `padding_id` only fill samples up. They are taken out before anything sees
    them: nothing attends to them, no mean counts them, no loss does.
    """

    prefix: ClassVar[str] = "embedding"
    example: ClassVar[tuple[str, ...]] = (
        "(20)",
        "Embedding(input_dim=100, output_dim=16)",
        "GlobalAveragePooling1D()",
        "Output(2)",
    )
    takes_ids: ClassVar[bool] = True

    input_dim: int = argument(doc="how many ids there are", at_least=1, at_most=2**31 - 1)
    output_dim: int = argument(doc="the width of a row", at_least=1)
    padding_id: int | None = argument(None, doc="the id that only fills up", at_least=0)
    mask_zero: bool = argument(False, doc="the same as padding_id=0")
    range: float = argument(
        math.sqrt(3.0), doc="the r of a start within ±r; √3 gives a variance of 1", at_least=0.0
    )

    def check(self) -> None:
        if self.mask_zero and self.padding_id not in (None, 0):
            raise ArgumentError(
                f"The 'padding_id' of Embedding is {self.padding_id}, and 'mask_zero' says that it "
                "is 0. Give one of the two.",
                argument="mask_zero",
            )
        if self.padding_id is not None and self.padding_id >= self.input_dim:
            raise ArgumentError(
                f"The 'padding_id' of Embedding must be below its 'input_dim', {self.input_dim}. "
                f"Got {self.padding_id}.",
                argument="padding_id",
            )

    @property
    def padding(self) -> int | None:
        """The id that only fills up, however it was said."""
        return 0 if self.mask_zero else self.padding_id

    def lower(self, builder: Builder, x: Value) -> Value:
        start = Initial("uniform", self.range)
        if builder.has_encoder and builder.memory is None and len(builder.inputs) > 1:
            x = builder.begin_decoding(x)  # an embedding of the target's own
        return builder.embed(x, self.input_dim, self.output_dim, start)
