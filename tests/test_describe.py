"""What `describe` says is true: counts by hand, and bytes against what is really allocated."""

from __future__ import annotations

import json

import numpy as np
import pytest

import undivided
from undivided.engines.native import NativeEngine
from undivided.plan.describe import describe, describe_json, graph
from undivided.training.generators import Philox
from undivided.training.initial import initialize

TABLE = """network Table { input: (20) layers:
    Embedding(70000, 10) GlobalAveragePooling1D Output(3) }"""
RECIPES = ["mnist-attention", "mnist-attention-64", "digits-attention"]


@pytest.mark.parametrize(
    ("recipe", "parameters", "forward"),
    [("mnist-attention", 3_114, 177_344), ("mnist-attention-64", 33_930, 1_763_072)],
)
def test_the_classifiers_cost_what_their_authors_should_have_said(recipe, parameters, forward):
    facts = describe_json(undivided.recipe(recipe))
    assert facts["parameters"] == parameters
    assert facts["multiply_adds"]["as_described"]["forward"] == forward
    page = describe(undivided.recipe(recipe))
    assert f"{parameters:,}" in page and f"{forward:,}" in page


def test_scheduled_operations_are_those_that_benchmarks_count():
    def executed(recipe: str) -> int:
        cost = describe_json(undivided.recipe(recipe))["multiply_adds"]["as_scheduled"]
        return cost["forward"] + cost["backward"]

    # One projection of three folded away, or two: 445,760 and 4,059,392 without.
    assert executed("mnist-attention") == 408_128
    assert executed("mnist-attention-64") == 2_855_168


def test_backward_counts_two_products_for_each_but_the_input_gradient_of_the_first():
    network = undivided.Network(
        input=(6,), layers=[undivided.Dense(5), undivided.Dense(4), undivided.Output(3)]
    )
    layers = describe_json(network)["layers"]
    assert [layer["multiply_adds"] for layer in layers] == [
        {"forward": 30, "backward": 30},
        {"forward": 20, "backward": 40},
        {"forward": 12, "backward": 24},
    ]


@pytest.mark.parametrize("recipe", [*RECIPES, "large table"])
@pytest.mark.parametrize("threads", [1, 2])
def test_bytes_are_those_that_are_allocated(recipe, threads):
    network = undivided.parse(TABLE) if recipe == "large table" else undivided.recipe(recipe)
    said = describe_json(network)["bytes"]
    plan = network.plan()
    engine = NativeEngine(plan, threads=threads)
    for name, values in initialize(plan, Philox(1)).items():
        engine.parameters[name][...] = values
    batch = network.train.batch_size
    ids = plan.input.vocabulary is not None
    x = np.zeros((batch, *network.input), np.int32 if ids else np.uint8)
    y = np.zeros(batch, np.int32)
    engine.train(x, y, np.arange(batch, dtype=np.uint32), batch, 0, np.full(1, 0.01))
    engine.predict(x)
    training, inference = engine.allocated_bytes("train"), engine.allocated_bytes("predict")
    assert training["workers"] == threads
    assert training["arenas"] == said["arena_training"] * threads
    assert inference["arenas"] == said["arena_inference"] * inference["workers"]
    spare = said["gradients_spare"] * threads if threads > 1 else 0
    assert training["gradients"] == said["gradients"] + spare
    assert training["stretches"] == said["gradients_stretch"] * threads
    assert training["derived"] == said["derived"]
    assert training["folded"] == said["gradients_folded"]
    assert training["parameters"] == said["parameters"]
    assert training["slots"] == said["optimizer"]


def test_activations_are_all_values_and_attention_weights():
    network = undivided.Network(
        input=(4, 6),
        layers=[
            undivided.MultiHeadAttention(2),
            undivided.GlobalAveragePooling1D(),
            undivided.Output(3),
        ],
        train=undivided.Train(batch_size=5),
    )
    tokens = 4 * 6
    values = tokens + 3 * tokens + tokens + tokens + 6 + 3  # input, q k v, heads, output, …
    assert describe_json(network)["bytes"]["activations"] == 4 * 5 * (values + 2 * 4 * 4)


def test_a_ragged_network_says_what_length_its_numbers_are_for():
    network = undivided.parse(
        "network R { input: (None, 8) layers: Dense(16) GlobalAveragePooling1D Output(3) }"
    )
    assert "samples of 64 tokens" in describe(network)
    assert describe_json(network)["layers"][0]["shape"] == [None, 16]
    assert describe_json(network)["multiply_adds"]["as_described"]["forward"] == 64 * 8 * 16 + 48


def test_the_page_names_the_rewrites_that_apply():
    page = describe(undivided.recipe("mnist-attention"))
    assert "pool_before_linear" in page
    assert "pool_before_linear" not in describe(undivided.recipe("digits-attention"))


def test_json_is_plain_data():
    for recipe in RECIPES:
        facts = describe_json(undivided.recipe(recipe))
        assert json.loads(json.dumps(facts)) == facts


def test_the_graph_shows_forward_and_gradient_flow():
    text = graph(undivided.recipe("mnist-attention"))
    assert text.startswith("flowchart TD")
    assert 'n3["dense_1<br/>linear · weight, bias"]' in text
    assert 'x0 -->|"(28, 28)"| n1' in text
    # Gradients stop at the first layer that learns: nothing needs those of the patches.
    assert "-.->" in text and "-.-> n2" not in text and '"| n2' not in text.split("-.->", 1)[1]


def test_the_graph_shows_names_as_text():
    network = undivided.Network(
        input=(3,), layers=[undivided.Dense(2, name='a"]<script>'), undivided.Output(2)]
    )
    assert "<script>" not in graph(network)
    assert "#lt;script#gt;" in graph(network)
