"""What other systems call things, and what they are here.

None of this is part of the language: a name of Keras' or PyTorch's is refused like any other that
is unknown. This is what the error then says to do instead.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["advice", "other_name"]

_RECURRENT = (
    "Sequences are read by attention here: TransformerEncoder(num_heads=4), or "
    "TransformerDecoder(num_heads=4) where a token must not see what comes later"
)
_BATCH_NORM = (
    "LayerNormalization() normalizes each token alone, the same in training and prediction"
)
_POSITIONS = (
    "SinusoidalPositions() are fixed and LearnedPositions() trained; without either a network "
    "adds sinusoidal ones before its first encoder or decoder"
)
_AVERAGE = (
    "MaxPooling takes the largest of each window, Conv with strides learns what to take, and "
    "GlobalAveragePooling the mean of everything"
)
_LINEAR = "Dense(units) is a linear layer, which finds out the width of its input itself"
_RESIDUAL = "Residual { … } adds what goes in to what its layers give"
_OWN = "A layer of your own can do that: undivided.register, and --use on the command line"
_ADAM = "Adam() adapts its steps too"

_INSTEAD = {
    "linear": _LINEAR,
    "fullyconnected": _LINEAR,
    "fc": _LINEAR,
    **{
        name: f'Write Activation("{function}"), or activation="{function}" in the layer before it'
        for name, function in {
            "relu": "relu",
            "gelu": "gelu",
            "silu": "silu",
            "swish": "silu",
            "tanh": "tanh",
            "sigmoid": "sigmoid",
            "softmax": "softmax",
            "leakyrelu": "leaky_relu",
        }.items()
    },
    **dict.fromkeys(("lstm", "gru", "rnn", "simplernn", "bidirectional"), _RECURRENT),
    **dict.fromkeys(
        (
            "batchnormalization",
            "batchnorm",
            "batchnorm1d",
            "batchnorm2d",
            "groupnormalization",
            "groupnorm",
        ),
        _BATCH_NORM,
    ),
    **dict.fromkeys(
        (
            "positionalencoding",
            "positionencoding",
            "positionalembedding",
            "positionembedding",
            "sinusoidalpositionalencoding",
        ),
        _POSITIONS,
    ),
    "tokenandpositionembedding": "Write Embedding(input_dim, output_dim) LearnedPositions()",
    "patchembedding": "Patches(size) cuts a picture into tokens, and Dense(width) embeds them",
    "input": "The shape of one sample stands beside the layers: input: (28, 28)",
    "inputlayer": "The shape of one sample stands beside the layers: input: (28, 28)",
    "attention": "Self-attention is MultiHeadAttention(num_heads=1), or with more heads",
    "selfattention": "Self-attention is MultiHeadAttention(num_heads=1), or with more heads",
    "crossattention": "A TransformerDecoder behind encoders attends to what they made",
    "averagepooling1d": _AVERAGE,
    "averagepooling2d": _AVERAGE,
    "avgpool2d": _AVERAGE,
    "add": _RESIDUAL,
    "residualconnection": _RESIDUAL,
    "skipconnection": _RESIDUAL,
    "feedforward": 'Two linear layers: Residual { Dense(256, activation="gelu") Dense(64) }',
    "concatenate": _OWN,
    "lambda": _OWN,
    "hpo": "Values are fixed: try others with --set, as in --set layers.0.units=64",
    "training": "The section is called 'train'",
    "rmsprop": _ADAM,
    "adagrad": _ADAM,
    "nadam": _ADAM,
    "adamax": _ADAM,
    # arguments and entries
    "learningrate": "The optimizer has it: optimizer: Adam(learning_rate=0.001)",
    "lr": "The optimizer has it: optimizer: Adam(learning_rate=0.001)",
    "shuffle": "Samples are shuffled before every epoch",
    "callbacks": "Callbacks are Python's: model.fit(data, callbacks=[…])",
    "verbose": "What is printed is up to the command line: --quiet",
    "gpu": "It runs on the CPU",
    "cuda": "It runs on the CPU",
    "betas": "Write beta_1=0.9, beta_2=0.999",
    "weightdecay": "AdamW(weight_decay=0.01) has it",
    "maxlen": "How long a sample may be is said by the network's 'input'",
    "maxlength": "How long a sample may be is said by the network's 'input'",
    "causal": "TransformerDecoder is the one that sees nothing of what comes later",
    "usecausalmask": "TransformerDecoder is the one that sees nothing of what comes later",
    "infeatures": "A layer finds out the width of its input itself",
    "framework": "What computes is said by execution { engine: native }",
    "backend": "What computes is said by execution { engine: native }",
}
"""By a name without `_` in small letters: what to do instead, without the full stop."""

_NAMES = {
    "activation": ("function",),
    "lr": ("learning_rate",),
    "eps": ("epsilon",),
    "usebias": ("bias",),
    "monitor": ("metric",),
    "mindelta": ("least",),
    "p": ("rate",),
    "maxgradnorm": ("clip_norm",),
    "nhead": ("num_heads",),
    "heads": ("num_heads",),
    "dimfeedforward": ("dff",),
    "mlpdim": ("dff",),
    "embeddim": ("d_model",),
    "hiddensize": ("d_model", "units"),
    "vocabsize": ("input_dim",),
    "numembeddings": ("input_dim",),
    "embeddingdim": ("output_dim",),
    "outfeatures": ("units",),
    "outchannels": ("filters",),
    "paddingidx": ("padding_id",),
    "maskzero": ("padding_id",),
    "shape": ("target_shape",),
    # what an argument may be
    "swish": ("silu",),
    "gelunew": ("gelu_tanh",),
    "identity": ("linear",),
    "crossentropy": ("sparse_categorical_crossentropy",),
    "nll": ("sparse_categorical_crossentropy",),
    "bce": ("binary_crossentropy",),
    "l1": ("mae",),
    "l2": ("mse",),
    "smoothl1": ("huber",),
    "prenorm": ("pre",),
}
"""By a name of the same form: what it may be called here, where there is one of that name."""


def advice(name: str) -> str:
    """` Write Dense(units).` or whatever takes the place of a name from elsewhere, else ''."""
    instead = _INSTEAD.get(_folded(name))
    return f" {instead}." if instead else ""


def other_name(name: str, known: Collection[str]) -> str:
    """` It is called 'learning_rate' here.` where `known` has that under another name, else ''."""
    here = next((other for other in _NAMES.get(_folded(name), ()) if other in known), None)
    return f" It is called {here!r} here." if here else ""


def _folded(name: str) -> str:
    return name[:64].replace("_", "").replace("-", "").lower()
