"""Three engines with the same numbers in them, and how far two of them may differ.

The float64 reference is the definition. How far the float32 reference is from it shows what
rounding alone does to a plan and its numbers: with that error called e32, an engine in float32
agrees where

    max|e| ≤ 2·max|e32| + 8·2⁻²⁴·max|ref|

for each result by itself: the predictions, the weights of one layer, the gradient of one
parameter.

An error of rounding is luck: the same sum in another order is off by more or by less, and in a
small array now and then by nothing at all. So each maximum is taken over the result at several
points close to each other (parameters and samples), which are all as sensitive, and not at one.
What does not agree after a few is looked at in more: an error that is no luck only stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from undivided.engines.engine import Engine, Several
from undivided.engines.native import NativeEngine
from undivided.engines.reference import ReferenceEngine
from undivided.engines.reference.samples import groups
from undivided.network import Network
from undivided.plan.plan import Input, Plan, Ragged
from undivided.targets import checked_targets

__all__ = ["NEAR", "Batch", "Checks", "Trio", "agrees", "batch_for", "fill", "start_values"]

# N samples, C classes; x is [N, *input] or a list of N arrays, y [N], dy [N, *output].

FEW, MANY = 4, 64
"""At how many neighbours results are compared, and at how many where they do not agree yet."""
NEAR = 1e-2
"""How far numbers are from those of a neighbour, as a share of their size."""
KINK = 2e-6
"""Where relu comes so close to 0 its derivative jumps with a rounding: such numbers say nothing."""


@dataclass
class Result:
    """One result in all its neighbours: the largest error, that of float32, and the size."""

    error: float = 0.0
    rounding: float = 0.0
    size: float = 0.0
    unit: float = 2.0**-24

    def meet(self, found: Any, exact: Any, rounded: Any) -> None:
        found, exact, rounded = (_numbers(each) for each in (found, exact, rounded))
        assert found.shape == exact.shape == rounded.shape
        assert np.isfinite(exact).all(), "the definition itself is not finite here"
        # A NaN is no number to compare: it counts as an infinite error.
        error = np.nan_to_num(np.abs(found - exact), nan=np.inf, posinf=np.inf)
        self.error = max(self.error, error.max(initial=0.0))
        self.rounding = max(self.rounding, np.abs(rounded - exact).max(initial=0.0))
        self.size = max(self.size, np.abs(exact).max(initial=0.0))

    @property
    def ratio(self) -> float:
        """The largest error as a share of what it may be: at most 1 where engines agree."""
        allowed = 2 * self.rounding + 8 * self.unit * self.size
        if self.error == 0:
            return 0.0
        return float(self.error / allowed) if allowed else np.inf


def _numbers(result: Any) -> np.ndarray:
    """All numbers in float64 or long double; those of samples that differ in length are joined."""
    if isinstance(result, list):
        return np.concatenate([np.zeros(0), *(np.ravel(each) for each in result)])
    array = np.asarray(result)
    return array if array.dtype == np.longdouble else array.astype(np.float64)


@dataclass
class Checks:
    """What was compared, by name; a check is one result."""

    results: dict[str, Result] = field(default_factory=dict)

    def compare(self, name: str, *three: Any) -> None:
        self.results.setdefault(name, Result()).meet(*three)

    def gradients(self, name: str, *three: Mapping[str, np.ndarray]) -> None:
        """Each parameter's gradient alone. A key bias counts as one more row of the key weight.

        Softmax does not see what is added to a whole row of scores, so the gradient of a key
        bias is exactly 0, and what a float32 engine says of it is rounding and nothing else.
        What it may be off is told by the size of the sums that it is left over from.
        """
        assert all(list(each) == list(three[0]) for each in three)
        for parameter in three[0]:
            arrays = [each[parameter] for each in three]
            if parameter.endswith(".key.bias"):
                weight = parameter.removesuffix("bias") + "weight"
                arrays = [np.vstack([each[weight], each[parameter]]) for each in three]
            self.compare(f"{name} of {parameter}", *arrays)

    @property
    def ratios(self) -> dict[str, float]:
        return {name: result.ratio for name, result in self.results.items()}

    @property
    def agree(self) -> bool:
        return all(result.ratio <= 1 for result in self.results.values())

    def verify(self) -> None:
        wrong = sorted((-ratio, name) for name, ratio in self.ratios.items() if not ratio <= 1)
        shown = "\n".join(
            f"  {name}: {-ratio:.3g} times what it may be off" for ratio, name in wrong
        )
        assert not wrong, f"does not agree with the reference:\n{shown}"


@dataclass(frozen=True)
class Batch:
    x: Any
    y: Any
    dy: Any

    def neighbour(self, number: int) -> Batch:
        """The same batch, or one close to it."""
        random = np.random.default_rng([number, 4])

        def near(x: np.ndarray) -> np.ndarray:
            if not number or x.dtype == np.int32:  # ids have no neighbours
                return x
            if x.dtype == np.uint8:
                steps = random.integers(-2, 3, x.shape)
                return (x + steps).clip(0, 255).astype(np.uint8)
            return x * (1 + NEAR * random.normal(size=x.shape)).astype(np.float32)

        def near_all(x: Any) -> Any:
            return [near(sample) for sample in x] if isinstance(x, list) else near(x)

        several = isinstance(self.x, Several)
        x = Several(*map(near_all, self.x.parts)) if several else near_all(self.x)
        return Batch(x, self.y, self.dy)


def batch_for(
    plan: Plan,
    count: int = 3,
    *,
    seed: int = 0,
    as_bytes: bool = False,
    lengths: tuple[int, ...] = (),
    weighted: bool = False,
) -> Batch:
    """`count` random samples, or one of each of `lengths` where the plan's input is ragged."""
    random = np.random.default_rng([seed, 1])

    def draw(entry: Input, *shape: Any) -> np.ndarray:
        if entry.vocabulary is not None:
            return random.integers(0, entry.vocabulary, shape, np.int32)
        if as_bytes:
            return random.integers(0, 256, shape, np.uint8)
        return random.normal(size=shape).astype(np.float32)

    def lengths_of(number: int) -> tuple[int, ...]:
        """Every input has lengths of its own."""
        first = number % max(len(lengths), 1)
        return lengths[first:] + lengths[:first]

    def samples(number: int, entry: Input) -> Any:
        if not isinstance(entry.shape[0], Ragged):
            return draw(entry, len(lengths) or count, *entry.shape)
        return [draw(entry, length, *entry.shape[1:]) for length in lengths_of(number)]

    each = [samples(number, entry) for number, entry in enumerate(plan.inputs)]
    x = each[0] if len(each) == 1 else Several(*each)
    like = [entry.shape[:1] for entry in plan.inputs]  # outputs have the lengths of one of them
    ragged = isinstance(plan.output.shape[0], Ragged)
    rows = lengths_of(like.index(plan.output.shape[:1])) if ragged else lengths
    y = targets_for(plan, random, len(x), rows, weighted=weighted)
    dy: Any
    if ragged:
        dy = [random.normal(size=(n, plan.output.width)).astype(np.float32) for n in rows]
    else:
        dy = random.normal(size=(len(x), *plan.output.shape)).astype(np.float32)
    return Batch(x, y, dy)


def targets_for(
    plan: Plan,
    random: np.random.Generator,
    count: int,
    lengths: tuple[int, ...] = (),
    *,
    weighted: bool = False,
) -> Any:
    """Targets such as the plan's loss wants, in one array or for each sample; or with weights."""
    kind, width = plan.loss.targets, plan.output.width

    def draw(shape: tuple[Any, ...]) -> np.ndarray:
        if kind == "classes":
            return random.integers(0, width, shape[:-1]).astype(np.int32)
        if kind == "values":
            return random.normal(size=shape).astype(np.float32)
        shares = random.random(shape).astype(np.float32)
        return shares if kind == "shares" else shares / shares.sum(axis=-1, keepdims=True)

    shape = plan.output.shape
    ragged = isinstance(shape[0], Ragged)
    y: Any = [draw((n, width)) for n in lengths] if ragged else draw((count, *shape))
    if not weighted:
        return y
    weights: Any = random.choice([0.0, 0.5, 1.0, 3.0], count)
    if len(shape) > 1:
        rows = [len(each) for each in y] if ragged else [math.prod(shape[:-1])] * count
        weights = [random.choice([0.0, 0.5, 1.0, 3.0], n) for n in rows]
    return checked_targets(y, plan, count, weights=weights)


def start_values(plan: Plan, seed: int = 0, neighbour: int = 0) -> dict[str, np.ndarray]:
    """Parameters with which values neither die out nor explode, float32."""
    random = np.random.default_rng([seed, 2])
    near = np.random.default_rng([seed, 3, neighbour])
    values = {}
    for name, parameter in plan.parameters.items():
        value = random.normal(size=parameter.shape)
        if name.endswith(".weight"):
            value /= np.sqrt(parameter.shape[0])
        elif name.endswith(".gain"):
            value = 1 + 0.3 * value
        else:
            value *= 0.3
        if neighbour:
            value *= 1 + NEAR * near.normal(size=parameter.shape)
        values[name] = value.astype(np.float32)
    return values


def fill(engine: Engine, values: Mapping[str, np.ndarray]) -> None:
    for name, value in values.items():
        engine.parameters[name][...] = value


class Trio:
    """A plan on the engine under test and on the reference in both precisions."""

    def __init__(
        self,
        network: Network | Plan,
        *,
        seed: int = 0,
        threads: int = 1,
        make: Callable[[Plan, int], Engine] = NativeEngine,
    ) -> None:
        self.plan = network.plan() if isinstance(network, Network) else network
        self.seed = seed
        self.found = make(self.plan, threads)
        self.exact = ReferenceEngine(self.plan, np.float64)
        self.rounded = ReferenceEngine(self.plan, np.float32)
        self.neighbour(0)

    @property
    def engines(self) -> tuple[Engine, Engine, Engine]:
        return self.found, self.exact, self.rounded

    def neighbour(self, number: int) -> None:
        """Give all engines the parameters of that neighbour."""
        values = start_values(self.plan, self.seed, number)
        for engine in self.engines:
            fill(engine, values)

    def expected_checks(self) -> int:
        """How many results a batch has: predictions, weights, loss, dx, and two gradients each."""
        attentions = len(self.plan.attentions)
        return 2 + len(self._numbers()) + attentions + 2 * len(self.plan.parameters)

    def _numbers(self) -> list[int]:
        """The inputs that are no ids, and so have gradients."""
        return [i for i, entry in enumerate(self.plan.inputs) if entry.vocabulary is None]

    def check(self, batch: Batch) -> Checks:
        """Everything that an engine says of a batch."""
        checks, met = Checks(), 0
        for number in range(4 * MANY):
            self.neighbour(number)
            near = batch.neighbour(number)
            if self._kink(near) < KINK:
                continue
            self._meet(near, checks)
            met += 1
            if met >= MANY or (met >= FEW and checks.agree):
                break
        assert met >= FEW, "nearly every neighbour has a relu at its kink: choose another seed"
        assert len(checks.results) == self.expected_checks()
        return checks

    def _meet(self, batch: Batch, checks: Checks) -> None:
        checks.compare("predictions", *(engine.predict(batch.x) for engine in self.engines))
        weights = [engine.attention_weights(batch.x) for engine in self.engines]
        assert all(list(each) == list(weights[0]) for each in weights)
        for layer in weights[0]:
            checks.compare(f"attention weights of {layer}", *(each[layer] for each in weights))
        learned = [engine.loss_and_gradients(batch.x, batch.y) for engine in self.engines]
        checks.compare("loss", *(loss for loss, _ in learned))
        checks.gradients("gradient", *(gradients for _, gradients in learned))
        pulled = [engine.pull_back(batch.x, batch.dy) for engine in self.engines]
        given = [dx if isinstance(dx, tuple) else (dx,) for dx, _ in pulled]
        for number in self._numbers():
            checks.compare(f"d{self.plan.inputs[number].name}", *(dx[number] for dx in given))
        checks.gradients("pulled gradient", *(gradients for _, gradients in pulled))

    def _kink(self, batch: Batch) -> float:
        """How near a relu of this batch comes to 0 without being there."""
        relus = {
            self._sign_of(op.inputs[0])
            for op in self.plan.operations
            if op.attributes.get("function") == "relu"
        }
        nearest = np.inf
        if relus:
            for _, group in groups(self.plan, batch.x, np.dtype(np.float64)):
                values = self.exact._forward(group)
                for name in relus:
                    before = np.abs(values[name])
                    nearest = min(nearest, before[before > 0].min(initial=np.inf))
        return float(nearest)

    def _sign_of(self, name: str) -> str:
        """The value that decides the sign of this one: gelu, close to 0 far below 0, keeps it."""
        for op in self.plan.operations:
            if op.output == name and op.attributes.get("function") == "gelu":
                return self._sign_of(op.inputs[0])
        return name


def agrees(network: Network | Plan, batch: Batch, **arguments: Any) -> Checks:
    """Checks the native engine on a network and a batch; raises where it does not agree."""
    checks = Trio(network, **arguments).check(batch)
    checks.verify()
    return checks
