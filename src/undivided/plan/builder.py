"""Lowering: a network becomes a plan, layer by layer.

The builder offers one method a primitive. Each checks what it is given, adds the operation and
returns the value it produces, so that a layer's `lower` reads like its equation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from undivided.errors import ArgumentError, ShapeError
from undivided.plan.plan import (
    Initial,
    Operation,
    Parameter,
    Plan,
    Ragged,
    Shape,
    Value,
    show_shape,
)

if TYPE_CHECKING:
    from undivided.layers.base import Layer
    from undivided.network import Network

__all__ = ["Builder", "lower"]

MOST_LAYERS = 10_000
"""Enough for anyone, and a limit for `Dense(8) * 10000 * 10000`."""

XAVIER = Initial("xavier")
ZERO = Initial("constant", 0.0)
ONE = Initial("constant", 1.0)


def lower(network: Network) -> Plan:
    """The plan of a network, or a ShapeError that names the layer and both shapes."""
    shape: Shape = tuple(Ragged("input") if n is None else n for n in network.input)
    builder = Builder(Value("input", shape))
    x = builder.values["input"]
    for layer in network.layers:
        x = builder.lower(layer, x)
    if network.loss == "sparse_categorical_crossentropy" and len(x.shape) != 1:
        error = ShapeError(
            f"The loss {network.loss!r} wants one row of scores for each sample, shape (classes,)."
            f" The last layer gives {show_shape(x.shape)}."
            " Put GlobalAveragePooling1D() or Flatten() before the output layer."
        )
        error.layer = network.layers[-1]
        raise error
    return Plan(
        name=network.name,
        input=builder.values["input"],
        output=x,
        values=builder.values,
        operations=tuple(builder.operations),
        parameters=builder.parameters,
        layers=tuple(builder.layers),
        loss=network.loss,
        optimizer=network.optimizer,
    )


class Builder:
    """A plan in the making, and the layer that is adding to it."""

    def __init__(self, source: Value) -> None:
        self.values: dict[str, Value] = {source.name: source}
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
            return layer.lower(self, x)
        except (ShapeError, ArgumentError) as error:
            if error.layer is None:  # the innermost layer is the one at fault
                error.layer = layer
            raise
        finally:
            self._layer, self._written = outer

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

    # What a layer may ask of the value it is given.

    def refuse(self, x: Value, expected: str, advice: str = "") -> ShapeError:
        """The error of a layer that cannot take `x`: names the layer, expected and found."""
        text = f"{self._written} ({self._layer}) expects {expected}. It is given "
        text += f"{show_shape(x.shape)}, from {x.name!r}."
        return ShapeError(f"{text} {advice}".rstrip())

    def expect_sequence(self, x: Value) -> None:
        """`x` must be (tokens, features)."""
        if len(x.shape) != 2:
            advice = ""
            if len(x.shape) == 3:
                advice = "Patches(size) cuts an image into a sequence."
            raise self.refuse(x, "a sequence, shape (tokens, features)", advice)

    # Parameters.

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

    # The primitives.

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

    def rescale(self, x: Value, scale: float, offset: float) -> Value:
        """y = x·scale + offset."""
        return self.add_operation("rescale", (x,), x.shape, scale=scale, offset=offset)

    def unfold(self, x: Value, size: tuple[int, int]) -> Value:
        """Cut (H, W) or (H, W, C) into patches: (H/h · W/w, h·w·C), row by row."""
        if len(x.shape) not in (2, 3) or any(isinstance(n, Ragged) for n in x.shape):
            raise self.refuse(x, "a picture, shape (height, width) or (height, width, channels)")
        height, width, *channels = (int(n) for n in x.shape if isinstance(n, int))
        down, across = size
        if height % down or width % across:
            raise self.refuse(
                x, f"a picture that {down}×{across} patches divide evenly", "Choose another size."
            )
        tokens = (height // down) * (width // across)
        depth = math.prod(channels)
        return self.add_operation("unfold", (x,), (tokens, down * across * depth), size=size)

    def linear(self, x: Value, units: int, *, bias: bool, part: str = "", role: str = "") -> Value:
        """y = x·W + b over the last axis, W [in, out]."""
        dot = f"{role}." if role else ""
        self._width(x)
        names = {"weight": self.parameter(f"{dot}weight", (x.width, units), XAVIER, decays=True)}
        if bias:
            names["bias"] = self.parameter(f"{dot}bias", (units,), ZERO, decays=False)
        return self.add_operation(
            "linear", (x,), (*x.shape[:-1], units), part=part or role, parameters=names
        )

    def position(self, x: Value, initial: Initial | None) -> Value:
        """y[t] = x[t] + table[t]; the table is a parameter, or fixed sinusoidal without one."""
        self.expect_sequence(x)
        length, width = x.shape
        if initial is None:
            return self.add_operation("position", (x,), x.shape)
        if isinstance(length, Ragged):
            raise self.refuse(
                x,
                "a sequence of fixed length (it learns one row for each position)",
                "Use SinusoidalPositions() for sequences of any length.",
            )
        assert isinstance(width, int)
        table = self.parameter("table", (length, width), initial, decays=False)
        return self.add_operation("position", (x,), x.shape, parameters={"table": table})

    def attention(self, query: Value, key: Value, value: Value, heads: int) -> Value:
        """softmax(Q·Kᵀ/√d)·V for each head; heads lie side by side in the last axis."""
        for x in (query, key, value):
            self.expect_sequence(x)
            if x.width % heads:
                raise self.refuse(x, f"a width that {heads} heads divide evenly")
        shape = (*query.shape[:-1], value.width)
        scale = 1.0 / math.sqrt(query.width // heads)
        return self.add_operation(
            "attention", (query, key, value), shape, part="heads", heads=heads, scale=scale
        )

    def normalize(self, x: Value, epsilon: float) -> Value:
        """y = (x − mean)/√(variance + ε)·gain + shift, over the last axis."""
        self._width(x)
        names = {
            "gain": self.parameter("gain", (x.width,), ONE, decays=False),
            "shift": self.parameter("shift", (x.width,), ZERO, decays=False),
        }
        return self.add_operation("normalize", (x,), x.shape, parameters=names, epsilon=epsilon)

    def activation(self, x: Value, function: str) -> Value:
        """y = f(x), element by element."""
        return self.add_operation("activation", (x,), x.shape, part=function, function=function)

    def add(self, x: Value, y: Value) -> Value:
        """x + y, of the same shape."""
        if x.shape != y.shape:
            raise ShapeError(
                f"{self._written} ({self._layer}) adds what goes in, {show_shape(x.shape)}, to "
                f"what its layers give, {show_shape(y.shape)}: the shapes must be the same."
            )
        return self.add_operation("add", (x, y), x.shape)

    def pool(self, x: Value) -> Value:
        """The mean over a sequence's own tokens: (S, D) → (D,)."""
        self.expect_sequence(x)
        return self.add_operation("pool", (x,), x.shape[1:])

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        """The same numbers in the same order under another shape."""
        if any(isinstance(extent, Ragged) for extent in x.shape):
            raise self.refuse(x, "a fixed shape", "Pool a sequence of any length instead.")
        return self.add_operation("reshape", (x,), shape)

    def _width(self, x: Value) -> None:
        if isinstance(x.shape[-1], Ragged):
            raise self.refuse(x, "a fixed number of features in the last axis")
