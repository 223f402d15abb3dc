"""Weights taken over from elsewhere: what matches, what does not and why, and PyTorch's modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undivided
from undivided import SGD, Dense, Group, Model, MultiHeadAttention, Network
from undivided.errors import ArgumentError, ModelFileError
from undivided.layers import LayerNormalization, Repeat, TransformerEncoder


def network(last: int = 3) -> Network:
    return Network(input=(4,), layers=(Dense(5, name="body"), Dense(last, name="head")))


def test_another_head_on_the_same_body(tmp_path: Path) -> None:
    trained = Model(network(), seed=1)
    trained.save(tmp_path / "trained.safetensors")
    model = Model(network(last=7), seed=2)
    head = model.parameters["head.weight"].copy()
    report = model.load_weights(tmp_path / "trained.safetensors")
    assert report.matched == {"body.weight": "body.weight", "body.bias": "body.bias"}
    assert str(report) == (
        "2 of 4 parameters were loaded.\n"
        "  head.weight stays as it was: 'head.weight' has the shape (5, 3), and it (5, 7).\n"
        "  head.bias stays as it was: 'head.bias' has the shape (3,), and it (7,).\n"
        "Not used: head.bias, head.weight."
    )
    np.testing.assert_array_equal(
        model.parameters["body.weight"], trained.parameters["body.weight"]
    )
    np.testing.assert_array_equal(model.parameters["head.weight"], head)


def test_names_that_differ() -> None:
    arrays = {
        "features.0.weight": np.ones((4, 5)),
        "features.0.bias": np.ones(5),
        "out": np.ones((5, 3)),
        "nan": np.full(3, np.nan),
    }
    match = {"body.*": "features.0.*", "head.weight": "out", "head.bias": "nan"}
    model = Model(network())
    report = model.load_weights(arrays, match=match)
    assert report.matched == {
        "body.weight": "features.0.weight",
        "body.bias": "features.0.bias",
        "head.weight": "out",
    }
    assert "'nan' holds float64 that are not all finite as float32" in report.unmatched["head.bias"]
    report = model.load_weights(arrays, match=lambda name: "out" if name == "head.weight" else None)
    assert list(report.matched) == ["head.weight"]
    assert report.unmatched["body.bias"] == "match has no name for it."
    assert report.unused == ("features.0.weight", "features.0.bias", "nan")
    assert model.load_weights({}).unmatched["body.bias"] == "there is no tensor 'body.bias'."


def test_half_of_a_float_is_read_from_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    save = pytest.importorskip("safetensors.torch").save_file
    weights = torch.arange(20, dtype=torch.float32).reshape(4, 5) / 7
    for kind in (torch.bfloat16, torch.float16, torch.float64):
        save({"body.weight": weights.to(kind)}, tmp_path / "half")
        model = Model(network())
        assert list(model.load_weights(tmp_path / "half").matched) == ["body.weight"]
        expected = weights.to(kind).float().numpy()
        np.testing.assert_array_equal(model.parameters["body.weight"], expected)
    save({"body.weight": weights.to(torch.float8_e4m3fn)}, tmp_path / "quarter")
    with pytest.raises(
        ModelFileError, match=r"'body\.weight' is of the type F8_E4M3, which is not"
    ):
        Model(network()).load_weights(tmp_path / "quarter")


def test_numbers_that_do_not_fit_stay_out() -> None:
    model = Model(network())
    before = model.parameters["body.bias"].copy()
    report = model.load_weights({"body.bias": np.full(5, 1e300), "head.bias": np.ones(3, bool)})
    assert "'body.bias' holds float64 that are not all finite as" in report.unmatched["body.bias"]
    assert "'head.bias' holds bool, which are no numbers" in report.unmatched["head.bias"]
    np.testing.assert_array_equal(model.parameters["body.bias"], before)


def test_what_cannot_be_matched_at_all() -> None:
    model = Model(network())
    with pytest.raises(
        ArgumentError, match=r"'bodi\.\*' in the 'match' .*none of a parameter here"
    ):
        model.load_weights({}, match={"bodi.*": "features.*"})
    with pytest.raises(
        ArgumentError, match=r"'match' of load_weights must be a mapping .* Got 3\."
    ):
        model.load_weights({}, match=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"'source' of load_weights must be .* Got NoneType\."):
        model.load_weights(None)  # type: ignore[arg-type]


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"none: there is no such file"):
        Model(network()).load_weights(tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"no tensors")
    with pytest.raises(ModelFileError, match=r"bad: expected a whole safetensors file, found"):
        Model(network()).load_weights(tmp_path / "bad")


def test_fine_tuning_with_a_frozen_body() -> None:
    frozen = Group("body.*", frozen=True)
    net = Network(
        input=(4,),
        layers=(Dense(5, name="body"), Dense(3, name="head")),
        optimizer=SGD(0.1, groups=(frozen,)),
    )
    model = Model(net)
    body = np.ones((4, 5), np.float32)
    model.load_weights({"body.weight": body})
    x = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    before = model.parameters["head.weight"].copy()
    model.fit((x, np.arange(40) % 3), epochs=2)
    np.testing.assert_array_equal(model.parameters["body.weight"], body)
    assert not np.array_equal(model.parameters["head.weight"], before)


def test_multi_head_attention_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    torch.nn.init.normal_(module.in_proj_bias)
    net = Network(input=(5, 8), layers=(MultiHeadAttention(2),), loss="mse")  # type: ignore[arg-type]
    model = Model(net)
    report = model.load_weights(undivided.from_torch(module.state_dict(), "attention_1"))
    assert not report.unmatched and not report.unused
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)
    tensor = torch.tensor(x)
    expected = module(tensor, tensor, tensor)[0].detach().numpy()
    np.testing.assert_allclose(model.predict(x), expected, atol=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_encoder_layer_of_pytorch(norm: Any) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm == "pre"
    )
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    encoder = TransformerEncoder(2, 8, 16, norm=norm, activation="gelu")
    net = Network(input=(5, 8), layers=(encoder,), loss="mse", positions="none")  # type: ignore[arg-type]
    model = Model(net)
    report = model.load_weights(undivided.from_torch(module.state_dict(), "encoder_1"))
    assert not report.unmatched and not report.unused
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)
    expected = module(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(model.predict(x), expected, atol=2e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("final", [True, False])
def test_encoder_of_pytorch(norm: Any, bias: bool, final: bool) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 16, dropout=0.0, norm_first=norm == "pre", bias=bias
    )
    closing = torch.nn.LayerNorm(8, bias=bias) if final else None
    module = torch.nn.TransformerEncoder(layer, 3, norm=closing, enable_nested_tensor=False)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    encoder = Repeat(TransformerEncoder(2, 8, 16, norm=norm, bias=bias), 3)
    layers = (encoder, LayerNormalization()) if final else (encoder,)
    net = Network(input=(5, 8), layers=layers, loss="mse", positions="none")  # type: ignore[arg-type]
    model = Model(net)
    report = model.load_weights(undivided.from_torch(module, "encoder_1"))
    assert not report.unmatched and not report.unused
    x = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)
    expected = module(torch.tensor(x).transpose(0, 1)).transpose(0, 1).detach().numpy()
    np.testing.assert_allclose(model.predict(x), expected, atol=5e-5)


def test_encoder_and_decoder_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Transformer(8, 2, 1, 2, 16, dropout=0.0, batch_first=True)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    net = undivided.parse("""network N {
      input: { source: (5, 8), target: (4, 8) }
      layers:
        TransformerEncoder(2, 8, 16, norm=post)
        LayerNormalization()
        TransformerDecoder(2, 8, 16, norm=post) * 2
        LayerNormalization()
      loss: "mse"
      positions: none
    }""")
    model = Model(net)
    assert not model.load_weights(
        undivided.from_torch(module.encoder, "encoder_1")
        | undivided.from_torch(module.decoder, "decoder_1", norm="normalization_2")
    ).unmatched
    random = np.random.default_rng(0)
    source, target = (random.normal(size=(3, n, 8)).astype(np.float32) for n in (5, 4))
    mask = module.generate_square_subsequent_mask(4)
    expected = module(torch.tensor(source), torch.tensor(target), tgt_mask=mask)
    np.testing.assert_allclose(model.predict((source, target)), expected.detach(), atol=5e-5)
    with pytest.raises(ArgumentError, match=r"Got encoder\.layers\.0\.self_attn"):
        undivided.from_torch(module, "encoder_1")


def test_attention_of_other_widths_goes_by_projection() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.MultiheadAttention(8, 2, kdim=6, vdim=7)
    found = undivided.from_torch(module, "decoder_1.cross")
    shapes = {role: found[f"decoder_1.cross.{role}.weight"].shape for role in ("key", "value")}
    assert shapes == {"key": (6, 8), "value": (7, 8)}
    report = Model(Network(input=(5, 8), layers=(MultiHeadAttention(2),))).load_weights(
        undivided.from_torch(module, "attention_1")
    )
    assert "(6, 8), and it (8, 8)" in report.unmatched["attention_1.key.weight"]


def test_layers_with_names_count_on() -> None:
    state = torch_encoder_state(3)
    found = undivided.from_torch(state, "body", norm="last")
    assert {name.split(".")[0] for name in found} == {"body", "body_2", "body_3"}
    found = undivided.from_torch(state, "encoder_4")
    assert {name.split(".")[0] for name in found} == {"encoder_4", "encoder_5", "encoder_6"}


def torch_encoder_state(layers: int) -> dict[str, np.ndarray]:
    parts = {"self_attn.in_proj_weight": (12, 4), "self_attn.out_proj.weight": (4, 4)}
    parts |= {"linear1.weight": (6, 4), "linear2.weight": (4, 6)}
    return {
        f"layers.{n}.{part}": np.ones(shape) for n in range(layers) for part, shape in parts.items()
    }


def test_half_precision_is_read() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.MultiheadAttention(4, 2).to(torch.bfloat16)
    found = undivided.from_torch(module, "attention_1")
    expected = module.out_proj.weight.float().detach().numpy().T
    np.testing.assert_array_equal(found["attention_1.output.weight"], expected)


def test_other_states_are_refused() -> None:
    expects = r"expects the state_dict of an nn.MultiheadAttention"
    state = torch_encoder_state(1)
    for wrong in (
        {"weight": np.ones(3)},
        {},
        None,
        {"in_proj_weight": np.ones((7, 4))},
        {"in_proj_weight": np.ones((12, 4))},
        {name: values for name, values in state.items() if "linear2" not in name},
    ):
        with pytest.raises(ArgumentError, match=expects):
            undivided.from_torch(wrong, "attention_1")
    with pytest.raises(ArgumentError, match=r"no place for layers\.0\.self_attn\.bias_k"):
        undivided.from_torch(state | {"layers.0.self_attn.bias_k": np.ones(4)}, "encoder_1")


def test_attention_to_more_than_its_keys_is_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ArgumentError, match=r"no place for bias_k, bias_v"):
        undivided.from_torch(torch.nn.MultiheadAttention(4, 2, add_bias_kv=True), "attention_1")
    with pytest.raises(ArgumentError, match=r"with add_zero_attn=True"):
        undivided.from_torch(torch.nn.MultiheadAttention(4, 2, add_zero_attn=True), "attention_1")
