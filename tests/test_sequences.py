"""Encoders and decoders: what they are given, what they learn, what they go on with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undivided
from undivided import ArgumentError, DataError, Model
from undivided.generation import Choice, continued, shifted, up_to_their_ends
from undivided.plan.plan import Input, Ragged

REVERSE = """network Reverse {
  input: (6, 16)
  layers:
    Embedding(input_dim=9, output_dim=16%s)
    TransformerEncoder(num_heads=2, d_model=16, dff=32)
    TransformerDecoder(num_heads=2, d_model=16, dff=32)
    Dense(9, activation="softmax")
  optimizer: Adam(learning_rate=0.01)
  train { batch_size: 16 }
}"""

NEXT = """network Next {
  input: (8)
  layers:
    Embedding(7, output_dim=16)
    TransformerDecoder(2, dff=32%s)
    Dense(7)
  optimizer: Adam(learning_rate=0.01)
}"""


def reversed_pairs(count: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).integers(1, 9, (count, 6))
    return x, x[:, ::-1].copy()


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_sequences_are_reversed(engine: Any) -> None:
    x, y = reversed_pairs(600 if engine == "native" else 200)
    model = Model(undivided.parse(REVERSE % ""), seed=1, engine=engine)
    model.fit((x, y), epochs=12 if engine == "native" else 1)
    found = model.predict(x[:50])
    assert found.shape == (50, 6)
    if engine == "native":
        assert (found == y[:50]).all(axis=1).mean() > 0.9
        assert model.evaluate((x, y)).accuracy > 0.95
    # What it is told and what it says itself: the same where it says what is right.
    right = np.flatnonzero((found == y[:50]).all(axis=1))[:5]
    begun = np.concatenate([np.zeros((len(right), 1), int), y[right, :-1]], axis=1)
    told = model.logits((x[right], begun))
    np.testing.assert_array_equal([each.argmax(axis=-1) for each in told], y[right].tolist())


def test_targets_of_their_own_lengths_have_an_end() -> None:
    random = np.random.default_rng(1)
    lengths = random.integers(1, 6, 600)
    x = np.zeros((600, 6), int)
    for row, length in zip(x, lengths, strict=True):
        row[:length] = random.integers(1, 9, length)
    y = np.zeros_like(x)
    for row, source, length in zip(y, x, lengths, strict=True):
        row[:length] = source[:length][::-1]
    model = Model(undivided.parse(REVERSE % ", padding_id=0"), seed=1)
    model.fit((x, y), epochs=20)
    found = model.predict(x)
    assert (found == y[:, : found.shape[1]]).all(axis=1).mean() > 0.8
    as_list = model.predict([row[row > 0] for row in x[:5]])
    for ids, row in zip(as_list, found, strict=False):
        np.testing.assert_array_equal(ids, row[: len(ids)])
        assert not row[len(ids) :].any()


def test_source_and_target_are_given_by_name_or_in_order() -> None:
    text = """network Both {
      input: { source: (5), target: (4) }
      layers: Embedding(9, output_dim=8) TransformerEncoder(2) TransformerDecoder(2) Dense(9)
    }"""
    model = Model(undivided.parse(text), seed=1)
    source, target = np.ones((3, 5), int), np.full((3, 4), 2)
    scores = model.logits((source, target))
    assert scores.shape == (3, 4, 9)
    np.testing.assert_array_equal(model.logits({"source": source, "target": target}), scores)
    model.fit(((source, target), np.zeros((3, 4), int)), epochs=2)
    with pytest.raises(DataError, match=r"x must be a pair \(source, target\): Both is given both"):
        model.logits(source)
    with pytest.raises(DataError, match=r"as many of each input\. Got 3 and 2"):
        model.logits((source, target[:2]))


@pytest.mark.parametrize("positions", ["", ", positions=rotary", ", positions=alibi"])
def test_a_causal_model_goes_on(positions: str) -> None:
    model = Model(undivided.parse(NEXT % positions), seed=1)
    whole = (np.arange(60)[:, None] + np.arange(9)) % 7
    model.fit((whole[:, :-1], whole[:, 1:]), epochs=25, batch_size=10)
    np.testing.assert_array_equal(model.generate([1, 2, 3], 12), (np.arange(12) + 4) % 7)
    both = model.generate(np.array([[0, 1], [4, 5]]), 3)
    np.testing.assert_array_equal(both, [[2, 3, 4], [6, 0, 1]])
    lists = model.generate([np.array([3]), np.array([1, 2, 3, 4, 5, 6, 0, 1, 2, 3])], 2)
    np.testing.assert_array_equal(lists, [[4, 5], [4, 5]])


def test_what_comes_later_is_not_seen() -> None:
    model = Model(undivided.parse(NEXT % ""), seed=1)
    x = np.random.default_rng(0).integers(0, 7, (1, 8))
    other = x.copy()
    other[0, 5:] = (other[0, 5:] + 1) % 7
    first, second = model.logits(x)[0], model.logits(other)[0]
    np.testing.assert_array_equal(first[:5], second[:5])
    assert (first[5:] != second[5:]).any()


def test_a_choice_is_drawn_from_the_likely() -> None:
    scores = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    assert Choice()(scores) == 0
    drawn = [Choice(1.0, seed=seed)(scores) for seed in range(400)]
    assert abs(np.mean(np.array(drawn) == 0) - 0.5) < 0.1 and set(drawn) == {0, 1, 2, 3}
    assert {Choice(1.0, top_k=2, seed=seed)(scores) for seed in range(60)} == {0, 1}
    assert {Choice(1.0, top_p=0.7, seed=seed)(scores) for seed in range(60)} == {0, 1}
    assert {Choice(0.01, seed=seed)(scores) for seed in range(20)} == {0}
    again = [Choice(1.0, seed=3) for _ in range(2)]
    assert [again[0](scores) for _ in range(9)] == [again[1](scores) for _ in range(9)]


def test_a_sequence_is_over_behind_its_end() -> None:
    def scores(which: list[int], sequences: list[np.ndarray]) -> list[np.ndarray]:
        return [np.eye(4)[[len(each) % 4]] for each in sequences]

    begun = [np.array([1]), np.array([1, 1])]
    found = continued(lambda numbers: scores, begun, [9, 1], Choice(), end=3)
    assert [each.tolist() for each in found] == [[1, 2], [2]]


def test_many_go_on_a_few_at_a_time_unless_they_are_drawn() -> None:
    def groups(choice: Choice) -> list[tuple[int, int]]:
        seen = []

        def begin(numbers: range) -> Any:
            seen.append((numbers.start, len(numbers)))
            return lambda which, sequences: [np.eye(7)[[each[0] % 7]] for each in sequences]

        begun = [np.array([i]) for i in range(600)]
        found = continued(begin, begun, [2] * 600, choice)
        if choice.temperature == 0:
            assert [each.tolist() for each in found] == [[i % 7] * 2 for i in range(600)]
        return seen

    assert groups(Choice()) == [(0, 256), (256, 256), (512, 88)]
    assert groups(Choice(1.0)) == [(0, 600)]


def test_targets_are_shifted_behind_the_first() -> None:
    def target(begins_with: int) -> Input:
        return Input("target", (Ragged("target"),), 9, begins_with=begins_with)

    np.testing.assert_array_equal(shifted(np.array([[5, 6, -1]]), target(2)), [[2, 5, 6]])
    packed = shifted([np.array([5, -1, 6]), np.array([7])], target(0))
    assert [each.tolist() for each in packed] == [[0, 5, 0], [0]]
    entry = Input("target", (Ragged("target"),), 9, 0)
    ends = up_to_their_ends([[4, 0, 0], [1, 2, 3]], entry, "y")
    assert [each.tolist() for each in ends] == [[4, 0], [1, 2, 3]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"temperature": -1.0}, "'temperature' of generate must be a number ≥ 0. Got -1.0"),
        ({"temperature": "hot"}, "'temperature' of generate must be a number ≥ 0. Got 'hot'"),
        ({"top_k": 0}, "'top_k' of generate must be a whole number ≥ 1. Got 0"),
        ({"top_k": 1.5}, "'top_k' of generate must be a whole number ≥ 1. Got 1.5"),
        ({"top_p": 0.0}, "'top_p' of generate must be above 0 and at most 1. Got 0.0"),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Model(undivided.parse(NEXT % "")).generate([1], 1, **given)


def test_classifiers_do_not_generate() -> None:
    model = Model(undivided.recipe("digits-attention"))
    with pytest.raises(ArgumentError, match="generate is for networks that score ids for each"):
        model.generate(np.zeros((1, 8, 8)))


def test_nothing_does_not_go_on() -> None:
    model = Model(undivided.parse(NEXT % ""))
    with pytest.raises(DataError, match=r"Got text: of a model of bytes list\(text.encode\(\)\)"):
        model.generate("once upon a time", 3)
    with pytest.raises(DataError, match=r"x\[1\] must hold at least one token to go on with"):
        model.generate([np.array([1]), np.array([], int)], 3)


def test_a_decoder_without_an_embedded_source_says_what_to_do() -> None:
    text = (
        "network N { input: (5, 8) layers: TransformerEncoder(2) TransformerDecoder(2) Dense(3) }"
    )
    with pytest.raises(undivided.ShapeError, match=r"declare input: \{ source: "):
        undivided.parse(text).plan()


@pytest.mark.parametrize(
    ("last", "loss"),
    [
        ("Dense(12)", "sparse_categorical_crossentropy"),
        ("GlobalAveragePooling1D() Dense(9)", "sparse_categorical_crossentropy"),
        ("Dense(9)", "categorical_crossentropy"),
        ("Dense(9)", "mse"),
    ],
)
def test_targets_that_a_decoder_could_not_be_given(last: str, loss: str) -> None:
    text = f"""network N {{
      input: (6)
      layers: Embedding(9, 16) TransformerEncoder(2) TransformerDecoder(2) {last}
      loss: "{loss}"
    }}"""
    with pytest.raises(undivided.ShapeError, match=r"score up to 9 of them, .*\n  3 \| .*Dense\("):
        undivided.parse(text).plan()


def test_ids_that_no_row_stands_for_are_not_generated() -> None:
    text = "network L { input: (8) layers: Embedding(7, 8) TransformerDecoder(2) Dense(40) }"
    with pytest.raises(ArgumentError, match=r"scores 40 ids, and its Embedding has 7: it could no"):
        Model(undivided.parse(text)).generate([1, 2, 3], 12)
    pair = "source: (6), target: (4)"
    text = text.replace("(8) ", f"{{ {pair} }} ", 1).replace("40", "7")
    both = text.replace("TransformerDecoder(2)", "TransformerEncoder(2) TransformerDecoder(2)")
    with pytest.raises(ArgumentError, match=r"given its targets as an input of their own"):
        Model(undivided.parse(both)).generate([1, 2, 3], 12)


def test_fewer_scores_than_ids_will_do() -> None:
    text = "network L { input: (8) layers: Embedding(7, 8) TransformerDecoder(2) Dense(40) }"
    fewer = Model(undivided.parse(text.replace("40", "5")))
    assert max(fewer.generate([1, 2, 3], 12, temperature=2.0)) < 5


@pytest.mark.parametrize("ignore", [-1, 9, 200])
@pytest.mark.parametrize("lengths", [(6, 6), (6, 3)])
def test_targets_that_do_not_count_are_no_ids(ignore: int, lengths: tuple[int, int]) -> None:
    """What follows them is learned as if the first id stood there."""
    network = undivided.parse(f"""network N {{
      input: (6)
      layers: Embedding(9, 16) TransformerEncoder(2) TransformerDecoder(2) Dense(9)
      loss: SparseCategoricalCrossentropy(ignore={ignore})
    }}""")
    x = np.arange(12).reshape(2, 6) % 9
    rows = [row[:n] for row, n in zip(x[:, ::-1].copy(), lengths, strict=True)]
    rows[0][2] = ignore
    y = np.stack(rows) if len(set(lengths)) == 1 else rows
    found = shifted(y, undivided.Model(network).plan.inputs[1])
    assert list(found[0]) == [0, *rows[0][:2], 0, *rows[0][3:-1]]
    losses = [
        undivided.Model(network, seed=1, engine=engine).fit((x, y), epochs=2)[-1].loss
        for engine in ("native", "reference")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_page_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[1] / "docs" / "sequences.md").read_text("utf-8")
    names: dict[str, object] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(compile(code, "sequences.md", "exec"), names)
    assert capsys.readouterr().out.startswith("[4 5 6 0 1 2 3 4]")
