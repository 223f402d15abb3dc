"""What tokens stand for is found in the plan."""

from __future__ import annotations

import pytest

import undivided
from undivided.view.tokens import Tokens, tokens_of

NETWORKS = {
    "(8, 12) layers: Patches((4, 3)) Dense(4)": Tokens("patches", "input", 2, 4),
    "(9) layers: Embedding(5, 4) SinusoidalPositions()": Tokens("text", "input"),
    "(None, 4) layers: Dense(4) LayerNormalization()": Tokens("series", "input"),
    "(8, 4) layers: Residual { Dense(4) }": Tokens("series", "input"),
    "(4, 6) layers: Patches(2) Dense(4) ClassToken()": Tokens("patches", "input", 2, 3, 1),
    "(9, 4) layers: Conv1D(4, 3)": Tokens("series", "input"),
    "(8, 8, 3) layers: Conv2D(4, 3, padding='same') MaxPooling2D(2) Reshape((16, 4))": Tokens(
        "patches", "input", 4, 4
    ),
    "(12) layers: Dense(8) Reshape((2, 4))": Tokens("numbers", "input"),
}


@pytest.mark.parametrize("text", NETWORKS)
def test_the_axis_is_followed_to_where_it_begins(text: str) -> None:
    network = undivided.parse(
        f"network N {{ input: {text} Residual {{ MultiHeadAttention(2) }} MultiHeadAttention(2)"
        " GlobalAveragePooling1D() Output(2) }"
    )
    plan = network.plan()
    for op in plan.operations:
        if op.kind == "attention":
            assert {tokens_of(plan, name) for name in op.inputs} == {NETWORKS[text]}


def test_a_learned_query_is_of_no_input() -> None:
    text = "network N { input: (4, 6) layers: Patches(2) AttentionPooling(2) Output(2) }"
    plan = undivided.parse(text).plan()
    (op,) = [op for op in plan.operations if op.kind == "attention"]
    assert [tokens_of(plan, name).kind for name in op.inputs[:2]] == ["learned", "patches"]


def test_a_decoder_looks_at_tokens_of_another_input() -> None:
    text = (
        "network N { input: { source: (6), target: (6) } layers: Embedding(12, 8)"
        " TransformerEncoder(2) TransformerDecoder(2) Dense(12) }"
    )
    plan = undivided.parse(text).plan()
    found = [
        tuple(tokens_of(plan, name).source for name in op.inputs[:2])
        for op in plan.operations
        if op.kind == "attention"
    ]
    assert found == [("source", "source"), ("target", "target"), ("target", "source")]
