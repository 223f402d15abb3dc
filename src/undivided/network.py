"""The network: what a model is. Data only — no arrays, no behaviour.

Text and Python build the same object, and it prints back to text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from undivided.description import Description, argument
from undivided.layers.base import Layer
from undivided.training.augmentation import Augmentation
from undivided.training.losses import Loss, SparseCategoricalCrossentropy
from undivided.training.metrics import Metric
from undivided.training.optimizers import Adam, Optimizer
from undivided.training.stopping import EarlyStopping

if TYPE_CHECKING:
    from undivided.plan.plan import Plan

__all__ = ["Execution", "Network", "Source", "Train"]


@dataclass(frozen=True)
class Source(Description, family=True):
    """What a network is trained on: a built-in set by its name, or a file."""


@dataclass(frozen=True)
class Mnist(Source, keyword="mnist"):
    """The 70,000 handwritten digits of MNIST, 28×28 bytes, read from IDX files."""

    folder: str | None = argument(None, doc="where the four files lie; else the usual places")


@dataclass(frozen=True)
class Digits(Source, keyword="digits"):
    """1,797 handwritten digits, 8×8, which come with the package."""


@dataclass(frozen=True)
class Iris(Source, keyword="iris"):
    """150 flowers of three kinds, four measurements each, which come with the package."""


@dataclass(frozen=True)
class Text(Source, keyword="text"):
    """A text file: windows of bytes or characters, and what follows each of them."""

    path: str = argument(doc="the file")
    length: int = argument(128, doc="tokens of a window", at_least=1, at_most=1 << 24)
    unit: Literal["bytes", "characters"] = argument("bytes", doc="what a token is")


@dataclass(frozen=True)
class Random(Source, keyword="random"):
    """Numbers and targets of the network's own shapes, to try it before there is data."""

    count: int = argument(1_024, doc="samples to train on", at_least=1, at_most=1 << 28)
    test: int = argument(128, doc="samples to test on", at_least=1, at_most=1 << 28)
    seed: int = argument(1, doc="what they are drawn from", at_least=0, at_most=2**64 - 1)


@dataclass(frozen=True)
class Task(Source, keyword="copy"):
    """Generated: say a sequence of ids again."""

    length: int = argument(16, doc="ids of a sequence", at_least=1, at_most=1 << 20)
    symbols: int = argument(16, doc="how many ids there are, from 1", at_least=1, at_most=1 << 20)
    count: int = argument(8_192, doc="sequences to train on", at_least=1, at_most=1 << 28)
    test: int = argument(1_024, doc="sequences to test on", at_least=1, at_most=1 << 28)
    seed: int = argument(1, doc="what they are drawn from", at_least=0, at_most=2**64 - 1)


@dataclass(frozen=True)
class Reverse(Task, keyword="reverse"):
    """Generated: say a sequence of ids backwards."""


@dataclass(frozen=True)
class Sort(Task, keyword="sort"):
    """Generated: say a sequence of ids in order."""


@dataclass(frozen=True)
class Induction(Task, keyword="induction"):
    """Generated: say what followed the last id when it was there before."""


@dataclass(frozen=True)
class Recall(Source, keyword="recall"):
    """Generated: say what stood beside a key."""

    pairs: int = argument(8, doc="keys and values of a sequence", at_least=1, at_most=1 << 20)
    symbols: int = argument(16, doc="how many keys there are", at_least=1, at_most=1 << 20)
    count: int = argument(8_192, doc="sequences to train on", at_least=1, at_most=1 << 28)
    test: int = argument(1_024, doc="sequences to test on", at_least=1, at_most=1 << 28)
    seed: int = argument(1, doc="what they are drawn from", at_least=0, at_most=2**64 - 1)


@dataclass(frozen=True)
class MaxRow(Source, keyword="max_row"):
    """Generated: say the row whose first number is the largest, in all positions."""

    rows: int = argument(16, doc="rows of a sequence", at_least=1, at_most=1 << 20)
    features: int = argument(8, doc="numbers in a row", at_least=1, at_most=1 << 20)
    count: int = argument(65_536, doc="sequences to train on", at_least=1, at_most=1 << 28)
    test: int = argument(2_048, doc="sequences to test on", at_least=1, at_most=1 << 28)
    seed: int = argument(1, doc="what they are drawn from", at_least=0, at_most=2**64 - 1)


@dataclass(frozen=True)
class Sines(Source, keyword="sines"):
    """Generated: carry on a sum of two sines, seen with noise."""

    length: int = argument(64, doc="values that are seen", at_least=1, at_most=1 << 20)
    ahead: int = argument(8, doc="values that are asked for", at_least=1, at_most=1 << 20)
    count: int = argument(8_192, doc="series to train on", at_least=1, at_most=1 << 28)
    test: int = argument(1_024, doc="series to test on", at_least=1, at_most=1 << 28)
    noise: float = argument(0.05, doc="the noise's deviation", at_least=0.0)
    seed: int = argument(1, doc="what they are drawn from", at_least=0, at_most=2**64 - 1)


@dataclass(frozen=True)
class Agreement(Source, keyword="agreement"):
    """Generated: tell whether the verbs of an English sentence agree with their subjects."""

    count: int = argument(32_768, doc="sentences to train on", at_least=1, at_most=1 << 24)
    test: int = argument(2_048, doc="sentences to test on", at_least=1, at_most=1 << 24)
    seed: int = argument(1, doc="what they are drawn from", at_least=0, at_most=2**64 - 1)


@dataclass(frozen=True)
class Series(Source, keyword="series"):
    """Time series in a .ts file, NAME_TRAIN.ts with NAME_TEST.ts beside it."""

    path: str = argument(doc="the file")
    normalize: bool = argument(
        False, doc="whether each dimension is brought to mean 0 and deviation 1 over the training"
    )


@dataclass(frozen=True)
class Aeon(Source, keyword="aeon"):
    """Time series that ship inside the Python package aeon, which has to be installed."""

    name: str = argument(doc="such as JapaneseVowels")
    normalize: bool = argument(
        False, doc="whether each dimension is brought to mean 0 and deviation 1 over the training"
    )


@dataclass(frozen=True)
class File(Source, keyword="file"):
    """Arrays x, y (and x_test, y_test) in an .npz file, a .ts file, or a folder of IDX files."""

    path: str = argument(doc="the file or folder")


@dataclass(frozen=True)
class Train(Description, family=True, keyword="train"):
    """How a network is trained unless told otherwise."""

    epochs: int = argument(5, doc="how often all samples are seen", at_least=1)
    batch_size: int = argument(32, doc="how many samples make a step", at_least=1)
    gradient_accumulation_steps: int = argument(
        1, doc="how many batches make a step; the same as a batch so many times larger", at_least=1
    )
    recompute: bool = argument(
        False,
        doc="keep few values for backward and compute the others again: less memory, the same bits",
    )
    seed: int = argument(1, doc="what the random numbers start from", at_least=0, at_most=2**64 - 1)
    generator: Literal["philox", "xorshift64"] = argument(
        "philox", doc="philox counts and can start anywhere; xorshift64 is the reference programs'"
    )
    log: str | None = argument(None, doc="a CSV file with one line an epoch")
    initial: Literal["xavier", "fan_in"] = argument(
        "xavier",
        doc="weights of linear layers start uniform within ±√(6/(in+out)), or within ±1/√in",
    )
    augment: Augmentation | None = argument(
        None, doc="what happens to samples before an epoch sees them"
    )
    validation_split: float = argument(
        0.0,
        doc="the share of the samples kept for testing where no others are",
        at_least=0.0,
        below=1.0,
    )
    early_stopping: EarlyStopping | None = argument(
        None, doc="when training ends before its epochs are over"
    )


@dataclass(frozen=True)
class Execution(Description, family=True, keyword="execution"):
    """What a network runs on unless told otherwise."""

    engine: Literal["native", "reference"] = argument("native", doc="which engine computes")
    threads: int | None = argument(
        None,
        doc="how many threads; else one for each core that may be used",
        at_least=1,
        at_most=1024,
    )
    device: Literal["auto", "cpu"] = argument(
        "auto", doc="what it runs on: the CPU, which is all there is, and what auto finds"
    )


@dataclass(frozen=True)
class Inputs(Description, family=True, keyword="inputs"):
    """What a sample consists of where an encoder and a decoder are given something each."""

    in_words: ClassVar[str] = "{ source: …, target: … }"

    source: tuple[int | None, ...] = argument(doc="what the encoder is given", at_least=1)
    target: tuple[int | None, ...] = argument(doc="what the decoder is given", at_least=1)


@dataclass(frozen=True)
class Network(Description, family=True, keyword="network"):
    """A network: the shape of one sample, the layers, and how it learns."""

    input: Inputs | tuple[int | None, ...] = argument(
        doc="the shape of one sample, such as (28, 28); None is a length that samples bring along",
        at_least=1,
    )
    layers: tuple[Layer, ...] = argument(doc="the layers, in order")
    name: str = argument("network", doc="what it is called")
    data: Source | None = argument(None, doc="what it is trained on")
    loss: Loss = argument(SparseCategoricalCrossentropy(), doc="what training makes small")
    metrics: tuple[Metric, ...] = argument(
        (), doc="what tests say besides the loss; else accuracy, or for values mae and r2"
    )
    optimizer: Optimizer = argument(Adam(), doc="how a gradient changes the parameters")
    train: Train = argument(Train(), doc="how it is trained unless told otherwise")
    execution: Execution = argument(Execution(), doc="what it runs on unless told otherwise")
    positions: Literal["sinusoidal", "learned", "none"] = argument(
        "sinusoidal",
        doc="what tells tokens where they stand, before the first encoder or decoder",
    )

    def __post_init__(self) -> None:
        if isinstance(self.data, str):
            object.__setattr__(self, "data", source_of(self.data))
        super().__post_init__()

    def check(self) -> None:
        from undivided.errors import ArgumentError

        several = isinstance(self.input, Inputs)
        takes_ids = several or (bool(self.layers) and self.layers[0].takes_ids)
        for shape in (
            (self.input.source, self.input.target)
            if isinstance(self.input, Inputs)
            else (self.input,)
        ):
            open_end = shape[-1:] == (None,) and not takes_ids
            if not shape or open_end or None in shape[1:]:
                raise ArgumentError(
                    "The 'input' of network must have at least one axis, and only the first of "
                    f"several may be None. Got {shape}.",
                    argument="input",
                )
        if not self.layers:
            raise ArgumentError("The 'layers' of network are empty.", argument="layers")
        for metric in self.metrics:
            if self.loss.targets not in metric.wants:
                raise ArgumentError(
                    f"The metric {metric.label!r} of network is for {' and '.join(metric.wants)}; "
                    f"the targets of {self.loss} are {self.loss.targets}.",
                    argument="metrics",
                )

    origin: ClassVar[Any] = None
    """Where it was read (a `language.origin.Origin`), if it was; no part of what it is."""

    def plan(self, *, ragged: bool = False) -> Plan:
        """What the network does, as primitive operations; errors name layer, shapes and place.

        `ragged` makes one for samples that may be shorter than `input` says.
        """
        from undivided.errors import ArgumentError, ShapeError
        from undivided.plan.builder import lower

        try:
            return lower(self, ragged=ragged)
        except (ShapeError, ArgumentError) as error:
            if self.origin is None or error.layer is None:
                raise
            raise type(error)(self.origin.show(error.layer, str(error))) from None

    def to_text(self) -> str:
        """The network in the `.neural` text form; `undivided.parse` reads it back equal."""
        from undivided.language import to_text

        return to_text(self)

    def describe(self) -> str:
        """Layers, shapes, parameters, costs and memory, as a page of text."""
        from undivided.plan.describe import describe

        return describe(self)


def source_of(text: str) -> Source:
    """`mnist`, `digits` … are built-in sets; anything else names a file or folder."""
    known = Source.members.get(text.replace("-", "_"))
    made = known() if known not in (None, File, Text, Series, Aeon) else File(text)
    assert isinstance(made, Source)
    return made
