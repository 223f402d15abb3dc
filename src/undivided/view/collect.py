"""What a page shows, as plain data: the reference engine's numbers in float64, sample by sample.

    page ─ samples ─ sample ─ layers ─ heads ─ weights [S, T]
                       │                   └── steps: both ways with every value between
                       ├ what it is: a picture, a series, tokens
                       └ what the model says of it

The steps are several times the size of the weights. Heads get them while there is room for them
and for the weights of the samples that follow. Where the weights of one sample alone are too many,
heads are left out. What had to be left out is said on the page.
"""

# S queries, T keys, D width of queries and keys, F width of values

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from undivided.engines.engine import inputs_of
from undivided.engines.reference.linear_attention_steps import LinearSteps
from undivided.errors import ArgumentError, NonFiniteError
from undivided.plan.plan import Input, Operation, Plan
from undivided.targets import Targets
from undivided.view import encode
from undivided.view.answers import answer
from undivided.view.text import visible
from undivided.view.tokens import tokens_of

if TYPE_CHECKING:
    from undivided.engines.reference.attention_steps import Steps
    from undivided.engines.reference.engine import Inside, ReferenceEngine
    from undivided.model import Model

__all__ = ["LIMIT", "Names", "collect"]

LIMIT = 8_000_000
"""Bytes of numbers that a page holds at most; one sample's weights are always there."""

MOST_CURVES = 8
"""Features of a series that are drawn."""


@dataclass(frozen=True)
class Names:
    """How people call what the model knows by number."""

    title: str
    source: str = ""
    classes: Sequence[object] | None = None
    tokens: Sequence[Sequence[object]] | None = None
    vocabulary: Sequence[object] | None = None

    def of_class(self, number: int) -> str:
        return _name(self.classes, number)

    def of_id(self, number: int) -> str:
        return _name(self.vocabulary, number)


def _name(known: Sequence[object] | None, number: int) -> str:
    return visible(number if known is None or number >= len(known) else known[number])


def collect(
    model: Model, x: Any, y: Targets | None, names: Names, limit: int = LIMIT
) -> dict[str, Any]:
    """The page's data for the samples `x`, whose targets `y` may not be known."""
    engine = _reference(model)
    attentions = model.plan.attentions
    if not attentions:
        raise ArgumentError(
            f"{names.title} has no attention layer, so there is nothing to look at. "
            "MultiHeadAttention(num_heads) is one."
        )
    room = _Room(limit, attentions)
    samples, left_out = _samples(model.plan, engine, x, y, names, room)
    return {
        "title": visible(names.title),
        "source": visible(names.source) if names.source else "",
        "facts": _facts(model),
        "layers": [_layer(model.plan, op, heads) for op, heads in room.shown],
        "samples": samples,
        "leftOut": left_out,
    }


def _reference(model: Model) -> ReferenceEngine:
    from undivided.engines.reference.engine import ReferenceEngine

    engine = ReferenceEngine(model.plan, np.float64)
    for name, values in model.parameters.items():
        engine.parameters[name][...] = values
    return engine


def _facts(model: Model) -> list[tuple[str, str]]:
    epochs = f"{model.epochs:,} epoch" + ("" if model.epochs == 1 else "s")
    trained = epochs if model.steps else "not trained"
    facts = [("parameters", f"{model.plan.parameter_count:,}"), ("trained", trained)]
    measured = [e.test_accuracy for e in model.history if e.test_accuracy is not None]
    if measured:
        facts.append(("test accuracy", f"{measured[-1]:.1%}"))
    return facts


def _layer(plan: Plan, op: Operation, heads: int) -> dict[str, Any]:
    query, key = (tokens_of(plan, name) for name in op.inputs[:2])
    extents = [plan.values[name].shape[0] for name in op.inputs[:2]]
    same = query == key and extents[0] == extents[1]
    return {
        "name": visible(op.layer),
        "heads": heads,
        "queries": query.as_json(),
        "keys": key.as_json(),
        "same": same,  # whether queries and keys are the same tokens
        "linear": op.kind == "linear_attention",
    }


# Samples, and what of them fits.


def _samples(
    plan: Plan,
    engine: ReferenceEngine,
    x: Any,
    y: Targets | None,
    names: Names,
    room: _Room,
) -> tuple[list[dict[str, Any]], list[str]]:
    parts = inputs_of(x)
    attentions = [op for op, _ in room.shown]
    kinds = {entry.name: _kind(plan, attentions, entry) for entry in plan.inputs}
    brightness = [_range(part) for part in parts]
    samples: list[dict[str, Any]] = []
    for number in range(len(x)):
        one, target = x[number : number + 1], None if y is None else y.take(np.array([number]))
        inside = engine.look_inside(one, _followed(engine, one) if target is None else target)
        _check_finite(inside, number)
        if names.tokens is not None:
            _check_tokens(inside, len(names.tokens[number]), number)
        if not room.begins(inside, len(x) - number - 1):
            break
        samples.append(
            {
                "name": str(number),
                "inputs": {
                    entry.name: _input(kinds[entry.name], part[number], ranges, names, number)
                    for entry, part, ranges in zip(plan.inputs, parts, brightness, strict=True)
                },
                "answer": answer(
                    plan.loss,
                    inside.output,
                    None if target is None else target.values,
                    names.of_class,
                ),
                "loss": inside.loss,
                "layers": [
                    _heads(inside.attention[op.output], heads, room) for op, heads in room.shown
                ],
            }
        )
    left_out = []
    if room.maps_left_out:
        left_out.append(f"{room.maps_left_out:,} of the maps of each sample")
    if len(samples) < len(x):
        left_out.append(f"{len(x) - len(samples)} of {len(x)} samples")
    if room.refused:
        heads = room.refused + room.granted
        left_out.append(f"the steps of {room.refused:,} of {heads:,} maps, whose weights are here")
    return samples, left_out


class _Room:
    """What a page may still hold, in bytes of base64."""

    def __init__(self, limit: int, attentions: Sequence[Operation]) -> None:
        self.limit = self.left = limit
        self.reserved = 0
        self.granted = 0
        self.refused = 0
        self.shown = [(op, op.attributes["heads"]) for op in attentions]
        """The attentions on the page, and how many heads of each: all, unless one sample's maps
        are more than the page may hold."""
        self.maps_left_out = 0

    def begins(self, inside: Inside, following: int) -> bool:
        """Whether a sample is shown; the first one always is. Half of the room is enough to keep
        for the weights of those that follow."""
        maps = {op.output: 4 * inside.attention[op.output].way.p[0, 0].size for op, _ in self.shown}
        first = self.granted + self.refused == 0
        if first:
            self._choose(self.limit // max(1, *maps.values()))
        weights = sum(maps[op.output] * heads for op, heads in self.shown)
        if weights > self.left and not first:
            return False
        self.left -= weights
        self.reserved = min(weights * following, max(0, self.left) // 2)
        return True

    def _choose(self, maps: int) -> None:
        """Show at most so many maps: some heads of every layer, or else of the first layers."""
        total = sum(heads for _, heads in self.shown)
        if total > max(1, maps):
            each = max(1, maps // len(self.shown))
            fewer = [(op, min(heads, each)) for op, heads in self.shown]
            self.shown = fewer[: max(1, maps)]
            self.maps_left_out = total - sum(heads for _, heads in self.shown)

    def takes(self, steps: Mapping[str, np.ndarray]) -> bool:
        """Whether a head's steps are shown; those of the first one always are."""
        size = sum(16 * array.size // 3 for array in steps.values())
        if size > self.left - self.reserved and self.granted + self.refused:
            self.refused += 1
            return False
        self.left -= size
        self.granted += 1
        return True


def _followed(engine: ReferenceEngine, x: Any) -> Any:
    """What takes the place of an unknown target: the predicted class; nothing for values."""
    if engine.plan.loss.targets != "classes":
        return None
    (output,) = engine.predict(x)
    return [output.argmax(axis=-1).astype(np.int32)]


def _check_finite(inside: Inside, number: int) -> None:
    for name, steps in inside.attention.items():
        if not np.isfinite(steps.way.p).all():
            raise NonFiniteError(
                f"The attention weights of {name!r} are not finite for sample {number}. "
                "Look at the model's parameters: one of them is very large."
            )


def _check_tokens(inside: Inside, count: int, number: int) -> None:
    counts = {n for steps in inside.attention.values() for n in steps.way.p.shape[2:]}
    if count not in counts:
        known = " or ".join(map(str, sorted(counts)))
        raise ArgumentError(
            f"The 'tokens' of view must name the {known} tokens of sample {number}. Got {count}.",
            argument="tokens",
        )


# One sample.


def _heads(steps: Steps | LinearSteps, heads: int, room: _Room) -> dict[str, Any]:
    p, allowed = steps.way.p, steps.way.allowed
    S, T = p.shape[2:]
    return {
        "shape": [S, T],
        "width": steps.query.shape[-1],
        "valueWidth": steps.value.shape[-1],
        "scale": float(getattr(steps, "scale", 1.0)),
        "weights": [encode.weights(p[0, h], allowed[0, h]) for h in range(heads)],
        "steps": [_encoded(_arrays(steps, h), room) for h in range(heads)],
    }


def _encoded(arrays: dict[str, np.ndarray], room: _Room) -> dict[str, str] | None:
    if not room.takes(arrays):
        return None
    return {name: encode.numbers(array) for name, array in arrays.items()}


def _arrays(steps: Steps | LinearSteps, head: int) -> dict[str, np.ndarray]:
    """Both ways of a head. `scores` are there where they are more than scale · dots, `slope`
    where it is more than the scale."""
    group = head * steps.key.shape[1] // steps.query.shape[1]
    way, back = steps.way, steps.back
    found = {
        "q": steps.query[0, head],
        "k": steps.key[0, group],
        "v": steps.value[0, group],
        "dots": way.dots[0, head],
        "out": steps.out[0, head],
        "dOut": steps.d_out[0, head],
        "dP": back.dp[0, head],
        "dQ": back.dq[0, head],
        "dK": back.dk[0, group],
        "dV": back.dv[0, group],
    }
    if isinstance(steps, LinearSteps):
        return {**found, "dS": steps.back.da[0, head]}
    found["dS"] = steps.back.dz[0, head]
    if not np.array_equal(steps.way.z, steps.way.dots * steps.scale):
        found["scores"] = steps.way.z[0, head]
    if not np.isscalar(steps.way.slope):
        found["slope"] = np.asarray(steps.way.slope)[0, head]
    return found


def _range(x: Any) -> tuple[float, float]:
    """The darkest and the brightest number of all samples."""
    low = min((float(np.min(sample)) for sample in x), default=0.0)
    return low, max((float(np.max(sample)) for sample in x), default=1.0)


def _kind(plan: Plan, attentions: Sequence[Operation], entry: Input) -> str:
    """What an input is for those who look at it: what the first attention that reads it says."""
    for op in attentions:
        for tokens in (tokens_of(plan, name) for name in op.inputs[:2]):
            if tokens.source == entry.name and tokens.kind != "learned":
                return tokens.kind
    return "numbers"


def _input(
    kind: str, sample: Any, brightness: tuple[float, float], names: Names, number: int
) -> dict[str, Any]:
    """What went in, as something to be seen."""
    sample = np.asarray(sample)
    if names.tokens is not None:
        return {"kind": "text", "tokens": [visible(token) for token in names.tokens[number]]}
    if kind == "text":
        return {"kind": "text", "tokens": [names.of_id(int(each)) for each in sample]}
    if kind == "patches":
        picture = sample if sample.ndim == 3 else sample[..., None]
        if picture.shape[2] != 3:  # anything but red, green and blue is shown by its mean
            picture = picture.mean(axis=2, keepdims=True)
        return {
            "kind": "picture",
            "shape": list(picture.shape),
            "pixels": encode.pixels(picture, *brightness),
        }
    if kind == "series":
        drawn = sample[:, :MOST_CURVES]
        return {
            "kind": "series",
            "shape": list(drawn.shape),
            "features": sample.shape[1],
            "values": encode.numbers(drawn),
        }
    return {"kind": "numbers"}
