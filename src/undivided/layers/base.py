"""What every layer is: arguments, and how it becomes primitive operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from undivided.description import Description, argument

if TYPE_CHECKING:
    from undivided.plan.builder import Builder
    from undivided.plan.plan import Value

__all__ = ["Layer", "Repeat"]


@dataclass(frozen=True)
class Layer(Description, family=True):
    """One step of a network. A subclass is one file: arguments, `lower`, and its documentation.

    The shape rule of a layer *is* its lowering: `lower` asks the incoming value for what it
    needs (`builder.expect_…`), and the primitives that it calls say what comes out.
    """

    prefix: ClassVar[str] = "layer"
    example: ClassVar[tuple[str, ...]] = ()
    """The shape of a sample and the layers of a small network that has this one in it."""
    takes_ids: ClassVar[bool] = False
    """Whether the layer, as the first of a network, is given ids; see Embedding."""

    name: str | None = argument(
        None, kw_only=True, doc="the layer's own name; else its kind and a number (dense_1)"
    )

    def lower(self, builder: Builder, x: Value) -> Value:
        """Add this layer's operations to a plan and return what it gives for `x`."""
        raise NotImplementedError

    def __mul__(self, times: int) -> Repeat:
        """`Dense(8) * 3` is three layers, each with parameters of its own."""
        return Repeat(layer=self, times=times)


@dataclass(frozen=True)
class Repeat(Layer):
    """The same layer several times over, each time with parameters of its own: `Layer(…) * N`."""

    example: ClassVar[tuple[str, ...]] = ("(16)", 'Dense(16, activation="relu") * 3', "Output(10)")

    layer: Layer = argument(doc="what is repeated")
    times: int = argument(doc="how often", at_least=1, at_most=10_000)

    def lower(self, builder: Builder, x: Value) -> Value:
        for _ in range(self.times):
            x = builder.lower(self.layer, x, repeated=True)
        return x
