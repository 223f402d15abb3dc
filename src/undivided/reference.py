"""The operators as they are defined: NumPy, in the type of what comes in.

Every engine is measured against these. They take [B, H, S, D] and are written to be read:
`undivided.engines.reference.attention` and `.linear_attention` have both directions on one page.
"""

from undivided.engines.reference.attention import attention, attention_backward
from undivided.engines.reference.linear_attention import (
    linear_attention,
    linear_attention_backward,
)

__all__ = [
    "attention",
    "attention_backward",
    "linear_attention",
    "linear_attention_backward",
]
