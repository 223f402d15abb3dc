"""Dropout: the same coins in every engine, for any threads and chunks, in training only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from agreement import Checks, Trio, batch_for

from undivided.engines.native import NativeEngine
from undivided.engines.reference import ReferenceEngine
from undivided.engines.reference.dropout import kept_numbers
from undivided.layers import (
    Activation,
    Dense,
    Dropout,
    Flatten,
    GatedFeedForward,
    GlobalAveragePooling1D,
    Layer,
    LayerNormalization,
    MultiHeadAttention,
    Output,
    Residual,
    TransformerEncoder,
)
from undivided.network import Network
from undivided.training.optimizers import SGD

NETWORKS: dict[str, tuple[tuple[int | None, ...], tuple[Layer, ...]]] = {
    "of the input": ((7,), (Dropout(0.3), Dense(5), Output(3))),
    "of wide rows": ((6,), (Dense(150), Dropout(0.5), Dense(100), Dropout(0.1), Output(3))),
    "after relu": ((5, 8), (Dense(9, "relu"), Dropout(0.2), Dense(9), Flatten(), Output(3))),
    "in blocks": (
        (9, 8),
        (
            Residual((LayerNormalization(), MultiHeadAttention(2, dropout=0.2), Dropout(0.1))),
            Residual((GatedFeedForward(16), Dropout(0.25))),
            GlobalAveragePooling1D(),
            Dropout(0.5),
            Output(3),
        ),
    ),
    "of attention's weights": (
        (9, 8),
        (MultiHeadAttention(2, dropout=0.3), GlobalAveragePooling1D(), Output(3)),
    ),
    "of many weights": (
        (70, 8),
        (
            MultiHeadAttention(4, dropout=0.5, causal=True, kv_heads=2, positions="relative"),
            Dropout(0.2),
            MultiHeadAttention(2, dropout=0.1, window=9),
            GlobalAveragePooling1D(),
            Output(3),
        ),
    ),
    "in encoders": (
        (9, 8),
        (
            TransformerEncoder(2, dropout_rate=0.2),
            TransformerEncoder(2, dropout=0.1, norm="post"),
            GlobalAveragePooling1D(),
            Output(3),
        ),
    ),
    "of what is read twice": (
        (4, 6),
        (Dense(6), Residual((Dropout(0.4), Activation("gelu"))), Flatten(), Output(3)),
    ),
    "ragged": ((None, 6), (Dense(20), Dropout(0.3), GlobalAveragePooling1D(), Output(3))),
}


def network(name: str) -> Network:
    shape, layers = NETWORKS[name]
    return Network(input=shape, layers=layers)


@pytest.mark.parametrize("name", NETWORKS)
def test_engines_throw_the_same_coins(name: str) -> None:
    trio = Trio(network(name))
    # More samples than slices, so that slices are dealt some of them, out of their order.
    lengths = (1, 3, 17, 2, 9, 4, 4, 12, 5, 1, 2, 30, 8) if name == "ragged" else ()
    batch = batch_for(trio.plan, len(lengths) or 4, lengths=lengths)
    engines = trio.found, trio.exact, trio.rounded
    checks = Checks()
    for seed, step in [(0, 0), (2**63 + 5, 2**31 + 7), (3, 1)]:
        results = []
        for engine in engines:
            engine.seed = seed
            results.append(engine.loss_and_gradients(batch.x, batch.y, step))
        checks.compare("loss", *(loss for loss, _ in results))
        checks.gradients("gradient", *(gradients for _, gradients in results))
    checks.verify()


@pytest.mark.parametrize("name", NETWORKS)
def test_outside_training_nothing_is_dropped(name: str) -> None:
    shape, layers = NETWORKS[name]
    if name in ("in blocks", "of what is read twice"):
        return  # the blocks would be written again
    with_it = Network(input=shape, layers=layers)
    without = Network(input=shape, layers=tuple(x for x in layers if not isinstance(x, Dropout)))
    trio, plain = Trio(with_it), Trio(without)
    batch = batch_for(trio.plan, 3, lengths=(1, 3, 17) if name == "ragged" else ())
    for engine, other in zip((trio.found, trio.exact), (plain.found, plain.exact), strict=True):
        for key in other.parameters:
            other.parameters[key][...] = engine.parameters[key]
        np.testing.assert_array_equal(engine.predict(batch.x), other.predict(batch.x))
        assert engine.loss_and_gradients(batch.x, batch.y)[0] == pytest.approx(
            other.loss_and_gradients(batch.x, batch.y)[0]
        )


def trained(threads: int, chunks: tuple[int, ...], engine: type = NativeEngine) -> np.ndarray:
    """The weights after nine steps, taken in chunks of so many."""
    plan = replace(network("in blocks"), optimizer=SGD(0.01)).plan()
    made = NativeEngine(plan, threads) if engine is NativeEngine else ReferenceEngine(plan)
    made.seed = 5
    random = np.random.default_rng(0)
    for values in made.parameters.values():
        values[...] = random.normal(size=values.shape) * 0.3
    x, y = random.normal(size=(40, 9, 8)).astype("f4"), np.arange(40) % 3
    order = random.permutation(np.arange(9 * 16) % 40).astype(np.uint32)
    done = 0
    for steps in chunks:
        piece = order[done * 16 : (done + steps) * 16]
        made.train(x, y, piece, 16, done, np.full(steps, 0.01))
        done += steps
    return np.concatenate([values.ravel() for values in made.parameters.values()])


def test_the_same_bits_for_any_threads_and_chunks() -> None:
    one = trained(1, (9,))
    for threads, chunks in [(2, (9,)), (3, (1, 3, 5)), (1, (4, 4, 1))]:
        np.testing.assert_array_equal(trained(threads, chunks), one)
    np.testing.assert_allclose(trained(1, (9,), ReferenceEngine), one, atol=2e-5)


def test_coins_are_fair_and_differ() -> None:
    places = np.arange(50)
    kept = kept_numbers((50, 20, 70), 0.3, 1, 0, places, 0)
    assert kept.mean() == pytest.approx(0.7, abs=0.006)
    others = {
        "seed": kept_numbers((50, 20, 70), 0.3, 2, 0, places, 0),
        "step": kept_numbers((50, 20, 70), 0.3, 1, 1, places, 0),
        "operation": kept_numbers((50, 20, 70), 0.3, 1, 0, places, 1),
        "place": kept_numbers((50, 20, 70), 0.3, 1, 0, places + 50, 0),
    }
    for name, other in others.items():  # of independent coins .7² + .3² = .58 agree
        assert (kept == other).mean() == pytest.approx(0.58, abs=0.006), name
