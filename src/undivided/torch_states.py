"""What PyTorch's attention modules hold, under the names that it has here.

PyTorch's weights are [out, in], ours [in, out]; its three projections lie in one tensor where the
widths of queries, keys and values are the same. What is not known is refused: a tensor that is
passed over would be a module that computes something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from undivided.errors import ArgumentError

__all__ = ["array_of", "from_torch"]

Arrays = dict[str, np.ndarray]

_ROLES = {"query": "q", "key": "k", "value": "v"}
_ENCODER_NORMS = {"norm1": "attention_norm", "norm2": "feed_norm"}
_DECODER_NORMS = {"norm1": "attention_norm", "norm2": "cross_norm", "norm3": "feed_norm"}


def from_torch(
    state: Mapping[str, Any] | Any, layer: str, *, norm: str = "normalization_1"
) -> Arrays:
    """What a module of PyTorch's holds, or its state_dict, under the names of a layer here.

        model.load_weights(undivided.from_torch(module, "encoder_1"))

    | module | `layer` |
    |---|---|
    | nn.MultiheadAttention | the name of a MultiHeadAttention |
    | nn.TransformerEncoderLayer | of a TransformerEncoder |
    | nn.TransformerDecoderLayer | of a TransformerDecoder behind encoders |
    | nn.TransformerEncoder, nn.TransformerDecoder | of the first of several; the others count on: encoder_2, … |

    `norm` is the LayerNormalization that takes the norm at the end of several. Normalisations
    without a bias (bias=False) have a shift of zeros. Of an nn.Transformer give the parts,
    `module.encoder` and `module.decoder`.
    """  # noqa: E501
    left = {name: array_of(value) for name, value in _state_of(state).items()}
    found: Arrays = {}
    several = sorted({int(n[1]) for name in left if (n := re.match(r"layers\.(\d+)\.", name))})
    if not several:
        _take_module(left, found, "", layer)
    for number in several:
        _take_module(left, found, f"layers.{number}.", _counted_on(layer, number))
    if several:
        _take_norm(left, found, "norm", norm)
    if left:
        raise ArgumentError(
            f"from_torch has no place for {', '.join(list(left)[:6])}: the module computes "
            f"something that {layer!r} does not.",
            argument="state",
        )
    return found


def array_of(value: Any) -> np.ndarray:
    """A NumPy array, or a tensor of PyTorch's as one."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.float() if value.is_floating_point() else value).numpy()
    return np.asarray(value)


def _state_of(state: Any) -> Mapping[str, Any]:
    if not hasattr(state, "state_dict"):
        if isinstance(state, Mapping):
            return state
        raise _unknown(f"a {type(state).__name__}")
    for name, module in state.named_modules():
        if getattr(module, "add_zero_attn", False):
            raise ArgumentError(
                f"from_torch cannot take over {name or 'a module'} with add_zero_attn=True: no "
                "layer here attends to a key of zeros.",
                argument="state",
            )
    found: Mapping[str, Any] = state.state_dict()
    return found


def _take_module(left: Arrays, found: Arrays, prefix: str, layer: str) -> None:
    """An attention, or an encoder or decoder layer, whose names begin with `prefix`."""
    if not any(name.startswith(f"{prefix}self_attn.") for name in left):
        _take_attention(left, found, prefix, layer)
        return
    norms = _ENCODER_NORMS
    _take_attention(left, found, f"{prefix}self_attn.", f"{layer}.attention")
    if any(name.startswith(f"{prefix}multihead_attn.") for name in left):
        norms = _DECODER_NORMS
        _take_attention(left, found, f"{prefix}multihead_attn.", f"{layer}.cross")
    for theirs, ours in (("linear1", "feed_in"), ("linear2", "feed_out")):
        _take_linear(left, found, f"{prefix}{theirs}", f"{layer}.{ours}")
    for theirs, ours in norms.items():
        _take_norm(left, found, f"{prefix}{theirs}", f"{layer}.{ours}")


def _take_attention(left: Arrays, found: Arrays, prefix: str, attention: str) -> None:
    together = left.pop(f"{prefix}in_proj_weight", None)
    if together is not None and (together.ndim != 2 or len(together) % 3):
        raise _unknown(f"{prefix}in_proj_weight of shape {together.shape}")
    if together is not None:
        weights = np.split(together, 3)
    else:  # keys and values of other widths than queries
        names = [f"{prefix}{letter}_proj_weight" for letter in _ROLES.values()]
        if missing := [name for name in names if name not in left]:
            raise _unknown(", ".join(list(left)[:6]) or f"nothing that holds {missing[0]}")
        weights = [left.pop(name) for name in names]
    for role, weight in zip(_ROLES, weights, strict=True):
        found[f"{attention}.{role}.weight"] = weight.T
    biases = left.pop(f"{prefix}in_proj_bias", None)
    for role, bias in zip(_ROLES, [] if biases is None else np.split(biases, 3), strict=False):
        found[f"{attention}.{role}.bias"] = bias
    _take_linear(left, found, f"{prefix}out_proj", f"{attention}.output")


def _take_linear(left: Arrays, found: Arrays, theirs: str, ours: str) -> None:
    if f"{theirs}.weight" not in left:
        raise _unknown(f"a state without {theirs}.weight")
    found[f"{ours}.weight"] = left.pop(f"{theirs}.weight").T
    if f"{theirs}.bias" in left:
        found[f"{ours}.bias"] = left.pop(f"{theirs}.bias")


def _take_norm(left: Arrays, found: Arrays, theirs: str, ours: str) -> None:
    gain = left.pop(f"{theirs}.weight", None)
    if gain is not None:
        found[f"{ours}.gain"] = gain
        found[f"{ours}.shift"] = left.pop(f"{theirs}.bias", np.zeros_like(gain))


def _counted_on(layer: str, number: int) -> str:
    """The name of the layer so many after a first one, as a network counts them."""
    base, _, count = layer.rpartition("_")
    if base and count.isdecimal():
        return f"{base}_{int(count) + number}"
    return layer if number == 0 else f"{layer}_{number + 1}"


def _unknown(found: str) -> ArgumentError:
    return ArgumentError(
        "from_torch expects the state_dict of an nn.MultiheadAttention (in_proj_weight, …), or of "
        "an nn.TransformerEncoder, nn.TransformerDecoder or a layer of theirs "
        f"(self_attn.in_proj_weight, …). Got {found}.",
        argument="state",
    )
