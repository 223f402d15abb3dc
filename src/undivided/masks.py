"""Block-sparse masks: which query may attend to which key, without an array of every pair.

mask = undivided.masks.causal() & undivided.masks.window(256) | undivided.masks.global_tokens(4)
print(mask)
out = undivided.attention(query, key, value, mask=mask)
"""

from undivided._operator.mask_blocks import Blocks
from undivided._operator.mask_rules import (
    block_local,
    causal,
    documents,
    full,
    global_tokens,
    random,
    strided,
    window,
)
from undivided._operator.masks import Mask

__all__ = [
    "Blocks",
    "Mask",
    "block_local",
    "causal",
    "documents",
    "full",
    "global_tokens",
    "random",
    "strided",
    "window",
]
