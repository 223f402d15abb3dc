"""Initial values: what the parameters are before training."""

from __future__ import annotations

import math

import numpy as np

from undivided.engines.reference.position import sinusoidal_table
from undivided.plan.plan import Parameter, Plan
from undivided.training.generators import Generator

__all__ = ["initialize"]


def initialize(plan: Plan, generator: Generator, weights: str = "xavier") -> dict[str, np.ndarray]:
    """Each parameter's first values, float32, drawn in the order of the plan.

    `weights` says what `xavier` is: that, or "fan_in", uniform within ±1/√in.

    Only `xavier` and `uniform` draw; constants and the sinusoidal table leave the generator
    where it is.
    """
    return {name: _values(p, generator, weights) for name, p in plan.parameters.items()}


def _values(parameter: Parameter, generator: Generator, weights: str) -> np.ndarray:
    shape, initial = parameter.shape, parameter.initial
    if initial.rule == "constant":
        return np.full(shape, initial.limit, np.float32)
    if initial.rule == "sinusoidal":
        return sinusoidal_table(*shape).astype(np.float32)
    if initial.rule == "uniform":
        limit = initial.limit
    elif initial.rule == "xavier" and weights == "fan_in":
        limit = 1 / math.sqrt(shape[0])
    elif initial.rule == "xavier":
        limit = float(np.sqrt(np.float32(6) / np.float32(sum(shape))))
    else:
        raise NotImplementedError(f"initial rule {initial.rule!r} of {parameter.name}")
    return generator.uniform(math.prod(shape), -limit, limit).reshape(shape)
