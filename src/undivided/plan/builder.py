"""Lowering: a network becomes a plan, layer by layer.

The builder offers one method a primitive (`plan/primitives`). Each checks what it is given, adds
the operation and returns the value it produces, so that a layer's `lower` reads like its equation.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from undivided.errors import ArgumentError, ShapeError, UndividedError, suggest
from undivided.plan.inputs import inputs_of, widths_read_as_ids
from undivided.plan.plan import (
    Initial,
    Input,
    Operation,
    Parameter,
    Plan,
    Ragged,
    Shape,
    Value,
    show_shape,
)
from undivided.plan.primitives import Primitives

if TYPE_CHECKING:
    from undivided.layers.base import Layer
    from undivided.network import Network

__all__ = ["Builder", "lower"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
MOST_LAYERS = 10_000
"""Enough for anyone, and a limit for `Dense(8) * 10000 * 10000`."""


def lower(network: Network, *, ragged: bool = False) -> Plan:
    """The plan of a network, or a ShapeError that names the layer and both shapes.

    `ragged` says that samples may be shorter than the network's input declares.
    """
    builder = Builder(*inputs_of(network, ragged=ragged), positions=network.positions)
    builder.notes += widths_read_as_ids(network)
    x: Value = builder.inputs[0]
    for layer in network.layers:
        x = builder.lower(layer, x)
    builder.check_decoding(x, network)
    x = builder.logits(x, network.loss.link)
    return Plan(
        name=network.name,
        inputs=tuple(builder.inputs),
        output=x,
        values=builder.values,
        operations=tuple(builder.operations),
        parameters=network.optimizer.grouped(builder.parameters),
        layers=tuple(builder.layers),
        loss=network.loss,
        optimizer=network.optimizer,
        notes=tuple(builder.notes),
        recompute=network.train.recompute,
    )


class Builder(Primitives):
    """A plan in the making, and the layer that is adding to it."""

    def __init__(self, *sources: Input, positions: str = "none") -> None:
        self.automatic = positions
        self.placed = False
        """Whether positions were added to this stream, or are known to its scores."""
        self.has_encoder = False
        self.memory: Value | None = None
        """What an encoder made, once a decoder has begun."""
        self.source_table: Parameter | None = None
        """The table of the first embedding."""
        self.notes: list[str] = []
        self.inputs: list[Input] = list(sources)
        self.values: dict[str, Value] = {source.name: source for source in sources}
        self.operations: list[Operation] = []
        self.parameters: dict[str, Parameter] = {}
        self.layers: list[tuple[str, str]] = []
        self._layer = ""
        self._written = ""
        self._numbers: dict[str, int] = {}
        self._taken: set[str] = set()

    def lower(self, layer: Layer, x: Value, *, repeated: bool = False) -> Value:
        """Add a layer under a name that no other has."""
        outer = self._layer, self._written
        try:
            self._layer = self._name(layer, repeated)
            self._written = layer.keyword
            self.layers.append((self._layer, layer.keyword))
            self._taken.add(self._layer)
            if len(self.layers) > MOST_LAYERS:
                raise ArgumentError(
                    f"A network may have {MOST_LAYERS:,} layers. This one has more."
                )
            return self._lowered(layer, x)
        except (ShapeError, ArgumentError) as error:
            if error.layer is None:  # the innermost layer is the one at fault
                error.layer = layer
            raise
        finally:
            self._layer, self._written = outer

    def _lowered(self, layer: Layer, x: Value) -> Value:
        """What a layer makes of x. What goes wrong in one of a user's own is told as an error."""
        try:
            y = layer.lower(self, x)
        except UndividedError:
            raise
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
            if not own or type(layer).__module__.startswith("undivided."):
                raise
            raise ArgumentError(
                f"{layer.keyword} ({self._layer}): {own[-1].filename}, line {own[-1].lineno}: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(y, Value):
            raise ArgumentError(
                f"{layer.keyword} ({self._layer}) must return what one of the builder's methods "
                f"gives. It returns {y!r:.80}."
            )
        return y

    def part(
        self,
        layer: Layer,
        name: str,
        x: Value,
        apply: Callable[[Builder, Value], Value] | None = None,
    ) -> Value:
        """A layer as a part of the current one, under its name and a name of its own there."""
        outer = self._layer, self._written
        self._layer, self._written = f"{self._layer}.{name}", layer.keyword
        self.layers.append((self._layer, layer.keyword))
        self._taken.add(self._layer)
        try:
            return layer.lower(self, x) if apply is None else apply(self, x)
        finally:
            self._layer, self._written = outer

    @property
    def layer(self) -> str:
        """The name of the layer that is adding to the plan."""
        return self._layer

    def _name(self, layer: Layer, repeated: bool) -> str:
        base = layer.name if layer.name is not None else layer.prefix
        self._numbers[base] = number = self._numbers.get(base, 0) + 1
        if layer.name is not None and number == 1 and base not in self._taken:
            return base
        if layer.name is not None and not repeated:
            raise ArgumentError(
                f"Two layers are named {base!r}. Give each a name of its own.", argument="name"
            )
        while (name := f"{base}_{number}") in self._taken:
            number += 1
        self._numbers[base] = number
        return name

    def logits(self, x: Value, link: str | None) -> Value:
        """What the loss is computed from: `x`, before the activation that the loss takes over."""
        last = self.operations[-1] if self.operations else None
        if link is None or last is None or last.output != x.name:
            return x
        if link not in (last.kind, last.attributes.get("function")):
            if last.kind in ("activation", "softmax"):
                what = last.attributes.get("function", last.kind)
                self.note(
                    f"the last layer ends in {what}, where the loss would take a {link}: what it "
                    "gives is taken as scores (logits)"
                )
            return x
        self.note(f"the {link} of the last layer is left to the loss, which works from its scores")
        del self.operations[-1], self.values[x.name]
        return self.values[last.inputs[0]]

    # What a layer may ask of the value it is given.

    def next_coins(self) -> int:
        """A number for the coins of a dropout, which no other in the plan has."""
        return sum("number" in op.attributes for op in self.operations)

    def refuse(self, x: Value, expected: str, advice: str = "") -> ShapeError:
        """The error of a layer that cannot take `x`: names the layer, expected and found."""
        text = f"{self._written} ({self._layer}) expects {expected}. It is given "
        text += f"{show_shape(x.shape)}, from {x.name!r}."
        if x in self.inputs and len(x.shape) > 2 and isinstance(x.shape[0], Ragged):
            advice = "If None stands for the batch, leave it out: 'input' is that of one sample."
        return ShapeError(f"{text} {advice}".rstrip())

    def expect_sequence(self, x: Value) -> None:
        """`x` must be (tokens, features)."""
        if len(x.shape) != 2:
            advice = ""
            if len(x.shape) == 3:
                advice = "Patches(size) cuts an image into a sequence."
            raise self.refuse(x, "a sequence, shape (tokens, features)", advice)

    def expect_width(self, x: Value) -> None:
        """The last axis of `x` must have a fixed extent."""
        if isinstance(x.shape[-1], Ragged):
            raise self.refuse(x, "a fixed number of features in the last axis")

    def differ(self, x: Value, y: Value, verb: str = "adds", to: str = "to") -> ShapeError:
        """The error of a layer that brings what goes in and what comes out together."""
        return ShapeError(
            f"{self._written} ({self._layer}) {verb} what goes in, {show_shape(x.shape)}, {to} "
            f"what its layers give, {show_shape(y.shape)}: the shapes must be the same."
        )

    def table_of(self, layer: str) -> Parameter:
        """The table of an embedding above, by the embedding's name."""
        parameter = self.parameters.get(f"{layer}.table")
        if parameter is not None and parameter.layer == layer:
            return parameter
        known = [p.layer for p in self.parameters.values() if p.name == f"{p.layer}.table"]
        raise ArgumentError(
            f"The 'tied_to' of {self._written} ({self._layer}) must name an Embedding before it. "
            f"Got {layer!r}.{suggest(layer, known)}",
            argument="tied_to",
        )

    # The stream that it is in: an encoder's, or a decoder's that looks at it.

    def note(self, reading: str) -> None:
        """Say once how something is read that could have been meant otherwise."""
        if reading not in self.notes:
            self.notes.append(reading)

    def place(self, x: Value) -> Value:
        """Add positions to the tokens of a stream, unless it has them."""
        if self.placed or self.automatic == "none":
            return x
        self.note(
            f"{self.automatic} positions are added to the tokens before {self.layer!r}, as the "
            "network states none of its own; 'positions: none' leaves them out"
        )
        return self.position(x, Initial("uniform", 0.1) if self.automatic == "learned" else None)

    def begin_decoding(self, x: Value) -> Value:
        """The encoder's stream ends with x; the stream of the target begins."""
        self.memory, self.placed = x, False
        source = self.inputs[0]
        if len(self.inputs) == 1:
            if source.vocabulary is None or self.source_table is None:
                raise ShapeError(
                    f"TransformerDecoder ({self.layer}) begins with the targets, embedded as the "
                    "source is, and the source is not embedded. Begin the network with an "
                    "Embedding, or declare input: { source: (…), target: (…) }."
                )
            self.inputs.append(
                Input(
                    "target",
                    (Ragged("target"),),
                    source.vocabulary,
                    source.padding_id,
                    begins_with=source.padding_id or 0,
                )
            )
            self.values["target"] = self.inputs[1]
            self.note(
                "the declared input is the source; the decoder is given the targets shifted right "
                f"by one, which begin with the id {source.padding_id or 0}, and embeds them with "
                "the source's table; prediction generates"
            )
        return self.inputs[1]

    def check_decoding(self, x: Value, network: Network) -> None:
        """What a decoder is given are targets: they must be ids that its table has rows for."""
        target = self.inputs[-1]
        if target.begins_with is None or target.vocabulary is None:
            return
        scored = len(x.shape) == 2 and x.shape[0] == target.shape[0]
        if scored and x.width <= target.vocabulary and network.loss.targets == "classes":
            return
        error = ShapeError(
            "A decoder that begins with the targets, shifted right by one, learns ids: the last "
            f"layer must score up to {target.vocabulary} of them, as many as the Embedding has, "
            "for each position, and the loss be sparse_categorical_crossentropy. The network gives "
            f"{show_shape(x.shape)}, and its loss is {network.loss}. For anything else declare "
            "input: { source: (…), target: (…) }."
        )
        error.layer = network.layers[-1]
        raise error

    def embed_target(self, target: Value) -> Value:
        """The stream of the target, embedded as the source is where it has ids."""
        if not isinstance(target, Input) or target.vocabulary is None:
            return target
        assert self.source_table is not None
        shape = (*target.shape, self.source_table.shape[1])
        names = {"table": self.source_table.name}
        return self.add_operation("embed", (target,), shape, part="embedded", parameters=names)

    # What it may add to the plan.

    def parameter(
        self, role: str, shape: tuple[int, ...], initial: Initial, *, decays: bool
    ) -> str:
        """Declare a parameter of the current layer and return its full name."""
        name = f"{self._layer}.{role}"
        if name in self.parameters:  # a layer named "attention_1.query" beside an attention
            raise ArgumentError(
                f"Two parameters are called {name!r}. Give the layers names of their own.",
                argument="name",
            )
        self.parameters[name] = Parameter(name, shape, initial, self._layer, decays)
        return name

    def add_operation(
        self,
        kind: str,
        inputs: tuple[Value, ...],
        shape: Shape,
        *,
        part: str = "",
        parameters: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> Value:
        """Add an operation of the current layer; primitives call it, each with its own kind."""
        base = f"{self._layer}.{part}" if part else self._layer
        name, number = base, 1
        while name in self.values:
            number += 1
            name = f"{base}.{number}"
        self.values[name] = value = Value(name, shape)
        self.operations.append(
            Operation(
                kind,
                tuple(x.name for x in inputs),
                name,
                self._layer,
                dict(parameters or {}),
                attributes,
            )
        )
        return value
