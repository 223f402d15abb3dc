"""Encoders and decoders beside PyTorch's own, with the same weights."""

from __future__ import annotations

import numpy as np
import pytest

import undivided
from undivided import Model, Network
from undivided.layers import GlobalAveragePooling1D, Output, TransformerDecoder, TransformerEncoder
from undivided.network import Inputs

torch = pytest.importorskip("torch")

WIDTH, HEADS, INSIDE = 12, 3, 20


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array, np.float64))


def filled(model: Model) -> Model:
    random = np.random.default_rng(2)
    for name, values in model.parameters.items():
        model.parameters[name] = random.normal(scale=0.4, size=values.shape) + name.endswith("gain")
    return model


def copy_attention(theirs: torch.nn.MultiheadAttention, model: Model, name: str) -> None:
    ours = model.parameters
    parts = [f"{name}.{role}" for role in ("query", "key", "value")]
    theirs.in_proj_weight.data = torch.cat([tensor(ours[f"{p}.weight"]).T for p in parts])
    theirs.in_proj_bias.data = torch.cat([tensor(ours[f"{p}.bias"]) for p in parts])
    copy_linear(theirs.out_proj, model, f"{name}.output")


def copy_linear(theirs: torch.nn.Linear, model: Model, name: str) -> None:
    theirs.weight.data = tensor(model.parameters[f"{name}.weight"]).T.contiguous()
    theirs.bias.data = tensor(model.parameters[f"{name}.bias"])


def copy_norm(theirs: torch.nn.LayerNorm, model: Model, name: str) -> None:
    theirs.weight.data = tensor(model.parameters[f"{name}.gain"])
    theirs.bias.data = tensor(model.parameters[f"{name}.shift"])


def arguments(norm: str, activation: str) -> dict[str, object]:
    return {
        "d_model": WIDTH,
        "nhead": HEADS,
        "dim_feedforward": INSIDE,
        "dropout": 0.0,
        "activation": activation,
        "norm_first": norm == "pre",
        "batch_first": True,
        "dtype": torch.float64,
    }


def encoder_of(model: Model, norm: str, activation: str) -> torch.nn.Module:
    theirs = torch.nn.TransformerEncoderLayer(**arguments(norm, activation))
    copy_attention(theirs.self_attn, model, "encoder_1.attention")
    copy_linear(theirs.linear1, model, "encoder_1.feed_in")
    copy_linear(theirs.linear2, model, "encoder_1.feed_out")
    copy_norm(theirs.norm1, model, "encoder_1.attention_norm")
    copy_norm(theirs.norm2, model, "encoder_1.feed_norm")
    return theirs


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_with_padding(norm: str, activation: str) -> None:
    encoder = TransformerEncoder(HEADS, dff=INSIDE, norm=norm, activation=activation)
    network = Network(
        input=(7, WIDTH),
        layers=(encoder, GlobalAveragePooling1D(), Output(3)),
        positions="none",
    )
    model = filled(Model(network, engine="reference", dtype="float64"))
    theirs = encoder_of(model, norm, activation)
    head = torch.nn.Linear(WIDTH, 3, dtype=torch.float64)
    copy_linear(head, model, "output_1")
    x = np.random.default_rng(0).normal(size=(4, 7, WIDTH))
    lengths, y = np.array([7, 3, 1, 5]), np.array([0, 1, 2, 0])
    padding = torch.from_numpy(np.arange(7) >= lengths[:, None])
    inside = theirs(tensor(x), src_key_padding_mask=padding)
    real = (~padding)[..., None].double()
    scores = head((inside * real).sum(dim=1) / real.sum(dim=1))
    np.testing.assert_allclose(
        model.logits(x, lengths=lengths), scores.detach().numpy(), rtol=1e-9, atol=1e-10
    )
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(y))
    loss.backward()
    samples = [sample[:length] for sample, length in zip(x, lengths, strict=True)]
    ours, gradients = model.loss_and_gradients(samples, y)
    assert ours == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose(
        gradients["encoder_1.feed_in.weight"], theirs.linear1.weight.grad.numpy().T, atol=1e-12
    )
    query = theirs.self_attn.in_proj_weight.grad.numpy()[:WIDTH].T
    np.testing.assert_allclose(gradients["encoder_1.attention.query.weight"], query, atol=1e-12)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_decoder_that_looks_at_an_encoder(norm: str) -> None:
    layers = (
        TransformerEncoder(HEADS, dff=INSIDE, norm=norm),
        TransformerDecoder(HEADS, dff=INSIDE, norm=norm),
        Output(4),
    )
    network = Network(input=Inputs((6, WIDTH), (4, WIDTH)), layers=layers, positions="none")
    model = filled(Model(network, engine="reference", dtype="float64"))
    encoder = encoder_of(model, norm, "relu")
    decoder = torch.nn.TransformerDecoderLayer(**arguments(norm, "relu"))
    copy_attention(decoder.self_attn, model, "decoder_1.attention")
    copy_attention(decoder.multihead_attn, model, "decoder_1.cross")
    copy_linear(decoder.linear1, model, "decoder_1.feed_in")
    copy_linear(decoder.linear2, model, "decoder_1.feed_out")
    for theirs, ours in (("norm1", "attention"), ("norm2", "cross"), ("norm3", "feed")):
        copy_norm(getattr(decoder, theirs), model, f"decoder_1.{ours}_norm")
    head = torch.nn.Linear(WIDTH, 4, dtype=torch.float64)
    copy_linear(head, model, "output_1")
    random = np.random.default_rng(0)
    source, target = random.normal(size=(3, 6, WIDTH)), random.normal(size=(3, 4, WIDTH))
    causal = torch.triu(torch.ones(4, 4, dtype=torch.bool), diagonal=1)
    scores = head(decoder(tensor(target), encoder(tensor(source)), tgt_mask=causal))
    np.testing.assert_allclose(
        model.logits((source, target)), scores.detach().numpy(), rtol=1e-9, atol=1e-10
    )


def test_native_says_the_same() -> None:
    network = undivided.parse("""network N {
      input: (9, 12)
      layers: TransformerEncoder(3, norm=post) GlobalAveragePooling1D() Output(3)
      positions: none
    }""")
    exact = filled(Model(network, engine="reference", dtype="float64"))
    native = filled(Model(network))
    x = np.random.default_rng(0).normal(size=(4, 9, WIDTH))
    np.testing.assert_allclose(native.logits(x), exact.logits(x), rtol=1e-4, atol=1e-5)
