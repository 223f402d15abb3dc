"""The printed text: what stands in it, what it is called, what is refused, how it is written."""

from __future__ import annotations

import os
import re
import stat

import numpy as np
import pytest
from c_programs import NETWORKS, RECIPES, exported, models
from hypothesis import given
from hypothesis import strategies as st

import undivided
from undivided.errors import ArgumentError, DataError, ExportError, ModelFileError
from undivided.export.calls import FOLDER, PRIMITIVES, number
from undivided.export.names import Names, in_comment, is_identifier


def text_of(model: undivided.Model, folder, name: str = "undivided") -> str:
    exported(model, folder, name=name)
    return (folder / f"{name}.c").read_text()


def test_a_person_reads_layers_shapes_and_calls_in_order(tmp_path):
    (model,) = models(["digits-attention"])
    text = text_of(model, tmp_path)
    assert text.startswith("/* DigitsAttention: (8, 8) -> (10,). Printed by undivided ")
    assert " * attention_1      MultiHeadAttention      (16, 32)    4,224\n" in text
    order = [
        "/* dense_1, Dense: (16, 4) -> (16, 32) */",
        "linear(patches_1, dense_1_weight, dense_1_bias, 16, 4, 32, dense_1);",
        "/* attention_1, MultiHeadAttention, heads: (16, 32), (16, 32), (16, 32) -> (16, 32) */",
        "activate(gelu, dense_2, 1024, dense_2_gelu);",
        "add(residual_1, dense_3, 512, residual_2);",
        "linear(pooling_1, output_1_weight, output_1_bias, 1, 32, 10, logits);\n}",
        "static const float dense_1_weight[128] = {",
    ]
    places = [text.index(line) for line in order]
    assert places == sorted(places)
    assert max(map(len, text.splitlines())) <= 100
    assert text.isascii()


def test_only_what_is_used_is_printed(tmp_path):
    (model,) = models(["smallest"])
    text = text_of(model, tmp_path)
    assert re.findall(r"^static float (\w+)\(|^static void (\w+)\(", text, re.M) == [
        ("dot", ""),
        ("", "linear"),
    ]
    assert "#include <" not in text and "arena[" not in text


def test_every_primitive_is_a_small_function_that_something_uses():
    sources = {path.stem: path.read_text("ascii") for path in FOLDER.glob("*.c")}
    for name, source in sources.items():
        assert source.startswith("/* "), name
        assert re.search(rf"^static (void|float) {name}\(", source, re.M), name
        assert len(source.splitlines()) <= 45, name
        assert max(map(len, source.splitlines())) <= 100, name
        assert not re.search(
            r"\b(malloc|expf?|tanhf?|erff?|powf?|memcpy|double)\b *\(?",
            (re.sub(r"/\*.*?\*/", "", source, flags=re.S)),
        ), name
    assert set(PRIMITIVES) - set(sources) == {"activation", "dropout", "learned", "reshape"}


def test_the_only_state_is_the_arena(tmp_path):
    (model,) = models(["everything"])
    text = text_of(model, tmp_path)
    outside = re.sub(
        r"^(static void|static float|void) \w+\([^;]*?^\{.*?^\}", "", text, flags=re.M | re.S
    )
    state = [line for line in re.findall(r"^static .*", outside, re.M) if " const " not in line]
    assert state == [f"static float arena[{exported(model, tmp_path).arena_bytes // 4}];"]


def test_the_header_says_sizes(tmp_path):
    (model,) = models(["mnist-attention"])
    written = exported(model, tmp_path, name="digits")
    header = (tmp_path / "digits.h").read_text()
    assert "#define DIGITS_INPUTS 784 " in header and "#define DIGITS_LOGITS 10 " in header
    assert f"#define DIGITS_ARENA_BYTES {written.arena_bytes} " in header
    assert f"#define DIGITS_WEIGHT_BYTES {3114 * 4} " in header
    assert "void digits_predict(const float *input, float *logits);" in header
    assert written.weight_bytes == 3114 * 4
    assert [file.name for file in written.files] == ["digits.h", "digits.c"]


def test_fixed_tables_count_as_weights(tmp_path):
    (model,) = models(["everything"])
    written = exported(model, tmp_path)
    assert written.weight_bytes == 4 * (model.plan.parameter_count + 12 * 12)


def test_the_same_model_is_the_same_text(tmp_path):
    (model,) = models(["everything"])
    assert text_of(model, tmp_path / "a") == text_of(model, tmp_path / "b")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_numbers_are_read_back_as_they_were(value):
    text = number(value)
    assert re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?f", text)
    assert re.search(r"[.e]", text)
    back = np.float32(text[:-1])
    assert back == np.float32(value) and np.signbit(back) == np.signbit(np.float32(value))


@given(st.lists(st.text(max_size=80)))
def test_every_name_gets_an_identifier_of_its_own(given_names):
    names = Names({"linear"})
    found = {name: names[name] for name in given_names}
    assert len(set(found.values())) == len(found)
    assert all(is_identifier(each) and each not in ("linear", "int") for each in found.values())


@given(st.text())
def test_no_name_ends_a_comment(name):
    text = in_comment(name)
    assert text.isascii() and text.isprintable()
    assert not any(sign in text for sign in ("*/", "/*", "??"))


# What is refused.


def test_a_length_of_its_own_is_refused(tmp_path):
    text = "network R { input: (None, 8) layers: GlobalAveragePooling1D Output(3) }"
    model = undivided.Model(undivided.parse(text), engine="reference")
    with pytest.raises(ExportError) as refused:
        exported(model, tmp_path)
    assert str(refused.value) == (
        "A C file is for samples of one fixed size; the input of R is (None, 8). "
        "Give it a length, such as input: (64, …)."
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        (
            "Embedding(5, 4, padding_id=0) GlobalAveragePooling1D() Output(2)",
            "A C file is for samples of one fixed size; those of N are as long as they have tokens "
            "other than the padding 0. Train it without padding.",
        ),
        (
            "Embedding(5, 4) TransformerEncoder(2) TransformerDecoder(2) Output(5)",
            "A C file takes one input; N has 2: input, target. Run the model in Python.",
        ),
    ],
)
def test_inputs_that_c_does_not_take_are_refused(tmp_path, layers, reason):
    network = undivided.parse(f"network N {{ input: (6) layers: {layers} }}")
    with pytest.raises(ExportError) as refused:
        exported(undivided.Model(network, engine="reference"), tmp_path)
    assert str(refused.value) == reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "fold"}, "there is no C function for its fold yet"),
        (
            {"attributes": {"heads": 1, "scale": 1.0, "skew": 3}},
            "its attention has 'skew', which the C function does not know yet",
        ),
    ],
)
def test_what_c_cannot_say_is_refused_by_layer_and_reason(tmp_path, change, reason):
    import dataclasses

    (model,) = models(["mnist-attention"])
    operations = tuple(
        dataclasses.replace(op, **change) if op.kind == "attention" else op
        for op in model.plan.operations
    )
    model.plan = dataclasses.replace(model.plan, operations=operations)
    with pytest.raises(ExportError) as refused:
        exported(model, tmp_path)
    assert str(refused.value) == (
        f"The layer 'attention_1' cannot be exported to C: {reason}. "
        "Leave it out, or run the model in Python."
    )


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    (model,) = models(["smallest"])
    model.parameters["output_1.bias"][0] = np.nan
    with pytest.raises(ExportError, match=r"'output_1\.bias' holds a number that is not finite"):
        exported(model, tmp_path)


@pytest.mark.parametrize("name", ["", "2f", "a-b", "a b", "_a", "a__b", "é", "../up", 3, "x" * 64])
def test_a_name_that_c_does_not_take_is_refused(tmp_path, name):
    (model,) = models(["smallest"])
    with pytest.raises(ArgumentError, match="must be letters, digits and single _"):
        exported(model, tmp_path, name=name)


def test_samples_of_another_shape_are_refused(tmp_path):
    (model,) = models(["smallest"])
    with pytest.raises(DataError, match="check must have the shape"):
        exported(model, tmp_path, check=np.zeros((2, 4)))
    with pytest.raises(DataError, match="at least one sample"):
        exported(model, tmp_path, check=np.zeros((0, 3)))


# How it is written.


def test_the_folder_is_made_and_files_are_replaced_whole(tmp_path, monkeypatch):
    (model,) = models(["smallest"])
    folder = tmp_path / "a" / "b"
    exported(model, folder)
    before = (folder / "undivided.c").read_text()
    assert sorted(os.listdir(folder)) == ["undivided.c", "undivided.h"]
    model.parameters["output_1.bias"][0] = 7.5

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelFileError, match="No space left"):
        exported(model, folder)
    assert (folder / "undivided.c").read_text() == before
    assert sorted(os.listdir(folder)) == ["undivided.c", "undivided.h"]


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (model,) = models(["smallest"])
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match=r"cannot be made: .* Name another"):
        exported(model, tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path):
    (model,) = models(["smallest"])
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(ModelFileError, match="cannot be written"):
        exported(model, tmp_path)


def test_networks_of_these_tests_print(tmp_path):
    for model in models([*NETWORKS, *RECIPES]):
        assert "_predict(const float *input" in text_of(model, tmp_path)


@pytest.mark.parametrize("name", undivided.recipes())
def test_every_recipe_prints_or_is_refused_with_a_reason(tmp_path, name):
    (model,) = models([name])
    try:
        assert "_predict(const float *input" in text_of(model, tmp_path)
    except ExportError as refused:
        assert re.search(
            r"cannot be exported to C: .*\.|for samples of one fixed size|takes one input",
            str(refused),
        )
