"""rotary: turn pairs of numbers by an angle that grows with the token's position.

    (a, b) → (a·cos θ − b·sin θ, a·sin θ + b·cos θ)        θ = position · base^(−2i/width)

for pair i of a head. Done to queries and to keys, their dot product depends on how far apart
they stand and not on where: turning one by s and the other by t is turning one by s − t.

Nothing is lost by turning, so the backward pass turns back: d_x = rotary(d_out, …, inverse=True)
with the same options.

    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", arXiv 2104.09864
"""

# B batch, H heads, S tokens, D head width, R the width that is turned
#
# x, out    [B, H, S, D], [B, S, H, D] with layout="bshd", or [B, S, D], or [S, D]
# cos, sin  [S, R/2] or [B, 1, S, R/2]: broadcast against one number of each pair

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from undivided._operator.tensors import is_tensor
from undivided.errors import ArgumentError, suggest

__all__ = ["rotary"]


def rotary(
    x: Any,
    positions: Any = None,
    *,
    base: float = 10000.0,
    pairing: Literal["interleaved", "halves"] = "interleaved",
    width: int | None = None,
    offset: Any = 0,
    inverse: bool = False,
    layout: Literal["bhsd", "bshd"] = "bhsd",
) -> Any:
    """Queries or keys with their positions turned in, in their own shape and type.

    x          a NumPy array or PyTorch tensor: [B, H, S, D], [B, S, D] or [S, D]
    positions  of the tokens, [S] or one row a sample [B, S]; 0, 1, 2, … unless given
    base       sets the slowest turn; larger for longer texts
    pairing    "interleaved" pairs numbers 0 and 1, 2 and 3, …; "halves" pairs number i of a head
               with number i + width/2. Weights trained with one need the same again
    width      turn only the first so many numbers of a head; the rest is handed through
    offset     added to every position: one whole number, or one a sample [B]
    inverse    turn the other way: undoes a call with the same options, and is its backward
    layout     of a four-dimensional x; "bshd" is [B, S, H, D]

    Angles are found in float64; float16 and bfloat16 are turned in float32. On tensors these are
    PyTorch's own operations, through which autograd goes.
    """
    _check(x, base, pairing, layout)
    if x.ndim == 4 and layout == "bshd":
        out = rotary(
            x.swapaxes(1, 2),
            positions,
            base=base,
            pairing=pairing,
            width=width,
            offset=offset,
            inverse=inverse,
        )
        return out.swapaxes(1, 2)
    turned_width = _turned_width(width, x.shape[-1])
    place = _places(positions, offset, x)
    frequency = [float(base) ** (-i / turned_width) for i in range(0, turned_width, 2)]
    arrays, cos, sin, turning = _in_kind(x, place, frequency, -1.0 if inverse else 1.0)

    pairs, rest = turning[..., :turned_width], x[..., turned_width:]
    if pairing == "interleaved":
        a, b = pairs[..., 0::2], pairs[..., 1::2]
    else:
        a, b = pairs[..., : turned_width // 2], pairs[..., turned_width // 2 :]
    turned = (a * cos - b * sin, a * sin + b * cos)
    if pairing == "interleaved":
        out = arrays.stack(turned, -1).reshape(pairs.shape)
    else:
        out = arrays.concatenate(turned, -1)
    out = out.to(x.dtype) if is_tensor(x) else out.astype(x.dtype, copy=False)
    return arrays.concatenate((out, rest), -1) if turned_width < x.shape[-1] else out


def _in_kind(x: Any, place: Any, frequency: list[float], sign: float) -> tuple[Any, Any, Any, Any]:
    """NumPy or torch, cos and sin as it has them, and x, in the type to compute in."""
    if is_tensor(x):
        import torch

        dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
        angle = place[..., None] * torch.tensor(frequency, dtype=torch.float64, device=x.device)
        angle = angle * sign
        return torch, angle.cos().to(dtype), angle.sin().to(dtype), x.to(dtype)
    kind = np.dtype(np.float64 if x.dtype == np.float64 else np.float32)
    angle = place[..., None] * np.array(frequency, np.float64) * sign
    return np, np.cos(angle).astype(kind), np.sin(angle).astype(kind), x.astype(kind, copy=False)


def _places(positions: Any, offset: Any, x: Any) -> Any:
    """Positions with their offset, [S], or [B, S] with an axis for heads where x has one."""
    S = x.shape[-2]
    batch = x.shape[0] if x.ndim > 2 else None
    shapes = f"[{S}]" if batch is None else f"[{S}] or [{batch}, {S}]"
    place = _numbers("positions", range(S) if positions is None else positions, shapes, x)
    if tuple(place.shape) != (S,) and (batch is None or tuple(place.shape) != (batch, S)):
        raise ArgumentError(
            f"The 'positions' of rotary must be numbers {shapes} for x {list(x.shape)}. "
            f"Got shape {list(place.shape)}.",
            argument="positions",
        )
    wanted = "a whole number" if batch is None else f"a whole number or whole numbers [{batch}]"
    first = _numbers("offset", offset, wanted, x)
    shape_fits = first.ndim == 0 or (batch is not None and tuple(first.shape) == (batch,))
    if not shape_fits or "int" not in _dtype_name(first):
        raise ArgumentError(
            f"The 'offset' of rotary must be {wanted} for x {list(x.shape)}. "
            f"Got {_dtype_name(first)} of shape {list(first.shape)}.",
            argument="offset",
        )
    place = place + first[..., None]  # [1] or [B, 1]: along the tokens
    return place[:, None] if place.ndim == 2 and x.ndim == 4 else place


def _numbers(name: str, value: Any, wanted: str, x: Any) -> Any:
    """`value` as an array or tensor of real numbers, as x is one."""
    array: Any
    if is_tensor(x):
        import torch

        if isinstance(value, range):
            return torch.arange(len(value), device=x.device)
        array = torch.as_tensor(value, device=x.device)
    else:
        array = np.asarray(value.detach().cpu().numpy() if is_tensor(value) else value)
    if not _dtype_name(array).startswith(("int", "uint", "float", "bfloat")):
        raise ArgumentError(
            f"The {name!r} of rotary must be {wanted}. Got {value!r:.80}.", argument=name
        )
    return array


def _dtype_name(x: Any) -> str:
    return str(x.dtype).removeprefix("torch.")


def _turned_width(width: int | None, head_width: int) -> int:
    """How many numbers of a head are turned."""
    if width is None:
        if head_width % 2:
            raise ArgumentError(
                f"rotary turns pairs, so the width of a head must be even. Got {head_width}. "
                f"Turn fewer of its numbers: width={head_width - 1}.",
                argument="x",
            )
        return head_width
    whole = hasattr(width, "__index__") and not isinstance(width, bool)
    if not whole or width < 0 or width % 2 or width > head_width:
        raise ArgumentError(
            f"The 'width' of rotary must be an even whole number from 0 to {head_width}, the width "
            f"of a head. Got {width!r}.",
            argument="width",
        )
    return int(width)


def _check(x: Any, base: float, pairing: str, layout: str) -> None:
    if not (is_tensor(x) or isinstance(x, np.ndarray)):
        raise ArgumentError(
            f"The 'x' of rotary must be a NumPy array or PyTorch tensor. Got {type(x).__name__}.",
            argument="x",
        )
    if x.ndim not in (2, 3, 4):
        raise ArgumentError(
            "The 'x' of rotary must have shape [batch, heads, seq, dim], [batch, seq, dim] or "
            f"[seq, dim]. Got {list(x.shape)}.",
            argument="x",
        )
    kind = _dtype_name(x)
    if kind not in ("float16", "bfloat16", "float32", "float64"):
        raise ArgumentError(
            f"The 'x' of rotary must hold floating-point numbers. Got {kind}.", argument="x"
        )
    if not base > 0:
        raise ArgumentError(
            f"The 'base' of rotary must be a number > 0. Got {base!r}.", argument="base"
        )
    for name, value, known in [
        ("pairing", pairing, ("interleaved", "halves")),
        ("layout", layout, ("bhsd", "bshd")),
    ]:
        if value not in known:
            raise ArgumentError(
                f"The {name!r} of rotary must be {known[0]!r} or {known[1]!r}. Got {value!r}."
                + suggest(str(value), known),
                argument=name,
            )
