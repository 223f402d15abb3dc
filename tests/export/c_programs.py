"""Exported programs, compiled and run: on this machine and on emulated ones."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import undivided
from undivided.export import Exported

__all__ = ["RECIPES", "STRICT", "Program", "exported", "models", "need", "trained_like"]

RECIPES = [
    *("digits-attention", "mnist-attention", "mnist-attention-64"),
    *("mnist-vit", "mnist-mlp", "iris-attention", "max-row", "max-row-solved"),
]
"""The recipes that are compiled and compared; any other must print, or be refused."""

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")

RUNNER = """
#include "undivided.h"
#include <stdio.h>

int main(void)
{
    float input[UNDIVIDED_INPUTS], logits[UNDIVIDED_LOGITS];
    while (fread(input, sizeof input, 1, stdin) == 1) {
        undivided_predict(input, logits);
        fwrite(logits, sizeof logits, 1, stdout);
    }
    return 0;
}
"""


def need(*tools: str) -> None:
    """Skip where a compiler or emulator is not installed, and say which."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


class Program:
    """An exported model, compiled to read samples and write scores."""

    def __init__(self, folder: Path, compiler: str = "gcc", *flags: str) -> None:
        need(compiler)
        (folder / "runner.c").write_text(RUNNER)
        self.path = folder / "_".join(["run", compiler, *flags]).replace("/", "")[:100]
        sources = [str(folder / "undivided.c"), str(folder / "runner.c")]
        command = [compiler, *STRICT, "-Wshadow", *flags, *sources, "-lm", "-o", str(self.path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if "cannot find" in done.stderr and "libclang_rt" in done.stderr:
            pytest.skip("clang's sanitizers are not installed")
        assert done.returncode == 0, done.stderr

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """[N, classes]: what the program answers."""
        samples = np.ascontiguousarray(x, np.float32)
        done = subprocess.run([str(self.path)], input=samples.tobytes(), capture_output=True)
        assert done.returncode == 0 and not done.stderr, done.stderr.decode()
        return np.frombuffer(done.stdout, np.float32).reshape(len(x), -1)


def exported(model: undivided.Model, folder: Path, **given: object) -> Exported:
    return undivided.export.c(model, folder, **given)  # type: ignore[arg-type]


def trained_like(network: undivided.Network, seed: int = 1) -> undivided.Model:
    """A model whose biases and gains are not the zeros and ones that they start from."""
    model = undivided.Model(network, seed=seed, engine="reference")
    rng = np.random.default_rng(seed)
    for name, values in model.parameters.items():
        model.parameters[name] = values + 0.1 * rng.standard_normal(values.shape)
    return model


def samples_for(model: undivided.Model, count: int, seed: int = 0) -> np.ndarray:
    """Ids where the network takes ids, bytes where it begins by rescaling, all as floats; else
    numbers around zero."""
    shape = [n for n in model.plan.input.shape if isinstance(n, int)]
    rng = np.random.default_rng(seed)
    if model.plan.input.vocabulary is not None:
        return rng.integers(0, model.plan.input.vocabulary, (count, *shape)).astype(np.float32)
    if model.plan.operations[0].kind == "rescale":
        return rng.integers(0, 256, (count, *shape)).astype(np.float32)
    return rng.standard_normal((count, *shape)).astype(np.float32)


NETWORKS = {
    "everything": """network Everything { input: (6, 4, 3) layers:
        Rescaling(1/128, -1.0) Patches((2, 1)) Dense(12, activation="gelu") SinusoidalPositions()
        LearnedPositions() Residual { LayerNormalization() MultiHeadAttention(num_heads=3) }
        Residual { Dense(20, activation="relu", bias=false) Dense(12) }
        MultiHeadAttention(2, key_dim=5, bias=false, output_projection=false)
        Flatten() Dense(9) Activation("gelu") Output(4) }""",
    "gated": """network Gated { input: (5, 8) layers:
        RMSNormalization() GatedFeedForward(12) Activation("softmax") Dense(8, activation="tanh")
        GatedFeedForward(6, activation="gelu_tanh") Dense(7, activation="sigmoid")
        Dense(6, activation="leaky_relu") GlobalAveragePooling1D() Output(3) }""",
    "words": """network Words { input: (12) layers:
        Embedding(20, 8, name="words") Dropout(0.5) LearnedPositions()
        MultiHeadAttention(4, kv_heads=2, causal=true, positions="rotary", window=(5, 5))
        MultiHeadAttention(2, positions="alibi", softcap=1.5)
        Residual { RMSNormalization() MultiHeadAttention(2, positions="relative", causal=true) }
        MultiHeadAttention(2, key_dim=3, value_dim=5, positions="rotary",
            pattern=AnyOf { Strided(3) GlobalTokens(1) })
        TransformerEncoder(2, dff=12) GlobalAveragePooling1D() Output(20, tied_to="words") }""",
    "linear": """network Linear { input: (11, 8) layers: SinusoidalPositions()
        MultiHeadAttention(4, kv_heads=2, linear=true, causal=true)
        MultiHeadAttention(2, key_dim=3, value_dim=5, linear=true, positions="rotary")
        TransformerEncoder(2, dff=12, linear=true) Output(3) }""",
    "decoder": """network Decoder { input: (9) layers: Embedding(16, 8)
        TransformerDecoder(2, dff=12, activation="gelu") * 2 LayerNormalization() Output(16) }""",
    "tokens": """network Tokens { input: (7, 6) layers:
        MultiHeadAttention(2, causal=true, window=2) MultiHeadAttention(3, pattern=BlockLocal(3))
        Output(2) }""",
    "tokens, linear": """network Tokens { input: (7, 6) layers:
        MultiHeadAttention(2, causal=true, linear=true)
        MultiHeadAttention(3, kv_heads=1, causal=true, linear=true) Output(2) }""",
    "pictures": """network Pictures { input: (9, 7, 2) layers:
        Conv2D(4, 3, strides=2, padding="same", activation="relu") MaxPooling2D(2, padding="same")
        Conv2D(6, (2, 1)) Permute((3, 1, 2)) Reshape((6, -1)) Conv1D(5, 3, padding="same")
        MaxPooling1D(2, strides=1) ClassToken(range=0.5) MultiHeadAttention(1)
        Residual { Conv1D(5, 1) AttentionPooling() Reshape((1, 5)) Permute((2, 1)) Reshape((1, 5))
            ClassToken() ClassToken() ClassToken() ClassToken() ClassToken() } TokenAt(-2)
        Output(3) }""",
    "largest": "network L { input: (4, 4, 3) layers: Conv2D(5, 2) GlobalMaxPooling2D() Output(2) }",
    "smallest": "network Smallest { input: (3) layers: Output(2) }",
    "flat": """network Flat { input: (3, 4) layers: Dense(4) Dropout(0.1) Flatten() Dropout(0.5)
        Flatten() Dense(5, activation="relu") Output(2) }""",
    "passed_on": "network PassedOn { input: (2, 3) layers: Flatten() }",
    "last_in_place": "network L { input: (5) layers: Residual { Dense(5) Activation('relu') } }",
}


def models(names: Sequence[str]) -> list[undivided.Model]:
    """By the name of a recipe, or of one of the networks above."""
    return [
        trained_like(
            undivided.parse(NETWORKS[name].replace("'", '"'))
            if name in NETWORKS
            else undivided.recipe(name)
        )
        for name in names
    ]
