"""ReferenceEngine: walks a plan forward, then back.

Forward computes each value from those before it and keeps them all. Backward takes the
operations in reverse: each turns the gradient of what it gave into gradients of what it took.
A value that several operations took (the x of `x + f(x)`) gets the sum of their gradients.
"""

# B samples run together, N samples in all, H heads, S queries, T keys
#
# a value of the plan with shape (S, E) is an array [B, S, E] here

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from undivided.engines.engine import TrainedSteps, checked_order
from undivided.engines.reference import (
    activation,
    add,
    attention,
    attention_steps,
    binary_cross_entropy,
    concatenate,
    cross_entropy,
    deviation,
    dropout,
    embed,
    learned,
    linear,
    linear_attention,
    linear_attention_steps,
    max_pool,
    multiply,
    normalize,
    permute,
    pick,
    pool,
    position,
    rescale,
    reshape,
    rms_normalize,
    rotary,
    softmax,
    unfold,
    windows,
)
from undivided.engines.reference.attention_steps import Steps
from undivided.engines.reference.coins import Coins
from undivided.engines.reference.linear_attention_steps import LinearSteps
from undivided.engines.reference.samples import Samples, gather, groups, take
from undivided.errors import ArgumentError, DataError, ShapeError
from undivided.plan.plan import Operation, Plan
from undivided.targets import Targets, as_targets

if TYPE_CHECKING:
    from undivided.engines.reference.sequences import ReferenceSequences

__all__ = ["LOSSES", "PRIMITIVES", "Inside", "ReferenceEngine"]

PRIMITIVES: dict[str, ModuleType] = {
    "rescale": rescale,
    "unfold": unfold,
    "embed": embed,
    "linear": linear,
    "position": position,
    "attention": attention,
    "linear_attention": linear_attention,
    "normalize": normalize,
    "rms_normalize": rms_normalize,
    "activation": activation,
    "softmax": softmax,
    "add": add,
    "multiply": multiply,
    "dropout": dropout,
    "concatenate": concatenate,
    "learned": learned,
    "max_pool": max_pool,
    "permute": permute,
    "pick": pick,
    "windows": windows,
    "pool": pool,
    "reshape": reshape,
    "rotary": rotary,
}

LOSSES: dict[str, ModuleType] = {
    "cross_entropy": cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "deviation": deviation,
}
"""What a row of the output and its target become: one number, the row's loss."""

STEPS: dict[str, Callable[..., Steps | LinearSteps]] = {
    "attention": attention_steps.steps,
    "linear_attention": linear_attention_steps.steps,
}
"""What those who look inside are shown."""

Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Inside:
    """What one sample goes through."""

    output: np.ndarray
    loss: float | None
    attention: Mapping[str, Steps | LinearSteps]
    """The name of what an attention operation gives → its steps, in the plan's order."""


# Overflow is no reason to print a warning: what is not finite shows in the loss. Hence the
# `np.errstate` of every public method.


class ReferenceEngine:
    """A plan that runs in NumPy; what each method does is in `undivided.engines.engine`.

    Where an axis is ragged, samples go in and results come out as lists of arrays.
    """

    def __init__(self, plan: Plan, dtype: Any = np.float32) -> None:
        self.plan = plan
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float32, np.float64):
            raise ArgumentError(
                "The 'dtype' of ReferenceEngine must be float32 or float64. "
                f"Got {self.dtype.name}.",
                argument="dtype",
            )
        self.seed = 0
        self.parameters: Mapping[str, np.ndarray] = self._zeros()
        self.slots: Mapping[str, Mapping[str, np.ndarray]] = {
            slot: self._zeros() for slot in plan.optimizer.kept()
        }

    # What the protocol asks for.

    @np.errstate(all="ignore")
    def predict(self, x: Samples) -> Any:
        """The plan's output for each sample: [N, *output.shape]."""
        output = self.plan.output
        results = (
            (rows, self._forward(group)[output.name])
            for rows, group in groups(self.plan, x, self.dtype)
        )
        return gather(len(x), output.shape, results, self.dtype)

    @np.errstate(all="ignore")
    def attention_weights(self, x: Samples) -> dict[str, Any]:
        """Layer name → attention weights [N, H, S, T]."""
        operations = self.plan.attentions
        found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {op.layer: [] for op in operations}
        for rows, group in groups(self.plan, x, self.dtype):
            values = self._forward(group)
            for op in operations:
                query, key = values[op.inputs[0]], values[op.inputs[1]]
                weights = PRIMITIVES[op.kind].weights(query, key, **self._arguments(op))
                found[op.layer].append((rows, weights))
        gathered = {}
        for op in operations:
            S, T = (self.plan.values[name].shape[0] for name in op.inputs[:2])
            shape = (op.attributes["heads"], S, T)
            gathered[op.layer] = gather(len(x), shape, found[op.layer], self.dtype)
        return gathered

    @np.errstate(all="ignore")
    def loss_and_gradients(
        self, x: Samples, y: Any, step: int | None = None
    ) -> tuple[float, dict[str, np.ndarray]]:
        """The mean loss of the samples' rows and its gradient for each parameter."""
        targets = self._targets(x, y)
        weight = targets.weight_of() or 1.0  # where nothing counts, all sums are 0
        total, gradients = 0.0, self._zeros()
        for rows, group in groups(self.plan, x, self.dtype):
            coins = self._coins(step, rows)
            values = self._forward(group, coins)
            output = values[self.plan.output.name]
            loss, doutput = self._loss(output, targets.take(rows), weight)
            total += loss
            self._backward(values, doutput, gradients, coins=coins)
        return total / weight, gradients

    @np.errstate(all="ignore")
    def pull_back(self, x: Samples, dy: Samples) -> tuple[Any, dict[str, np.ndarray]]:
        """The gradients of sum(dy · output(x)) for x and for each parameter."""
        if len(dy) != len(x):
            raise ShapeError(f"pull_back expects a dy for each of {len(x)} samples. Got {len(dy)}.")
        gradients = self._zeros()
        results = []
        for rows, group in groups(self.plan, x, self.dtype):
            values = self._forward(group)
            output = values[self.plan.output.name]
            doutput = np.stack([np.asarray(dy[row], self.dtype) for row in rows])
            if doutput.shape != output.shape:
                raise ShapeError(
                    f"pull_back expects a dy of shape {output.shape[1:]} for each sample. "
                    f"Got {doutput.shape[1:]}."
                )
            results.append((rows, self._backward(values, doutput, gradients)))
        return self._of_inputs(results, len(x)), gradients

    @np.errstate(all="ignore")
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
        """Take one step for each learning rate, over the samples that `order` names."""
        losses: list[float] = []
        before = first_step if optimizer_steps is None else optimizer_steps
        targets = self._targets(x, y)
        order = checked_order(order, len(x), batch_size, len(learning_rates))
        for number, rate in enumerate(learning_rates):
            batch = order[number * batch_size : (number + 1) * batch_size]
            chosen = targets.take(batch)
            step = first_step + number
            loss, gradients = self.loss_and_gradients(take(x, batch), chosen, step)
            if not np.isfinite(loss):
                return TrainedSteps(np.array(losses, np.float64), failed=True)
            self._update(gradients, before + number + 1, float(rate))
            losses.append(loss * chosen.weight_of())
        return TrainedSteps(np.array(losses, np.float64), failed=False)

    def replan(self, plan: Plan) -> None:
        """Run another plan with the same parameters from now on."""
        self.plan = plan

    def begin(
        self, count: int, most: int, source: Samples | None = None
    ) -> ReferenceSequences | None:
        """Sequences without a token yet, which the plan can go on with."""
        # Primitives of a plan know this package, so these are not known before.
        from undivided.engines.reference.sequences import ReferenceSequences
        from undivided.plan.continuing import continuing

        plan = continuing(self.plan)
        if plan is None:
            return None

        def run(op: Operation, inputs: Sequence[np.ndarray], **told: Any) -> np.ndarray:
            return PRIMITIVES[op.kind].forward(*inputs, **self._arguments(op, inputs), **told)

        return ReferenceSequences(plan, self.dtype, run, count, source)

    # Besides the protocol.

    @np.errstate(all="ignore")
    def diagnose(self, x: Samples, y: Any) -> str | None:
        """Layer and tensor of the first number that is not finite; None where all are finite.

        Looked for in the order in which one would cause another: parameters, input, what each
        operation gives, the losses.
        """
        for name, parameter in self.plan.parameters.items():
            if trouble := _non_finite(self.parameters[name]):
                return f"layer {parameter.layer!r}: its parameter {name!r} holds {trouble}"
        targets = self._targets(x, y)
        loss, arguments = LOSSES[self.plan.loss.primitive], self.plan.loss.attributes()
        for rows, group in groups(self.plan, x, self.dtype):
            for entry in group.values():
                if trouble := _non_finite(entry, rows):
                    return f"the input holds {trouble}"
            values = self._forward(group)
            for op in self.plan.operations:
                if trouble := _non_finite(values[op.output], rows):
                    return f"layer {op.layer!r}: its {op.kind} gives {op.output!r} with {trouble}"
            output = values[self.plan.output.name]
            losses = loss.forward(output, _shaped(targets.take(rows), output)[0], **arguments)
            if trouble := _non_finite(losses, rows):
                return f"the loss holds {trouble}"
        return None

    @np.errstate(all="ignore")
    def look_inside(self, x: Samples, y: Any = None) -> Inside:
        """What one sample goes through: its output, its loss, and both ways of each attention.

        `x` and `y` hold one sample; the gradients are those of its loss alone. Without a target
        they are those of the sum of its output.
        """
        ((rows, group),) = groups(self.plan, x, self.dtype)
        values = self._forward(group)
        output = values[self.plan.output.name]
        loss, weight, doutput = None, 1.0, np.ones_like(output)
        if y is not None:
            targets = self._targets(x, y)
            weight = targets.weight_of() or 1.0
            loss, doutput = self._loss(output, targets.take(rows), weight)
        found: dict[str, Steps | LinearSteps] = {}

        def watch(op: Operation, dy: np.ndarray) -> None:
            if op.kind in STEPS:
                query, key, value = (values[name] for name in op.inputs)
                found[op.output] = STEPS[op.kind](dy, query, key, value, **self._arguments(op))

        self._backward(values, doutput, self._zeros(), watch)
        mean = None if loss is None else loss / weight
        return Inside(output[0], mean, dict(reversed(found.items())))

    # The walk.

    def _forward(self, group: Values, coins: Coins | None = None) -> Values:
        """Every value of the plan, for samples of one shape; with `coins`, as training sees it."""
        values = dict(group)
        for op in self.plan.operations:
            inputs = [values[name] for name in op.inputs]
            arguments = self._arguments(op, inputs, coins)
            values[op.output] = PRIMITIVES[op.kind].forward(*inputs, **arguments)
        return values

    def _loss(
        self, output: np.ndarray, targets: Targets, weight: float
    ) -> tuple[float, np.ndarray]:
        """The sum of the rows' losses, and the gradient of that sum / weight for the output."""
        loss, arguments = LOSSES[self.plan.loss.primitive], self.plan.loss.attributes()
        wanted, weights = _shaped(targets, output)
        losses = loss.forward(output, wanted, **arguments)
        # What does not count may be anything, infinite too.
        counted = np.where(weights > 0, losses * weights, 0)
        dlosses = weights / weight
        doutput = loss.backward(dlosses.astype(self.dtype), output, wanted, **arguments)
        doutput = np.where(weights[..., None] > 0, doutput, 0)
        return float(counted.sum(dtype=np.float64)), doutput

    def _backward(
        self,
        values: Values,
        doutput: np.ndarray,
        gradients: dict[str, np.ndarray],
        watch: Callable[[Operation, np.ndarray], None] | None = None,
        coins: Coins | None = None,
    ) -> Values:
        """Add to the parameters' `gradients`; return the gradients of the inputs.

        `watch` is told each operation with the gradient of what it gave.
        """
        ids = {entry.name for entry in self.plan.inputs if entry.vocabulary is not None}
        dvalues = {n: np.zeros_like(value) for n, value in values.items() if n not in ids}
        dvalues[self.plan.output.name] += doutput
        for op in reversed(self.plan.operations):
            inputs = [values[name] for name in op.inputs]
            dy = dvalues.pop(op.output)
            if watch is not None:
                watch(op, dy)
            arguments = self._arguments(op, inputs, coins)
            found = PRIMITIVES[op.kind].backward(dy, *inputs, **arguments)
            found = found if isinstance(found, tuple) else (found,)
            moved = [name for name in op.inputs if name not in ids]  # ids have no gradient
            dinputs, dparameters = found[: len(moved)], found[len(moved) :]
            for name, dinput in zip(moved, dinputs, strict=True):
                dvalues[name] += dinput
            for role, dparameter in zip(_roles(op), dparameters, strict=True):
                gradients[op.parameters[role]] += dparameter
        return dvalues

    def _of_inputs(self, results: list[tuple[np.ndarray, Values]], count: int) -> Any:
        """The gradient of each input, None for ids; of one input alone that itself."""
        dx = [
            gather(
                count, entry.shape, ((r, dvalues[entry.name]) for r, dvalues in results), self.dtype
            )
            if entry.vocabulary is None
            else None
            for entry in self.plan.inputs
        ]
        return dx[0] if len(dx) == 1 else tuple(dx)

    def _arguments(
        self, op: Operation, inputs: Sequence[np.ndarray] = (), coins: Coins | None = None
    ) -> dict[str, Any]:
        """What an operation's primitive takes besides its inputs."""
        arguments: dict[str, Any] = {
            role: self.parameters[name] for role, name in op.parameters.items()
        }
        if op.kind == "reshape":
            arguments["shape"] = self.plan.values[op.output].shape
        if op.kind == "dropout":
            rate = op.attributes["rate"]
            return {"rate": rate, "kept": coins.kept(op, rate, inputs)} if coins else {"rate": 0.0}
        if coins and "dropout" in op.attributes:
            arguments["kept"] = coins.kept(op, op.attributes["dropout"], inputs)
        return arguments | dict(op.attributes)

    def _coins(self, step: int | None, places: np.ndarray) -> Coins | None:
        """Those of dropout, where this is a step of training."""
        return None if step is None else Coins(self.seed, step, places)

    def _update(self, gradients: Mapping[str, np.ndarray], step: int, rate: float) -> None:
        self.plan.optimizer.step(
            self.plan.parameters, self.parameters, gradients, self.slots, step, rate
        )

    def _zeros(self) -> dict[str, np.ndarray]:
        return {
            name: np.zeros(parameter.shape, self.dtype)
            for name, parameter in self.plan.parameters.items()
        }

    def _targets(self, x: Samples, y: Any) -> Targets:
        if not len(x):
            raise DataError(f"{self.plan.name} expects at least one sample. Got none.")
        return as_targets(self.plan, y, len(x))


def _shaped(targets: Targets, output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Targets and weights of samples of one shape, as the rows of their output lie."""
    rows = output.shape[:-1]
    by_class = targets.values.ndim == 1
    values = targets.values.reshape(rows if by_class else output.shape)
    if targets.weights is None:
        return values, np.ones(rows, output.dtype)
    return values, targets.weights.reshape(rows).astype(output.dtype)


def _roles(op: Operation) -> list[str]:
    """The names under which a primitive takes its parameters, in the order it takes them."""
    arguments = inspect.signature(PRIMITIVES[op.kind].forward).parameters
    return [name for name in arguments if name in op.parameters]


def _non_finite(array: np.ndarray, rows: np.ndarray | None = None) -> str:
    """`NaN at [0, 3]`, `infinity at [2] (sample 17)`, or nothing where all are finite."""
    finite = np.isfinite(array)
    if finite.all():
        return ""
    place = [int(i) for i in np.unravel_index(int(np.argmin(finite)), array.shape)]
    word = "NaN" if np.isnan(array[tuple(place)]) else "infinity"
    if rows is None:
        return f"{word} at {place}"
    return f"{word} at {place[1:]} (sample {rows[place[0]]})"
