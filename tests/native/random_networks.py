"""Valid networks of any layers in any order, drawn by hypothesis.

Widths stay where rounding can be told from error: a normalisation of one or two features gives
nearly the same whatever comes in, so what it passes back is what rounding left over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agreement import Batch, Trio, batch_for
from hypothesis import strategies as st

from undivided.layers import (
    Activation,
    Dense,
    Flatten,
    GlobalAveragePooling1D,
    Layer,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    Output,
    Patches,
    Rescaling,
    Residual,
    SinusoidalPositions,
)
from undivided.network import Network

__all__ = ["Example", "examples"]

WIDTHS = (3, 4, 5, 8, 15, 16, 17, 24, 32, 33)
TOKENS = (1, 2, 3, 7, 15, 16, 17, 33)
LARGEST = 400  # numbers in a flattened value

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Example:
    network: Network
    seed: int
    count: int
    as_bytes: bool
    lengths: tuple[int, ...]

    def trio(self) -> Trio:
        return Trio(self.network, seed=self.seed)

    def batch(self, trio: Trio) -> Batch:
        return batch_for(
            trio.plan, self.count, seed=self.seed, as_bytes=self.as_bytes, lengths=self.lengths
        )


@st.composite
def examples(draw: st.DrawFn) -> Example:
    kind = draw(st.sampled_from(["vector", "sequence", "sequence", "picture", "ragged"]))
    layers: list[Layer] = []
    as_bytes = draw(st.booleans())
    if as_bytes:
        layers.append(draw(st.sampled_from([Rescaling(1 / 64, -2.0), Rescaling(1 / 255)])))
    width = draw(st.sampled_from(WIDTHS))
    shape: Shape
    if kind == "vector":
        shape = start = (width,)
    elif kind == "sequence":
        shape = start = (draw(st.sampled_from(TOKENS)), width)
    elif kind == "ragged":
        shape = start = (None, width)
    else:
        size = draw(st.sampled_from([(1, 2), (2, 2), (2, 3), (4, 1)]))
        rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        channels = draw(st.sampled_from([(), (1,), (3,)]))
        start = (rows * size[0], columns * size[1], *channels)
        if channels and draw(st.booleans()):
            layers.append(Dense(3))
            channels = (3,)
        layers.append(Patches(size))
        shape = (rows * columns, size[0] * size[1] * (channels[0] if channels else 1))
    for _ in range(draw(st.integers(1, 6))):
        layer, shape = draw(one_layer(shape, depth=0))
        layers.append(layer)
    if len(shape) == 2:
        flat = shape[0] is not None and shape[0] * int(shape[1] or 0) <= LARGEST
        layers.append(Flatten() if flat and draw(st.booleans()) else GlobalAveragePooling1D())
    layers.append(Output(draw(st.sampled_from([2, 3, 10, 17])), bias=draw(st.booleans())))
    lengths = st.lists(st.sampled_from((*TOKENS, 65)), min_size=1, max_size=9).map(tuple)
    return Example(
        network=Network(input=start, layers=tuple(layers)),
        seed=draw(st.integers(0, 2**16)),
        count=draw(st.sampled_from([1, 2, 5, 33])),
        as_bytes=as_bytes,
        lengths=draw(lengths) if kind == "ragged" else (),
    )


@st.composite
def one_layer(draw: st.DrawFn, shape: Shape, depth: int) -> tuple[Layer, Shape]:
    """A layer that takes this shape, and the shape that it gives."""
    width = shape[-1]
    assert width is not None
    sequence = len(shape) == 2
    kinds = ["dense", "dense", "activation", "rescaling"]
    kinds += ["attention", "attention", "sinusoidal"] if sequence else []
    kinds += ["learned"] if sequence and shape[0] is not None else []
    kinds += ["normalization"] if width > 2 else []
    kinds += ["residual", "residual"] if depth < 3 else []
    kind = draw(st.sampled_from(kinds))
    if kind == "dense":
        units = draw(st.sampled_from(WIDTHS))
        function: Any = draw(st.sampled_from([None, "relu", "gelu"]))
        return Dense(units, activation=function, bias=draw(st.booleans())), (*shape[:-1], units)
    if kind == "attention":
        heads = draw(st.integers(1, 3))
        key_dim = draw(st.sampled_from([None, 1, 3, 8, 16, 24]))
        if key_dim is None and width % heads:
            key_dim = 5
        projected = draw(st.booleans())
        causal = draw(st.booleans())
        # What a linear attention adds up before it is asked rounds worse than weights do where all
        # tokens are nearly alike, as behind another one; among 64 causal rows there are weights.
        linear = causal and shape[0] not in (None, 1) and draw(st.booleans())
        layer = MultiHeadAttention(
            heads,
            key_dim=key_dim,
            bias=draw(st.booleans()),
            output_projection=projected,
            linear=linear,
            causal=causal,
        )
        heads_wide = heads * (key_dim or width // heads)
        return layer, (shape[0], width if projected else heads_wide)
    if kind == "residual":
        inner: list[Layer] = []
        inside = shape
        for _ in range(draw(st.integers(0, 3))):
            layer_inside, inside = draw(one_layer(inside, depth + 1))
            inner.append(layer_inside)
        if inside != shape:
            inner.append(Dense(width))
        return Residual(tuple(inner)), shape
    simple: dict[str, Layer] = {
        "activation": Activation(draw(st.sampled_from(["relu", "gelu"]))),
        "rescaling": Rescaling(draw(st.sampled_from([0.5, -0.7])), 0.25),
        "sinusoidal": SinusoidalPositions(),
        "learned": LearnedPositions(),
        "normalization": LayerNormalization(draw(st.sampled_from([1e-3, 0.1]))),
    }
    return simple[kind], shape
