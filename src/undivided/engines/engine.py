"""What every engine offers. The model, the training loop and the tests know no more than this."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Union

import numpy as np

from undivided.errors import ArgumentError
from undivided.plan.plan import Plan

__all__ = [
    "Engine",
    "Packed",
    "Results",
    "Samples",
    "Sequences",
    "Several",
    "TrainedSteps",
    "checked_order",
    "inputs_of",
]

# N samples, [N, *plan.input.shape]; y are Targets, or an array [N, …] to make them of.

Samples = Union[np.ndarray, Sequence[np.ndarray], "Several"]
"""One array for all samples, or where an axis is ragged one array for each. Plans with several
inputs take `Several`."""


class Several:
    """The samples of a plan with several inputs: for each input what `Samples` are for one."""

    def __init__(self, *parts: Samples) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts[0])

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        return zip(*self.parts, strict=True)

    def __getitem__(self, rows: slice) -> Several:
        return Several(*(part[rows] for part in self.parts))


def inputs_of(x: Samples) -> tuple[Any, ...]:
    """The samples of each input."""
    return x.parts if isinstance(x, Several) else (x,)


class Packed(list[np.ndarray]):
    """Samples of different lengths that lie end to end in one array, `rows`.

    An engine that wants them so need not put them together for every call.
    """

    def __init__(self, samples: Sequence[np.ndarray]) -> None:
        self.rows = np.concatenate(samples)
        self.lengths = np.array([len(sample) for sample in samples], np.int64)
        super().__init__(np.split(self.rows, np.cumsum(self.lengths)[:-1]))

    @classmethod
    def of_rows(cls, rows: np.ndarray, lengths: np.ndarray) -> Packed:
        """Samples that lie end to end already."""
        packed = cls.__new__(cls)
        packed.rows, packed.lengths = rows, lengths.astype(np.int64)
        list.__init__(packed, np.split(rows, np.cumsum(lengths)[:-1]))
        return packed


Results = np.ndarray | list[np.ndarray]
"""What comes back: one array, or a list where the results differ in length."""


@dataclass(frozen=True)
class TrainedSteps:
    """What a run of training steps did.

    `losses` holds, for each step done, the sum of its rows' losses, each times its weight.
    `failed` says that the step after those had a non-finite loss; the parameters are as they were
    before it.
    """

    losses: np.ndarray
    failed: bool


def checked_order(order: np.ndarray, samples: int, batch_size: int, steps: int) -> np.ndarray:
    """`order` as uint32, if it names samples that there are and fills all steps."""
    order = np.ascontiguousarray(order, np.uint32)
    if len(order) <= (steps - 1) * batch_size:
        raise ArgumentError(
            f"train expects an order that fills {steps} steps of {batch_size}. "
            f"Got {len(order)} samples.",
            argument="order",
        )
    if len(order) and int(order.max()) >= samples:
        raise ArgumentError(
            f"train expects an order over {samples} samples. It names sample {int(order.max())}.",
            argument="order",
        )
    return order


class Sequences(Protocol):
    """Sequences that go on: what `Engine.begin` gives.

    `which` names some of them; `tokens` are the new ids of each, one at least.
    """

    def lengths(self, which: Sequence[int]) -> Sequence[int]:
        """How many tokens each has."""
        ...

    def scores(self, which: Sequence[int], tokens: Sequence[np.ndarray]) -> np.ndarray:
        """Take in new tokens; the scores of the last of each sequence's, [len(which), V]."""
        ...

    def forget(self, which: Sequence[int]) -> None:
        """Their tokens, but not their sources."""
        ...


class Engine(Protocol):
    """A plan that runs.

    `parameters` are the engine's own arrays under the plan's names: live and writable, so that
    what is written into them is used by the next call. `slots` are the optimizer's arrays
    ("mean", …), each with the plan's names below it.
    """

    plan: Plan
    seed: int
    """What dropout draws from. A step's coins depend on it, the number of the step (`first_step`
    and on), the place of a sample in its batch, and where in the sample a number stands."""
    parameters: Mapping[str, np.ndarray]
    slots: Mapping[str, Mapping[str, np.ndarray]]

    def replan(self, plan: Plan) -> None:
        """Run another plan with the same parameters and slots from now on."""
        ...

    def predict(self, x: Samples) -> Results:
        """The plan's output (logits) for each sample: [N, *output.shape]."""
        ...

    def begin(self, count: int, most: int, source: Samples | None = None) -> Sequences | None:
        """`count` sequences without a token yet, which will have at most `most`.

        `source` are the samples of the inputs before the last. The parameters must stay as they
        are for as long as the sequences go on. None where the plan cannot go on (see
        `plan/continuing.py`), or where there is not the memory to keep so much.
        """
        ...

    def attention_weights(self, x: Samples) -> dict[str, Results]:
        """Layer name → attention weights [N, heads, S, S]."""
        ...

    def loss_and_gradients(
        self, x: Samples, y: Any, step: int | None = None
    ) -> tuple[float, dict[str, np.ndarray]]:
        """The mean loss of the samples' rows and its gradient for each parameter.

        With a `step`, as training's step of that number computes it: with dropout.
        """
        ...

    def pull_back(self, x: Samples, dy: Samples) -> tuple[Any, dict[str, np.ndarray]]:
        """The gradients of sum(dy · output(x)) for x and for each parameter.

        That of ids is None; several inputs have a tuple of gradients.
        """
        ...

    def train(
        self,
        x: Samples,
        y: Any,
        order: np.ndarray,
        batch_size: int,
        first_step: int,
        learning_rates: np.ndarray,
        optimizer_steps: int | None = None,
    ) -> TrainedSteps:
        """Take one step for each learning rate, over the samples that `order` (uint32) names.

        The first step takes order[:batch_size] and so on; the last may be short. `first_step`
        is how many steps there were before: the number that dropout's coins know. The optimizer
        has taken as many (Adam's t − 1), unless `optimizer_steps` says that it began anew. A
        batch's gradient is that of its mean loss. Stops before a step whose loss is not finite.
        """
        ...
