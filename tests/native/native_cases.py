"""The conformance table: primitive × option × shape, each in a network that has little else.

A row is a network and a batch. `test_agreement` checks every row, `test_sets` one row of each
primitive and option on every instruction set that the machine has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from agreement import Batch, Trio, batch_for

from undivided.layers import (
    Activation,
    AttentionPooling,
    ClassToken,
    Conv1D,
    Conv2D,
    Dense,
    Embedding,
    Flatten,
    GatedFeedForward,
    GlobalAveragePooling1D,
    GlobalAveragePooling2D,
    GlobalMaxPooling1D,
    GlobalMaxPooling2D,
    Layer,
    LayerNormalization,
    LearnedPositions,
    MaxPooling1D,
    MaxPooling2D,
    MultiHeadAttention,
    Output,
    Patches,
    Permute,
    Rescaling,
    Reshape,
    Residual,
    RMSNormalization,
    SinusoidalPositions,
    TokenAt,
    TransformerDecoder,
    TransformerEncoder,
)
from undivided.layers.patterns import AllOf, AnyOf, BlockLocal, GlobalTokens, Strided
from undivided.network import Inputs, Network
from undivided.training.losses import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    Huber,
    Loss,
    MeanAbsoluteError,
    MeanSquaredError,
    SparseCategoricalCrossentropy,
)

__all__ = ["CASES", "Case", "compact"]

LENGTHS = (1, 2, 15, 16, 17, 49, 64, 65, 150)
HEAD_WIDTHS = (1, 3, 8, 16, 24)
BATCHES = (1, 2, 33)


@dataclass(frozen=True)
class Case:
    """A primitive with an option at one shape. `shape` tells the rows of an option apart."""

    primitive: str
    option: str
    shape: str
    network: Network
    count: int = 3
    as_bytes: bool = False
    lengths: tuple[int, ...] = ()
    weighted: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.primitive, self.option, self.shape

    def __str__(self) -> str:
        return ": ".join(self.key)

    def batch(self, trio: Trio) -> Batch:
        return batch_for(
            trio.plan,
            self.count,
            seed=trio.seed,
            as_bytes=self.as_bytes,
            lengths=self.lengths,
            weighted=self.weighted,
        )


def network(shape: tuple[int | None, ...], *layers: Layer, classes: int = 5) -> Network:
    """The layers, and what it takes to come to one row of scores."""
    ends: tuple[Layer, ...] = (Output(classes),)
    if len(shape) > 1 and not any(isinstance(e, Flatten | GlobalAveragePooling1D) for e in layers):
        ends = (GlobalAveragePooling1D() if shape[0] is None else Flatten(), *ends)
    return Network(input=shape, layers=(*layers, *ends))


def pooled(shape: tuple[int | None, ...], *layers: Layer) -> Network:
    return network(shape, *layers, GlobalAveragePooling1D())


def _linear() -> Iterator[Case]:
    counts = cycle(BATCHES)
    widths = [(1, 1), (3, 5), (16, 16), (17, 33), (64, 48), (15, 1), (1, 65), (40, 100), (200, 7)]
    for inputs, units in widths:
        for function in (None, "relu", "gelu"):
            for bias in (True, False):
                dense = Dense(units, activation=function, bias=bias)
                option = f"{function or 'plain'}, {'bias' if bias else 'no bias'}"
                count = next(counts)
                shape = f"{count}×{inputs} → {units}"
                yield Case("linear", option, shape, network((inputs,), dense), count)
    for length in LENGTHS:
        for function in (None, "relu", "gelu"):
            layers = Dense(19, activation=function), Dense(24)
            option = f"tokens, {function or 'plain'}"
            yield Case("linear", option, f"{length}×5", pooled((length, 5), *layers), next(counts))
    wide = Dense(700, activation="gelu"), Dense(800), Dense(3)
    for rows in (40, 300):  # in groups of 6 samples, and of one
        yield Case("linear", "wide", f"{rows}×700 → 800", pooled((rows, 5), *wide), 9)
    for function in (None, "relu", "gelu"):
        stack = (Dense(17, activation=function), Dense(9, activation=function), Dense(3))
        yield Case("linear", f"three, {function or 'plain'}", "6", network((6,), *stack), 33)
        picture = network((3, 4, 5), Dense(7, activation=function), Dense(18))
        yield Case("linear", f"on a picture, {function or 'plain'}", "3×4×5", picture, next(counts))


def _attention() -> Iterator[Case]:
    counts = cycle(BATCHES)
    for width in HEAD_WIDTHS:
        for heads in (1, 2, 3):
            layer = MultiHeadAttention(num_heads=heads)
            count = next(counts)
            shape = f"{count}×9×{heads * width}"
            yield Case(
                "attention", f"{heads} heads", shape, pooled((9, heads * width), layer), count
            )
    for length in LENGTHS:
        for heads in (1, 4):
            net = pooled((length, 8), MultiHeadAttention(num_heads=heads))
            yield Case("attention", f"{heads} heads", f"{length}×8", net, 2)
    for length in (1, 17, 65):
        for key_dim in (1, 5, 16, 20):
            net = pooled((length, 6), MultiHeadAttention(2, key_dim=key_dim))
            shape = f"{length}×6, {key_dim} wide"
            yield Case("attention", "key_dim of its own", shape, net, next(counts))
        for name, arguments in {
            "no bias": {"bias": False},
            "no output projection": {"output_projection": False},
            "neither": {"bias": False, "output_projection": False},
        }.items():
            for key_dim in (None, 3):
                layer = MultiHeadAttention(2, key_dim=key_dim, **arguments)
                shape = f"{length}×10, {key_dim or 5} wide"
                yield Case("attention", name, shape, pooled((length, 10), layer), next(counts))
    one, two = MultiHeadAttention(2, key_dim=3), MultiHeadAttention(1, output_projection=False)
    yield Case("attention", "two in a row", "11×4", pooled((11, 4), one, two), 5)
    sharp = pooled((17, 8), Rescaling(6.0), MultiHeadAttention(2))
    yield Case("attention", "sharp", "17×8", sharp, 3)
    sharp = pooled((100, 8), Rescaling(6.0), MultiHeadAttention(2))
    yield Case("attention", "sharp", "100×8", sharp, 3)
    last = network((7, 6), MultiHeadAttention(2, output_projection=False), Flatten())
    yield Case("attention", "heads flattened", "7×6", last, 3)


def _attention_options() -> Iterator[Case]:
    """What a layer may say of who sees whom and of scores: whole rows, and tile by tile."""
    options: dict[str, dict[str, Any]] = {
        "causal": {"causal": True},
        "window": {"window": 4},
        "window to one side": {"window": (2, None), "bias": False},
        "fewer key heads": {"kv_heads": 2, "value_dim": 5},
        "one key head, causal": {"kv_heads": 1, "causal": True},
        "softcap": {"softcap": 3.0},
        "pattern": {"pattern": AnyOf((BlockLocal(4), GlobalTokens(1)))},
        "patterns, window": {"pattern": AllOf((Strided(3), BlockLocal(40))), "window": 30},
        "alibi": {"positions": "alibi"},
        "alibi, causal": {"positions": "alibi", "causal": True},
        "relative": {"positions": "relative"},
        "relative, causal, fewer key heads": {
            "positions": "relative",
            "causal": True,
            "kv_heads": 2,
        },
        "all at once": {
            "positions": "relative",
            "causal": True,
            "kv_heads": 2,
            "value_dim": 3,
            "softcap": 2.0,
            "window": (9, None),
        },
        "rotary": {"positions": "rotary", "key_dim": 3},
        "normalized": {"qk_norm": True},
        "normalized, rotary, fewer key heads": {
            "qk_norm": True,
            "positions": "rotary",
            "kv_heads": 1,
            "key_dim": 5,
        },
    }
    for name, arguments in options.items():
        layer = MultiHeadAttention(num_heads=4, **arguments)
        for length in (5, 17, 70):
            yield Case("attention", name, f"{length}×8", pooled((length, 8), layer), 2)
        lengths = (1, 17, 65, 2)
        yield Case("attention", f"{name}, ragged", "×8", pooled((None, 8), layer), lengths=lengths)
    alone = MultiHeadAttention(1, window=0, output_projection=False)  # one head that is not folded
    yield Case("attention", "one head, window", "9×40", pooled((9, 40), alone, Dense(40)), 2)
    causal = MultiHeadAttention(1, causal=True, output_projection=False)
    yield Case("attention", "one head, causal", "9×40", pooled((9, 40), causal, Dense(40)), 2)
    long = pooled((600, 4), MultiHeadAttention(2, causal=True, window=70))
    yield Case("attention", "long, causal, window", "600×4", long, 1)


def _linear_attention() -> Iterator[Case]:
    """Rows in chunks of 64: less than one, one, a row more, several. A token alone has a
    weight of 1 whatever it is: gradients of its query and key are 0, all else is rounding."""
    counts = cycle(BATCHES)
    for width in HEAD_WIDTHS:
        for causal in (False, True):
            layer = MultiHeadAttention(2, linear=True, causal=causal, value_dim=width + 1)
            option = "causal" if causal else "2 heads"
            shape = f"9×{2 * width}"
            net = pooled((9, 2 * width), layer)
            yield Case("linear_attention", option, shape, net, next(counts))
    options: dict[str, dict[str, Any]] = {
        "4 heads": {},
        "causal": {"causal": True},
        "fewer key heads": {"kv_heads": 2, "value_dim": 5},
        "one key head, causal": {"kv_heads": 1, "causal": True, "key_dim": 17},
        "normalized, rotary, fewer key heads": {
            "qk_norm": True,
            "positions": "rotary",
            "kv_heads": 1,
            "key_dim": 5,
            "causal": True,
        },
        "no projection": {"output_projection": False, "bias": False},
    }
    for name, arguments in options.items():
        layer = MultiHeadAttention(4, linear=True, **arguments)
        for length in (2, 5, 64, 65, 150):
            net = pooled((length, 8), layer)
            yield Case("linear_attention", name, f"{length}×8", net, 2)
        net = pooled((None, 8), layer)
        lengths = (1, 17, 65, 2, 64)
        yield Case("linear_attention", f"{name}, ragged", "×8", net, lengths=lengths)
    alone = MultiHeadAttention(
        1, linear=True, output_projection=False
    )  # which nothing is folded into
    yield Case("linear_attention", "one head", "9×40", pooled((9, 40), alone, Dense(40)), 2)
    sharp = pooled((17, 8), Rescaling(6.0), MultiHeadAttention(2, linear=True, causal=True))
    yield Case("linear_attention", "sharp", "17×8", sharp, 3)
    blocks = TransformerEncoder(2, dff=20, linear=True), TransformerDecoder(2, dff=24, linear=True)
    both = Inputs((None, 12), (None, 8))
    net = Network(input=both, layers=(*blocks, GlobalAveragePooling1D(), Output(5)))
    lengths = (1, 3, 70, 5)
    yield Case("linear_attention", "source and target", "ragged", net, lengths=lengths)


def _rotary() -> Iterator[Case]:
    for heads, width in ((1, 4), (2, 6), (3, 15), (2, 16)):
        layer = MultiHeadAttention(heads, positions="rotary", kv_heads=1)
        yield Case("rotary", "few keys", f"7×{width}", pooled((7, width), layer), 2)


def _embed() -> Iterator[Case]:
    counts = cycle(BATCHES)
    for width in (1, 7, 16, 33):
        table = Embedding(20, width)
        yield Case("embed", "ids", f"9×{width}", pooled((9,), table), next(counts))
        lengths = (1, 9, 4, 17)
        ragged = pooled((None,), table, MultiHeadAttention(1))
        yield Case("embed", "ids, ragged", f"×{width}", ragged, lengths=lengths)
        tied = pooled((5,), table, Activation("gelu"), Dense(20, tied_to="embedding_1"))
        yield Case("embed", "tied", f"5×{width}", tied, next(counts))
        bare = pooled((5,), table, Dense(20, tied_to="embedding_1", bias=False), Dense(3))
        yield Case("embed", "tied, no bias", f"5×{width}", bare, next(counts))
    learned = (Embedding(20, 6, padding_id=0), LearnedPositions(), Dense(4))
    yield Case("embed", "shorter than positions", "≤9", pooled((9,), *learned), lengths=(3, 9, 1))


def _transformer() -> Iterator[Case]:
    blocks: dict[str, tuple[Layer, ...]] = {
        "pre-norm": (TransformerEncoder(2, dff=20),),
        "post-norm, gelu": (TransformerEncoder(2, dff=20, norm="post", activation="gelu"),),
        "two, causal": (TransformerDecoder(2, dff=20, positions="rotary") * 2,),
    }
    for name, layers in blocks.items():
        yield Case("transformer", name, "9×12", pooled((9, 12), *layers), 2)
        tokens = pooled((None,), Embedding(20, 12), *layers)
        yield Case("transformer", f"{name}, ids", "ragged", tokens, lengths=(1, 9, 4, 66))
    pair = TransformerEncoder(2, dff=20), TransformerDecoder(2, dff=24) * 2
    both: dict[str, tuple[Any, Any, tuple[Layer, ...]]] = {
        "values": ((7, 12), (5, 8), pair),
        "values, ragged": ((None, 12), (None, 8), pair),
        "one table": ((7,), (5,), (Embedding(20, 12), *pair)),
        "two tables, padding": (
            (7,),
            (5,),
            (
                Embedding(20, 12, padding_id=0),
                pair[0],
                Embedding(9, 8, padding_id=0),
                pair[1],
            ),
        ),
    }
    for name, (source, target, layers) in both.items():
        ends = (GlobalAveragePooling1D(), Output(5))
        net = Network(input=Inputs(source, target), layers=(*layers, *ends))
        lengths = (1, 3, 2, 5) if "padding" in name or "ragged" in name else ()
        yield Case("transformer", f"source and target, {name}", "", net, 2, lengths=lengths)


def _position() -> Iterator[Case]:
    layers = {
        "uniform": LearnedPositions(),
        "sinusoidal start": LearnedPositions(start="sinusoidal"),
        "fixed": SinusoidalPositions(),
    }
    counts = cycle(BATCHES)
    for name, layer in layers.items():
        for length in (1, 2, 15, 49, 65):
            shape, count = f"{length}×5", next(counts)
            yield Case("position", f"{name}, alone", shape, pooled((length, 5), layer), count)
            fused = pooled((length, 5), Dense(17), layer)
            yield Case("position", f"{name}, fused", shape, fused, count)
        for function in ("relu", "gelu"):
            both = pooled((7, 5), Dense(6), layer, Activation(function), Dense(4))
            yield Case("position", f"{name}, fused with {function}", "7×5", both, 33)
        bare = pooled((7, 5), Dense(16, bias=False), layer)
        yield Case("position", f"{name}, fused without bias", "7×5", bare, 2)
        after = pooled((7, 5), Dense(6, activation="relu"), layer, Dense(4))
        yield Case("position", f"{name}, after relu", "7×5", after, 2)


def _normalize() -> Iterator[Case]:
    counts = cycle(BATCHES)
    for width in (3, 5, 8, 15, 16, 17, 64, 100):
        for epsilon in (1e-5, 0.5):
            layer = LayerNormalization(epsilon=epsilon)
            count = next(counts)
            alone = network((width,), layer)
            yield Case("normalize", f"ε = {epsilon}", f"{count}×{width}", alone, count)
            between = pooled((5, width), Dense(width), layer, Dense(4))
            yield Case("normalize", f"ε = {epsilon}, tokens", f"5×{width}", between, count)
    picture = network((2, 3, 20), LayerNormalization(), Flatten())
    yield Case("normalize", "on a picture", "2×3×20", picture, 3)
    far = network((20,), Rescaling(1.0, 50.0), LayerNormalization())
    yield Case("normalize", "far from 0", "20", far, 33)
    twice = pooled((5, 12), LayerNormalization(), LayerNormalization(), Activation("gelu"))
    yield Case("normalize", "twice", "5×12", twice, 3)


def _activation() -> Iterator[Case]:
    counts = cycle(BATCHES)
    functions = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "leaky_relu", "softmax")
    for function in functions:
        layer = Activation(function)
        for width in (1, 7, 16, 33):
            count = next(counts)
            alone = network((width,), layer)
            yield Case("activation", f"{function}, alone", f"{count}×{width}", alone, count)
        for length in (1, 17):
            tokens = pooled((length, 5), LearnedPositions(), layer)
            yield Case("activation", f"{function}, tokens", f"{length}×5", tokens, next(counts))
        picture = network((3, 4, 5), layer, Dense(3), layer)
        yield Case("activation", f"{function}, on a picture", "3×4×5", picture, 2)
        shared = pooled((6, 9), Dense(9), layer, Residual((Dense(9),)))
        yield Case("activation", f"{function}, read twice", "6×9", shared, 3)
        twice = pooled((6, 9), Dense(9), layer, layer, Dense(4))
        yield Case("activation", f"{function}, twice", "6×9", twice, 3)
        if function == "softmax":
            continue
        pool = pooled((9, 6), Dense(12, activation=function))
        yield Case("activation", f"{function}, pooled", "9×6", pool, 3)
        flat = network((9, 6), Dense(12, activation=function), Flatten())
        yield Case("activation", f"{function}, flattened", "9×6", flat, 3)
        tails = network((40,), Rescaling(4.0), Activation(function))
        yield Case("activation", f"{function}, tails", "40", tails, 33)


def _gated() -> Iterator[Case]:
    counts = cycle(BATCHES)
    for function in ("silu", "gelu", "relu", "sigmoid"):
        for width, units in [(5, 7), (16, 32), (17, 1)]:
            layer = GatedFeedForward(units, activation=function, bias=width == 5)
            shape, count = f"{width} → {units}", next(counts)
            yield Case("multiply", f"{function}, vectors", shape, network((width,), layer), count)
            block = pooled((9, width), Residual((RMSNormalization(), layer)), Dense(3))
            yield Case("multiply", f"{function}, tokens", shape, block, count)


def _windows() -> Iterator[Case]:
    counts = cycle(BATCHES)
    for shape in [(6, 8, 3), (9, 7), (5, 5, 16), (4, 4, 17)]:
        for kernel, strides in [(3, 1), (2, 2), ((1, 3), (2, 1)), ((4, 4), 3)]:
            for padding in ("valid", "same"):
                layer = Conv2D(5, kernel, strides, padding=padding, activation="silu")
                text = f"{'×'.join(map(str, shape))} by {kernel} every {strides}"
                net = network(shape, layer, GlobalAveragePooling2D())
                yield Case("windows", f"first, {padding}", text, net, next(counts))
    deep = Conv2D(6, 3, activation="relu"), Conv2D(4, 3, 2, padding="same", bias=False)
    yield Case("windows", "two in a row", "9×9×2", network((9, 9, 2), *deep, Flatten()), 3)
    tokens = Conv1D(7, 3, padding="same", activation="gelu"), Conv1D(5, 2, strides=2)
    yield Case("windows", "tokens", "11×6", pooled((11, 6), *tokens), 3)
    patch = network((8, 8, 3), Conv2D(6, (4, 4), 4), Reshape((4, 6)), MultiHeadAttention(2))
    yield Case("windows", "patches", "8×8×3", patch, 3)


def _max_pool() -> Iterator[Case]:
    counts = cycle(BATCHES)
    for width in (1, 5, 17):
        for size, strides in [(2, None), (3, 1), ((1, 2), (2, 1))]:
            for padding in ("valid", "same"):
                layers = Conv2D(width, 1), MaxPooling2D(size, strides, padding), Flatten()
                text = f"{width} wide, {size} every {strides}"
                net = network((6, 7, 2), *layers)
                yield Case("max_pool", f"windows, {padding}", text, net, next(counts))
        tokens = Dense(width), MaxPooling1D(2), GlobalMaxPooling1D()
        yield Case("max_pool", "tokens", f"9×{width}", pooled_by(tokens, (9, 4)), next(counts))
        picture = network((3, 4, 2), Dense(width), GlobalMaxPooling2D())
        yield Case("max_pool", "a whole picture", f"{width} wide", picture, next(counts))
    ragged = pooled_by((Dense(6), GlobalMaxPooling1D()), (None, 4))
    yield Case("max_pool", "ragged", "all lengths", ragged, lengths=(*LENGTHS, 3, 1))


def pooled_by(layers: tuple[Layer, ...], shape: tuple[int | None, ...]) -> Network:
    return Network(input=shape, layers=(*layers, Output(5)))


def _moves() -> Iterator[Case]:
    counts = cycle(BATCHES)
    for shape, dims in [((3, 5), (2, 1)), ((16, 17), (2, 1)), ((2, 3, 4), (2, 3, 1))]:
        text = "×".join(map(str, shape))
        turned = network(shape, Dense(shape[-1]), Permute(dims), Dense(4), Flatten())
        yield Case("permute", str(dims), text, turned, next(counts))
    swapped = network((2, 3, 20), Dense(18), Permute((2, 1, 3)), Flatten())
    yield Case("permute", "rows stay whole", "2×3×20", swapped, 3)
    first = network((4, 6), Permute((2, 1)), Flatten())
    yield Case("permute", "first", "4×6", first, 3)
    for width in (5, 16, 20):
        block = Residual((LayerNormalization(), MultiHeadAttention(1)))
        layers = Dense(width), ClassToken(0.5), LearnedPositions(), block
        for index in (0, -1):
            net = pooled_by((*layers, TokenAt(index)), (7, 4))
            yield Case("pick", f"token {index}", f"7×{width}", net, next(counts))
        head = pooled_by((*layers, AttentionPooling(1)), (7, 4))
        yield Case("learned", "a class token and a query", f"7×{width}", head, next(counts))
        several = pooled_by((Dense(2 * width), AttentionPooling(2, bias=False)), (9, 4))
        yield Case("learned", "queries", f"9×{width}", several, next(counts))
        joined = network((4, 3), Dense(width), Activation("relu"), ClassToken(0.5), Flatten())
        yield Case("concatenate", "after relu", f"4×{width}", joined, next(counts))
    ragged = pooled_by((Dense(6), AttentionPooling(2)), (None, 4))
    yield Case("learned", "ragged", "all lengths", ragged, lengths=(*LENGTHS, 3, 1))
    for shape, target in [
        ((4, 6), (8, 3)),
        ((4, 6), (2, -1, 6)),
        ((24,), (4, 6)),
        ((2, 2, 5), (4, 5)),
    ]:
        text = f"{shape} → {target}"
        for name, before in {"first": (), "later": (Dense(shape[-1]), Activation("relu"))}.items():
            net = network(shape, *before, Reshape(target), Dense(7), Flatten())
            yield Case("reshape", f"to a target, {name}", text, net, next(counts))


def _rms_normalize() -> Iterator[Case]:
    counts = cycle(BATCHES)
    for width in (1, 5, 16, 17, 100):
        for epsilon in (1e-5, 0.5):
            layer, count = RMSNormalization(epsilon), next(counts)
            name, alone = f"ε = {epsilon}", network((width,), layer)
            yield Case("rms_normalize", name, f"{count}×{width}", alone, count)
            between = pooled((5, width), Dense(width), layer, Dense(4))
            yield Case("rms_normalize", f"{name}, tokens", f"5×{width}", between, count)
    picture = network((2, 3, 20), RMSNormalization(), Flatten())
    yield Case("rms_normalize", "on a picture", "2×3×20", picture, 3)
    twice = pooled((5, 12), RMSNormalization(), RMSNormalization(), Activation("gelu"))
    yield Case("rms_normalize", "twice", "5×12", twice, 3)


def _add() -> Iterator[Case]:
    norm, attention = LayerNormalization(), MultiHeadAttention(2)
    blocks = {
        "linear": Residual((Dense(6),)),
        "nothing": Residual(()),
        "relu": Residual((Activation("relu"),)),
        "gelu": Residual((Dense(6, activation="gelu"),)),
        "attention": Residual((norm, attention)),
        "feed forward": Residual((norm, Dense(20, activation="relu"), Dense(6))),
        "nested": Residual((Residual((Dense(6),)), Dense(6))),
        "several inside": Residual(
            (norm, Residual((Dense(6),)), Residual((attention,)), Residual(()))
        ),
        "three deep": Residual((Residual((Residual((Dense(6),)), norm)), Activation("gelu"))),
        "positions": Residual((LearnedPositions(), SinusoidalPositions())),
        "rescaled": Residual((Rescaling(-0.5, 0.25),)),
    }
    counts = cycle(BATCHES)
    for name, block in blocks.items():
        for length in (1, 17):
            first = pooled((length, 6), block)
            yield Case("add", f"{name}, first", f"{length}×6", first, next(counts))
            inside = pooled((length, 5), Dense(6), block, block, Dense(7))
            yield Case("add", f"{name}, inside", f"{length}×6", inside, next(counts))
    for name in ("linear", "nothing", "relu", "nested"):
        vector = network((6,), Dense(6, activation="relu"), blocks[name])
        yield Case("add", f"{name}, vectors", "6", vector, 33)
        picture = network((2, 3, 6), blocks[name], Dense(2))
        yield Case("add", f"{name}, on a picture", "2×3×6", picture, 2)


def _pool() -> Iterator[Case]:
    counts = cycle(BATCHES)
    for length in LENGTHS:
        alone = pooled((length, 7))
        yield Case("pool", "alone", f"{length}×7", alone, next(counts))
        moved = pooled((length, 7), Dense(5, activation="gelu"), Dense(20), Dense(3))
        yield Case("pool", "after linear layers", f"{length}×7", moved, next(counts))
    masked = pooled((12, 7), Dense(9), LearnedPositions(), Activation("relu"))
    yield Case("pool", "after relu", "12×7", masked, 3)
    shared = pooled((12, 7), Dense(7), Residual((Dense(7),)))
    yield Case("pool", "after a residual", "12×7", shared, 3)


def _reshape() -> Iterator[Case]:
    for shape in [(1,), (17,), (3, 5), (16, 16), (5, 33), (2, 3, 4), (1, 1, 1), (4, 4, 1)]:
        text = "×".join(map(str, shape))
        first = network(shape, Flatten(), Dense(6, activation="gelu"))
        yield Case("reshape", "first", text, first, 3)
        between = network(shape, Dense(5), Flatten(), Flatten(), Dense(6))
        yield Case("reshape", "between linear layers", text, between, 2)
    shared = network((4, 6), Residual((Dense(6),)), Flatten(), Residual((Dense(24),)))
    yield Case("reshape", "between residuals", "4×6", shared, 3)


def _rescale() -> Iterator[Case]:
    shift = Rescaling(-0.5, 0.75)
    yield Case("rescale", "first", "7", network((7,), shift), 33)
    yield Case("rescale", "first, tokens", "5×7", pooled((5, 7), shift, Dense(4)), 3)
    yield Case("rescale", "twice", "7", network((7,), shift, Rescaling(3.0, 0.125)), 3)
    yield Case("rescale", "shared", "5×7", pooled((5, 7), shift, Residual((Dense(7),))), 3)
    middle = pooled((5, 7), Dense(9), shift, Dense(4), Activation("relu"), shift, Dense(3))
    yield Case("rescale", "in the middle", "5×7", middle, 3)
    norm = pooled((5, 7), Dense(9), shift, LayerNormalization(), shift, MultiHeadAttention(3))
    yield Case("rescale", "beside others", "5×7", norm, 3)
    image = network((3, 4, 2), Dense(5), shift, Flatten(), shift)
    yield Case("rescale", "on a picture", "3×4×2", image, 3)
    last = Network(input=(7,), layers=(Output(4), Rescaling(2.0, 1.0)))
    yield Case("rescale", "last", "7", last, 3)


def _unfold() -> Iterator[Case]:
    shapes: list[tuple[tuple[int, ...], int | tuple[int, int]]] = [
        ((8, 8), 4),
        ((6, 4), (3, 1)),
        ((4, 6), (1, 3)),
        ((5, 7), (5, 7)),
        ((4, 3), 1),
        ((4, 6, 3), 2),
        ((6, 8, 1), (2, 4)),
        ((3, 9, 5), (3, 3)),
        ((8, 8, 17), 4),
    ]
    counts = cycle(BATCHES)
    for shape, size in shapes:
        text = f"{'×'.join(map(str, shape))} by {size}"
        for as_bytes in (False, True):
            kind, scale = ("bytes", 1 / 100) if as_bytes else ("floats", 0.5)
            first = pooled(shape, Rescaling(scale), Patches(size), Dense(5), Activation("gelu"))
            yield Case("unfold", f"first, {kind}", text, first, next(counts), as_bytes)
        raw = pooled(shape, Patches(size), Rescaling(0.5), Dense(4))
        yield Case("unfold", "before rescaling", text, raw, 2)
        if len(shape) == 3:
            later = pooled(shape, Dense(3), Activation("gelu"), Patches(size), Dense(4))
            yield Case("unfold", "later", text, later, 2)
    again = pooled((8, 6), Patches(2), Patches((3, 4)), Dense(3))
    yield Case("unfold", "of tokens", "12×4 by (3, 4)", again, 3)
    shared = network((4, 6, 3), Residual((Dense(3),)), Patches(2), Residual((Dense(12),)))
    yield Case("unfold", "between residuals", "4×6×3 by 2", shared, 3)


def _cross_entropy() -> Iterator[Case]:
    for classes in (1, 2, 10, 15, 16, 17, 100):
        for count in BATCHES:
            net = network((6,), Dense(5, activation="gelu"), classes=classes)
            yield Case("cross_entropy", "logits", f"{count}×{classes}", net, count)
    sure = Network(input=(6,), layers=(Output(10), Rescaling(30.0)))
    yield Case("cross_entropy", "sure", "33×10", sure, 33)
    shifted = Network(input=(6,), layers=(Output(10), Rescaling(1.0, -300.0)))
    yield Case("cross_entropy", "far from 0", "33×10", shifted, 33)
    bare = Network(input=(3, 5), layers=(LearnedPositions(), Flatten()))
    yield Case("cross_entropy", "of values themselves", "3×5", bare, 3)
    nothing = Network(input=(3, 5), layers=(Flatten(),))
    yield Case("cross_entropy", "nothing to learn", "3×5", nothing, 3)


LOSSES: dict[str, tuple[str, Loss]] = {
    "smoothed": ("cross_entropy", SparseCategoricalCrossentropy(label_smoothing=0.2)),
    "distribution": ("cross_entropy", CategoricalCrossentropy()),
    "distribution, smoothed": ("cross_entropy", CategoricalCrossentropy(label_smoothing=0.1)),
    "yes or no": ("binary_cross_entropy", BinaryCrossentropy()),
    "smoothed yes or no": ("binary_cross_entropy", BinaryCrossentropy(label_smoothing=0.2)),
    "squared": ("deviation", MeanSquaredError()),
    "absolute": ("deviation", MeanAbsoluteError()),
    "huber": ("deviation", Huber(0.5)),
}


def _losses() -> Iterator[Case]:
    counts = cycle(BATCHES)
    for option, (primitive, loss) in LOSSES.items():
        for width in (1, 3, 16, 17, 40):
            net = Network(input=(6,), layers=(Dense(5, activation="gelu"), Dense(width)), loss=loss)
            count = next(counts)
            yield Case(primitive, option, f"{count}×{width}", net, count)
        tokens = Network(input=(7, 5), layers=(Dense(9),), loss=loss)
        picture = Network(input=(2, 3, 5), layers=(Dense(4),), loss=loss)
        ragged = Network(input=(None, 5), layers=(Dense(20),), loss=loss)
        lengths = (3, 1, 70, 2, 2, 17)
        yield Case(primitive, option, "7×9", tokens, 5)
        yield Case(primitive, f"{option}, weighted", "2×3×4", picture, 4, weighted=True)
        yield Case(primitive, f"{option}, ragged", "20", ragged, lengths=lengths)
        yield Case(
            primitive, f"{option}, ragged, weighted", "20", ragged, lengths=lengths, weighted=True
        )
    tokens = Network(input=(33, 5), layers=(Dense(17),))
    yield Case("cross_entropy", "of positions", "33×17", tokens, 3)
    yield Case("cross_entropy", "of positions, weighted", "33×17", tokens, 3, weighted=True)
    samples = Network(input=(6,), layers=(Dense(17),))
    yield Case("cross_entropy", "of samples, weighted", "17", samples, 33, weighted=True)


def _vocabulary() -> Iterator[Case]:
    """Last layers so wide that they go with their loss, a chunk of rows at a time."""
    wide = 2051
    lengths = (3, 1, 150, 2, 65)
    smoothed = SparseCategoricalCrossentropy(label_smoothing=0.1)
    for bias in (True, False):
        option = "bias" if bias else "no bias"
        tokens = Network(input=(150, 5), layers=(Dense(wide, bias=bias),))
        yield Case("vocabulary", option, f"150×{wide}", tokens, 2)
        tied = Embedding(wide, 6), Dense(7, activation="gelu"), Dense(6)
        tied += (Dense(wide, bias=bias, tied_to="embedding_1"),)
        shared = Network(input=(9,), layers=tied)
        yield Case("vocabulary", f"tied, {option}", f"9×{wide}", shared, 9)
    for activation in ("relu", "gelu"):
        layers = Dense(6, activation=activation), Dense(wide)
        net = Network(input=(20, 5), layers=layers, loss=smoothed)
        yield Case("vocabulary", f"smoothed, after {activation}", f"20×{wide}", net, 5)
        ragged = Network(input=(None, 5), layers=layers)
        yield Case("vocabulary", f"ragged, after {activation}", str(wide), ragged, lengths=lengths)
        yield Case(
            "vocabulary",
            f"ragged, weighted, after {activation}",
            str(wide),
            replace(ragged, loss=smoothed),
            lengths=lengths,
            weighted=True,
        )
    samples = Network(input=(6,), layers=(Dense(5), Output(wide)))
    yield Case("vocabulary", "of samples, weighted", f"33×{wide}", samples, 33, weighted=True)
    straight = Network(input=(6,), layers=(Output(wide),), loss=smoothed)
    yield Case("vocabulary", "nothing before it", f"33×{wide}", straight, 33)


def _input() -> Iterator[Case]:
    layers = Rescaling(1 / 128, -1.0), Dense(6, activation="gelu"), Dense(9)
    for as_bytes in (False, True):
        kind = "bytes" if as_bytes else "floats"
        for count in BATCHES:
            for shape in [(16,), (5,), (7, 5), (3, 16), (2, 3, 5)]:
                net = network(shape, *layers)
                text = "×".join(map(str, (count, *shape)))
                yield Case("input", kind, text, net, count, as_bytes)


def _ragged() -> Iterator[Case]:
    every = (*LENGTHS, 3, 3, 1)
    layers: dict[str, tuple[Layer, ...]] = {
        "pooled alone": (),
        "linear": (Dense(9, activation="relu"), Dense(4)),
        "attention": (MultiHeadAttention(2),),
        "bare attention": (MultiHeadAttention(2, bias=False, output_projection=False),),
        "positions": (SinusoidalPositions(),),
        "positions, fused": (Dense(5), SinusoidalPositions(), Activation("gelu")),
        "block": (
            Dense(8),
            SinusoidalPositions(),
            Residual((LayerNormalization(), MultiHeadAttention(2))),
            Residual((LayerNormalization(), Dense(16, activation="gelu"), Dense(8))),
            LayerNormalization(),
        ),
        "rescaled": (Rescaling(0.5, 0.1), Dense(5), Rescaling(2.0, -1.0), Activation("relu")),
    }
    for name, inside in layers.items():
        net = pooled((None, 6), *inside)
        for shape, lengths in {
            "all lengths": every,
            "one of 1": (1,),
            "one of 65": (65,),
            "five of 17": (17,) * 5,
            "forty short": tuple(1 + n % 4 for n in range(40)),
        }.items():
            yield Case("ragged", name, shape, net, lengths=lengths)
    scaled = pooled((None, 6), Rescaling(1 / 100), Dense(5, activation="gelu"))
    yield Case("ragged", "bytes", "all lengths", scaled, as_bytes=True, lengths=every)


def _whole() -> Iterator[Case]:
    classifier = (
        Rescaling(1 / 255),
        Patches(4),
        Dense(16),
        LearnedPositions(),
        Activation("relu"),
        MultiHeadAttention(1, output_projection=False),
        Dense(32, activation="relu"),
        Dense(16),
        GlobalAveragePooling1D(),
        Output(10),
    )
    yield Case(
        "network", "classifier", "28×28", Network(input=(28, 28), layers=classifier), 5, True
    )
    norm = LayerNormalization()
    block = (
        Residual((norm, MultiHeadAttention(4))),
        Residual((norm, Dense(40, activation="gelu"), Dense(20))),
    )
    stack = (Patches(2), Dense(20), LearnedPositions(start="sinusoidal"), *block, *block, norm)
    yield Case("network", "pre-norm, two blocks", "8×8", pooled((8, 8), *stack), 5)


CASES: tuple[Case, ...] = tuple(
    case
    for make in (
        _linear,
        _attention,
        _attention_options,
        _linear_attention,
        _rotary,
        _embed,
        _transformer,
        _position,
        _normalize,
        _rms_normalize,
        _activation,
        _gated,
        _windows,
        _max_pool,
        _moves,
        _add,
        _pool,
        _reshape,
        _rescale,
        _unfold,
        _cross_entropy,
        _losses,
        _vocabulary,
        _input,
        _ragged,
        _whole,
    )
    for case in make()
)


def compact() -> list[Case]:
    """The largest row of each primitive and option: the last one."""
    return list({case.key[:2]: case for case in CASES}.values())
