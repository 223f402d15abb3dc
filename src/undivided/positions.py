"""Where tokens stand: biases by distance (ALiBi, T5's buckets) and sinusoidal tables."""

from undivided._operator.positions import (
    alibi,
    alibi_slopes,
    sinusoidal,
    t5_bias,
    t5_bias_backward,
    t5_buckets,
)

__all__ = [
    "alibi",
    "alibi_slopes",
    "sinusoidal",
    "t5_bias",
    "t5_bias_backward",
    "t5_buckets",
]
