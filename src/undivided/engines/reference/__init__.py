"""The reference engine: NumPy, one file a primitive, forward and backward side by side.

It runs a plan as it stands. In float64 it is the definition that the other engines are measured
against; in float32 it shows how much of a difference is rounding. Each primitive is a module of
pure functions on arrays:

    forward(x, …)        what the primitive gives
    backward(dy, x, …)   given dy, the gradient of a loss with respect to what forward gave: the
                         gradients with respect to the arrays that forward took, in their order

The arguments after `dy` are those of `forward`. Nothing else is kept from the way forward:
what backward needs besides, it computes again, so that it can be read and checked alone
(`undivided.check_gradients(linear.forward, linear.backward, x, weight)`).
"""

from undivided.engines.reference.engine import LOSSES, PRIMITIVES, ReferenceEngine

__all__ = ["LOSSES", "PRIMITIVES", "ReferenceEngine"]
