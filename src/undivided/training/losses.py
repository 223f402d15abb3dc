"""Losses: what training makes small, and which targets each of them wants.

The last axis of an output is one *row*; a row has one loss. A sample has one row, or where the
output is a sequence one for each position. What a batch's gradient is of is the mean of the
losses of its rows, each times its weight:

    loss = Σ w·l / Σ w        over all rows of the batch; w is 1 unless weights are given,
                              and 0 for targets that are ignored

How the numbers of a row become its loss is a primitive (docs/derivations): `cross_entropy`,
`binary_cross_entropy` and `deviation`, in every engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from undivided.description import Description, argument

__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "Huber",
    "Loss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "SparseCategoricalCrossentropy",
    "TargetKind",
]

TargetKind = Literal["classes", "distributions", "shares", "values"]
"""What a target is: the number of a class (one for each row); or one number for each number of
the output: probabilities of classes that add up to 1, shares from 0 to 1, or any values."""


@dataclass(frozen=True)
class Loss(Description, family=True):
    """What training makes small: a number for each row of the output."""

    targets: ClassVar[TargetKind]
    primitive: ClassVar[str]
    link: ClassVar[str | None] = None
    """The activation that turns logits into probabilities. As a network's last operation it is
    left to the loss, which is computed from the logits."""

    def attributes(self) -> dict[str, Any]:
        """What the primitive takes besides the output and the targets."""
        return {}

    def __str__(self) -> str:
        if self.short is not None and self == type(self)():
            return self.short
        given = ", ".join(f"{k}={v}" for k, v in vars(self).items() if v is not None)
        return f"{self.keyword}({given})"


@dataclass(frozen=True)
class SparseCategoricalCrossentropy(Loss, short=("sparse_categorical_crossentropy",)):
    """−log softmax(logits)[class]; targets are class numbers, one for each row.

    `label_smoothing` α replaces the certain target by (1−α)·onehot + α/classes. A target that
    equals `ignore` has no loss and no gradient: padding, say.
    """

    targets: ClassVar[TargetKind] = "classes"
    primitive: ClassVar[str] = "cross_entropy"
    link: ClassVar[str | None] = "softmax"

    label_smoothing: float = argument(0.0, doc="α", at_least=0.0, below=1.0)
    ignore: int | None = argument(
        None, doc="the target that does not count, such as −1", at_least=-(2**31), at_most=2**31 - 1
    )

    def attributes(self) -> dict[str, Any]:
        return {"label_smoothing": self.label_smoothing}


@dataclass(frozen=True)
class CategoricalCrossentropy(Loss, short=("categorical_crossentropy",)):
    """−Σ target·log softmax(logits); a row of targets is one-hot, or any shares that add up to 1.

    `label_smoothing` α replaces the target by (1−α)·target + α/classes.
    """

    targets: ClassVar[TargetKind] = "distributions"
    primitive: ClassVar[str] = "cross_entropy"
    link: ClassVar[str | None] = "softmax"

    label_smoothing: float = argument(0.0, doc="α", at_least=0.0, below=1.0)

    def attributes(self) -> dict[str, Any]:
        return {"label_smoothing": self.label_smoothing}


@dataclass(frozen=True)
class BinaryCrossentropy(Loss, short=("binary_crossentropy",)):
    """−t·log σ(logit) − (1−t)·log(1−σ(logit)), the mean over a row; targets t from 0 to 1.

    Every output is a yes or no of its own. `label_smoothing` α replaces t by (1−α)·t + α/2.
    """

    targets: ClassVar[TargetKind] = "shares"
    primitive: ClassVar[str] = "binary_cross_entropy"
    link: ClassVar[str | None] = "sigmoid"

    label_smoothing: float = argument(0.0, doc="α", at_least=0.0, below=1.0)

    def attributes(self) -> dict[str, Any]:
        return {"label_smoothing": self.label_smoothing}


@dataclass(frozen=True)
class MeanSquaredError(Loss, short=("mse", "mean_squared_error")):
    """(output − target)², the mean over a row."""

    targets: ClassVar[TargetKind] = "values"
    primitive: ClassVar[str] = "deviation"

    def attributes(self) -> dict[str, Any]:
        return {"measure": "squared"}


@dataclass(frozen=True)
class MeanAbsoluteError(Loss, short=("mae", "mean_absolute_error")):
    """|output − target|, the mean over a row."""

    targets: ClassVar[TargetKind] = "values"
    primitive: ClassVar[str] = "deviation"

    def attributes(self) -> dict[str, Any]:
        return {"measure": "absolute"}


@dataclass(frozen=True)
class Huber(Loss, short=("huber",)):
    """e²/2 where |e| ≤ δ and δ·(|e| − δ/2) beyond, e = output − target; the mean over a row."""

    targets: ClassVar[TargetKind] = "values"
    primitive: ClassVar[str] = "deviation"

    delta: float = argument(1.0, doc="δ, from where on a deviation counts linearly", above=0.0)

    def attributes(self) -> dict[str, Any]:
        return {"measure": "huber", "delta": self.delta}
