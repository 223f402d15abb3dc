"""`linear=true`: what goes with it, what a plan of it says and costs, what its weights are."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import undivided
from undivided import Model, Network
from undivided.engines.native import NativeEngine
from undivided.engines.reference import ReferenceEngine
from undivided.layers import (
    Dense,
    GlobalAveragePooling1D,
    Layer,
    MultiHeadAttention,
    Output,
    TransformerDecoder,
    TransformerEncoder,
)
from undivided.layers.patterns import Strided
from undivided.plan.continuing import continuing
from undivided.plan.costs import operation_costs
from undivided.plan.describe import describe, describe_json

ENDS = GlobalAveragePooling1D(), Output(3)

WITHOUT_SCORES: dict[str, Any] = {
    "window": 4,
    "pattern": Strided(2),
    "softcap": 2.0,
    "positions": "alibi",
}


@pytest.mark.parametrize("layer", [MultiHeadAttention, TransformerEncoder, TransformerDecoder])
@pytest.mark.parametrize("name", WITHOUT_SCORES)
def test_what_acts_on_scores_is_refused(layer: type, name: str) -> None:
    advice = ' "rotary" goes with it.' if name == "positions" else ""
    with pytest.raises(undivided.ArgumentError) as refused:
        layer(2, linear=True, **{name: WITHOUT_SCORES[name]})
    assert str(refused.value) == (
        f"The {name!r} of {layer.__name__} must not be given with linear=true: linear attention "
        f"has no scores that it could act on. Got {WITHOUT_SCORES[name]!r}. Leave out one of the "
        f"two.{advice}"
    )
    assert refused.value.argument == name


def test_a_dropout_of_weights_is_refused() -> None:
    with pytest.raises(undivided.ArgumentError, match=r"The 'dropout' of MultiHeadAttention must"):
        MultiHeadAttention(2, linear=True, dropout=0.1)


def test_the_text_says_where() -> None:
    text = "network N { input: (4, 6) layers: MultiHeadAttention(2, linear=true, softcap=2.0) }"
    with pytest.raises(undivided.UndividedError) as refused:
        undivided.parse(text)
    assert "softcap=2.0" in str(refused.value) and "no scores" in str(refused.value)


def test_the_dropout_of_an_encoder_is_of_what_its_parts_give() -> None:
    layers = TransformerEncoder(2, dff=8, dropout_rate=0.2, linear=True), *ENDS
    plan = Network(input=(4, 6), layers=layers).plan()
    assert [op.kind for op in plan.operations].count("dropout") == 3
    (op,) = plan.attentions
    assert op.kind == "linear_attention" and "dropout" not in op.attributes
    assert any("no weights to leave out" in note for note in plan.notes)
    whole = Network(input=(4, 6), layers=(TransformerEncoder(2, linear=True), *ENDS)).plan()
    assert not any("leave out" in note for note in whole.notes)


def test_a_decoder_reads_its_encoder_without_scores_too() -> None:
    text = """network N { input: { source: (5, 8), target: (4, 8) } layers:
        TransformerEncoder(2, linear=true) TransformerDecoder(2, linear=true) Dense(3) }"""
    plan = undivided.parse(text).plan()
    assert [(op.kind, op.attributes.get("causal", False)) for op in plan.attentions] == [
        ("linear_attention", False),
        ("linear_attention", True),
        ("linear_attention", False),
    ]
    assert undivided.parse(undivided.parse(text).to_text()) == undivided.parse(text)


def test_a_language_model_without_scores_generates_by_whole_sequences() -> None:
    """Its state is not kept from one token to the next: there is no plan that goes on."""
    text = """network N { input: (8) layers: Embedding(7, 16)
        TransformerDecoder(2, dff=16, linear=true) Dense(7) }"""
    model = Model(undivided.parse(text), seed=1)
    assert continuing(model.network.plan(ragged=True)) is None
    ids = [1, 2, 3]
    found = model.generate(ids, 4)
    for _ in range(4):
        ids = [*ids, int(model.logits([np.array(ids)])[0][-1].argmax())]
    assert list(found) in (ids, ids[3:])


def tokens(length: int, *layers: Layer, width: int = 8) -> Network:
    return Network(input=(length, width), layers=(*layers, *ENDS))


@pytest.mark.parametrize("causal", [False, True])
def test_the_cost_grows_with_the_length(causal: bool) -> None:
    """A state of d·(d + 1) for each key head, which every key is added to and every query reads."""

    def cost(length: int, **options: Any) -> int:
        layer = MultiHeadAttention(4, linear=True, causal=causal, **options)
        plan = tokens(length, layer, width=32).plan()
        (op,) = plan.attentions
        return operation_costs(plan, length)[op.output].forward

    assert cost(100) == 2 * 100 * 4 * 8 * 9
    assert cost(1000) == 10 * cost(100)
    assert cost(100, kv_heads=2) == 100 * (2 + 4) * 8 * 9


def test_memory_grows_with_the_length() -> None:
    def arena(length: int, purpose: str) -> int:
        layer = MultiHeadAttention(4, linear=True, causal=True)
        return describe_json(tokens(length, layer, width=32))["bytes"][purpose]

    for purpose in ("arena_training", "arena_inference", "activations"):
        assert arena(8192, purpose) < 2.01 * arena(4096, purpose)
    assert "linear" in describe(tokens(4, MultiHeadAttention(2, linear=True)))


def test_what_is_described_is_allocated() -> None:
    network = tokens(300, TransformerEncoder(2, linear=True))
    engine = NativeEngine(network.plan(), 1)
    x = np.zeros((2, 300, 8), np.float32)
    engine.train(x, np.zeros(2, np.int32), np.arange(2, dtype=np.uint32), 2, 0, np.ones(1))
    said = describe_json(network)["bytes"]["arena_training"]
    assert engine.allocated_bytes("train")["arenas"] == said


@pytest.mark.parametrize("causal", [False, True])
def test_the_weights_are_those_that_were_used(causal: bool) -> None:
    """They are never there, and still: times the values they are what comes out."""
    layer = MultiHeadAttention(2, linear=True, causal=causal, output_projection=False)
    model = Model(Network(input=(70, 8), layers=(layer, Dense(2))), seed=1)
    x = np.random.default_rng(0).normal(size=(3, 70, 8)).astype(np.float32)
    weights = model.attention_weights(x)["attention_1"]
    assert weights.shape == (3, 2, 70, 70)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)
    assert (weights >= 0).all()
    if causal:
        assert (weights[..., *np.triu_indices(70, 1)] == 0).all()
    p = model.parameters
    value = x @ p["attention_1.value.weight"] + p["attention_1.value.bias"]
    heads = weights @ value.reshape(3, 70, 2, 4).transpose(0, 2, 1, 3)
    y = heads.transpose(0, 2, 1, 3).reshape(3, 70, 8) @ p["dense_1.weight"] + p["dense_1.bias"]
    np.testing.assert_allclose(model.logits(x), y, rtol=1e-4, atol=1e-5)


def test_no_sample_needs_weights_of_all_pairs() -> None:
    """16,384 tokens: their weights would take 1 GiB a head."""
    model = Model(tokens(16384, MultiHeadAttention(2, linear=True, causal=True)), seed=0)
    x = np.random.default_rng(0).normal(size=(1, 16384, 8)).astype(np.float32)
    tracemalloc.start()
    model.predict(x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6
    assert describe_json(model.network)["bytes"]["arena_training"] < 50e6


# NaN and infinity: what comes later in a causal layer is not seen, in no direction.


@pytest.mark.parametrize("heads", [{}, {"kv_heads": 1}])
@pytest.mark.parametrize("place", [3, 63, 64, 100])
def test_what_is_not_finite_reaches_only_what_may_attend(place: int, heads: dict) -> None:
    layers = (MultiHeadAttention(2, linear=True, causal=True, **heads), Dense(2))
    plan = Network(input=(130, 8), layers=layers).plan()
    native, reference = NativeEngine(plan, 1), ReferenceEngine(plan, np.float64)
    random = np.random.default_rng(3)
    for name, values in reference.parameters.items():
        values[...] = random.normal(scale=0.3, size=values.shape)
        native.parameters[name][...] = values
    dy = random.normal(size=(1, 130, 2))
    for poison in (np.nan, np.inf, -np.inf):
        x = random.normal(size=(1, 130, 8)).astype(np.float32)
        x[0, place, 2] = poison
        found, expected = (np.isfinite(e.predict(x)).all(axis=-1) for e in (native, reference))
        np.testing.assert_array_equal(found, expected)
        assert expected[0, :place].all() and not expected[0, place:].any()
        dx, expected_dx = (e.pull_back(x, dy)[0] for e in (native, reference))
        np.testing.assert_array_equal(np.isnan(dx), np.isnan(expected_dx))


@pytest.mark.parametrize("causal", [False, True])
def test_features_of_0_give_0(causal: bool) -> None:
    """Keys far below 0 have no features left in float32: nobody attends, and nothing is learned."""
    layer = MultiHeadAttention(1, linear=True, causal=causal, output_projection=False)
    plan = Network(input=(3, 2), layers=(layer, Dense(2))).plan()
    engine = NativeEngine(plan, 1)
    for name in engine.parameters:
        engine.parameters[name][...] = 1.0
    engine.parameters["attention_1.key.bias"][...] = -1000.0
    engine.parameters["attention_1.value.bias"][...] = np.inf
    x = np.ones((1, 3, 2), np.float32)
    np.testing.assert_array_equal(engine.predict(x), np.ones((1, 3, 2)))
    assert not engine.attention_weights(x)["attention_1"].any()
    dx, gradients = engine.pull_back(x, np.ones((1, 3, 2)))
    for name in ("query", "key", "value"):
        assert not gradients[f"attention_1.{name}.weight"].any()
    np.testing.assert_array_equal(dx, 0)
