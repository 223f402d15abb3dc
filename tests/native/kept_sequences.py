"""Networks that go on, and their scores from what is kept beside those from whole sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import undivided
from undivided import Model
from undivided.engines.engine import Several
from undivided.generation import going_on

__all__ = [
    "DECODERS",
    "IDS",
    "LAYERS",
    "SOURCES",
    "Compared",
    "compared",
    "language",
    "model_of",
    "translation",
]

IDS = 23

# What sees what, by options of a decoder; or the layers themselves.
DECODERS = {
    "sinusoidal positions": "",
    "rotary": "positions=rotary",
    "rotary, odd heads": "positions=rotary, key_dim=5",
    "alibi": "positions=alibi",
    "relative": "positions=relative",
    "window": "window=(5, 0)",
    "window, rotary": "window=(7, None), positions=rotary",
    "window, alibi": "window=3, positions=alibi",
    "pattern": "pattern=AnyOf { BlockLocal(8) GlobalTokens(2) }",
    "softcap": "softcap=2.0",
    "softcap, relative, window": "softcap=1.5, positions=relative, window=(9, 0)",
    "fewer key heads": "kv_heads=1",
    "post-norm, rms, gated": 'norm="post", norm_type="rms", gated=true, activation="silu"',
    "dropout": "dropout_rate=0.3",
}
LAYERS = {
    "no positions at all": "Embedding(23, 16) TransformerDecoder(2, dff=32) Dense(23)",
    "learned positions": "Embedding(23, 16) LearnedPositions() TransformerDecoder(2) Dense(23)",
    "positions after a linear layer": "Embedding(23, 16) Dense(24) SinusoidalPositions() "
    "TransformerDecoder(2) LayerNormalization() Dense(23)",
    "normalized heads": "Embedding(23, 16) Residual { LayerNormalization() "
    "MultiHeadAttention(2, causal=true, qk_norm=true, positions=rotary) } Dense(23)",
    "causal by its window": "Embedding(23, 16) MultiHeadAttention(2, window=(None, 0)) Dense(23)",
    "widths of values": "Embedding(23, 16) Residual { MultiHeadAttention(2, causal=true, "
    "value_dim=3) } Dense(23)",
    "one head, folded": "Embedding(23, 48) TransformerDecoder(1, dff=32) * 2 Dense(23)",
    "one head alone": "Embedding(23, 48) MultiHeadAttention(1, causal=true) Dense(23)",
    "tied": "Embedding(23, 16) TransformerDecoder(2) LayerNormalization() "
    "Dense(23, tied_to=embedding_1)",
    "a softmax of its own": "Embedding(23, 16) TransformerDecoder(2) Activation(softmax) Dense(23)",
    "no attention": "Embedding(23, 16) Dense(16, activation=gelu) Dense(23)",
}


def language(name: str, window: int = 40) -> undivided.Network:
    layers = LAYERS.get(name)
    if layers is None:
        options = f"2, dff=32, {DECODERS[name]}".removesuffix(", ")
        layers = f"Embedding({IDS}, 16) TransformerDecoder({options}) * 2 Dense({IDS})"
    none = "positions: none" if name == "no positions at all" else ""
    return undivided.parse(f"network Language {{ input: ({window}) {none} layers: {layers} }}")


SOURCES = {
    "source": "Embedding(11, 16) TransformerEncoder(2) TransformerDecoder(2) * 2 Dense(11)",
    "source with an end": "Embedding(11, 16, padding_id=0) TransformerEncoder(2, positions=alibi) "
    "TransformerDecoder(2, positions=rotary, kv_heads=1) * 2 Dense(11)",
    "one head, source": "Embedding(11, 48) TransformerEncoder(1) TransformerDecoder(1) Dense(11)",
}


def translation(name: str) -> undivided.Network:
    return undivided.parse(f"network Both {{ input: (9) layers: {SOURCES[name]} }}")


def model_of(network: undivided.Network, engine: str = "native", **given: Any) -> Model:
    """A model whose numbers are far from those that training starts from."""
    model = Model(network, seed=1, engine=engine, **given)  # type: ignore[arg-type]
    random = np.random.default_rng(0)
    for values in model.parameters.values():
        values[...] += random.normal(size=values.shape) * 0.3
    if model.plan.inputs[-1].begins_with is None:
        model._let_lengths_differ()
    return model


@dataclass
class Compared:
    """The scores of the last tokens, from what is kept and from whole sequences."""

    kept: list[np.ndarray]
    whole: list[np.ndarray]

    @property
    def same(self) -> bool:
        return all((a == b).all() for a, b in zip(self.kept, self.whole, strict=True))


def compared(model: Model, steps: int, window: int | None, long: int = 0) -> Compared:
    """Sequences of several lengths that go on by the same ids, whatever the model says."""
    random = np.random.default_rng(3)
    engine, source = model._engine, None
    if len(model.plan.inputs) > 1:
        lengths = (3, 9, 1, 5) if model.plan.inputs[0].padding_id is not None else (9,) * 4
        parts = [random.integers(1, 11, n) for n in lengths]
        source, _ = model._input(parts, model.plan.input, "x")
        seen, most = [np.array([0]) for _ in parts], 1 + steps
    else:
        seen = [random.integers(0, IDS, n) for n in (3, 17, 1, 44 + long)]
        most = window or 44 + long + steps
    kept = engine.begin(len(seen), most, source)
    assert kept is not None
    scores, found = going_on(kept), Compared([], [])
    for step in range(steps):
        which = [i for i in range(len(seen)) if i != 2 or step < 4]  # one is over early
        now = [seen[i][-(window or len(seen[i])) :] for i in which]
        found.kept += [rows[-1] for rows in scores(which, now)]
        x = now if source is None else Several([list(source)[i] for i in which], now)
        found.whole += [rows[-1] for rows in engine.predict(x)]
        for i in which:
            seen[i] = np.append(seen[i], random.integers(0, 11))
    return found
