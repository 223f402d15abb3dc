"""undivided for programs that were written for PyTorch: the same names, arguments and numbers.

    from undivided.torch import MultiheadAttention, sdpa

`sdpa` takes the place of torch.nn.functional.scaled_dot_product_attention, `MultiheadAttention`
that of torch.nn.MultiheadAttention, whose state dict it loads. Where those give NaN because a query
may attend to nothing, these give 0.

Everything else takes tensors as it is: `undivided.attention(query, key, value)` and what is around
it. Importing this module imports PyTorch; `import undivided` does not.
"""

try:
    import torch as _  # noqa: F401
except ImportError as error:
    raise ImportError(
        "undivided.torch needs PyTorch, which is not installed. Install it: pip install torch."
    ) from error

from undivided.torch.multihead import MultiheadAttention
from undivided.torch.sdpa import sdpa

__all__ = ["MultiheadAttention", "sdpa"]
