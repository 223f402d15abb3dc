"""The primitives: one file each, with all that the plan and its schedule know of it.

    lower(builder, x, …)        checks what a layer gives, adds the operation, returns its value
    forward(compiler, op)       the native instructions of the way forward,
    backward(compiler, op)      and those of the way back
    constants(op, values,       arrays that its instructions read, by role; optional
        longest)
    multiply_adds(op, values,   (forward, backward) for a sample of `length` tokens; `above` says
        length, above)          whether gradients go on to the input. Without it: (0, 0)

`STRIDED` says that its instructions take rows that are columns of wider ones, as the results of
merged linear layers are; `BY_ROW` that a row of the result follows from that row of each input;
`PLACED` that it matters where in the sequence a row stands. What a primitive computes stands in
`engines/reference` and `native/kernels`, under its name.
"""

from __future__ import annotations

from types import ModuleType

from undivided.plan.primitives import (
    activation,
    add,
    attention,
    concatenate,
    dropout,
    embed,
    learned,
    linear,
    linear_attention,
    max_pool,
    multiply,
    normalize,
    permute,
    pick,
    pool,
    position,
    rescale,
    reshape,
    rms_normalize,
    rotary,
    softmax,
    unfold,
    windows,
)

__all__ = ["PRIMITIVES", "Primitives"]


class Primitives:
    """What a layer asks a builder for: one method a primitive, named as the operation is."""

    concatenate = concatenate.lower
    learned = learned.lower
    max_pool = max_pool.lower
    permute = permute.lower
    pick = pick.lower
    windows = windows.lower
    activation = activation.lower
    add = add.lower
    attention = attention.lower
    dropout = dropout.lower
    embed = embed.lower
    tied = linear.lower_tied
    linear = linear.lower
    linear_attention = linear_attention.lower
    multiply = multiply.lower
    normalize = normalize.lower
    pool = pool.lower
    position = position.lower
    rescale = rescale.lower
    reshape = reshape.lower
    rms_normalize = rms_normalize.lower
    softmax = softmax.lower
    rotary = rotary.lower
    unfold = unfold.lower


PRIMITIVES: dict[str, ModuleType] = {
    name: module
    for name, module in globals().items()
    if isinstance(module, ModuleType) and name in vars(Primitives)
}
