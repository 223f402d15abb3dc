"""PyTorch comes in with the tensors of whoever uses it, and not before."""

from __future__ import annotations

import subprocess
import sys

import pytest


def after(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return done.stdout + done.stderr


def test_the_operator_on_arrays_brings_no_torch_in() -> None:
    program = """if True:
        import sys, numpy as np, undivided
        x = np.ones((1, 2, 3, 4))
        undivided.attention(x, x, x, mask=undivided.masks.causal(), return_weights=True)
        undivided.attention_vjp(x, x, x)[1](x)
        undivided.attention_varlen(x[0], x[0], x[0], [0, 2], [0, 2])
        undivided.linear_attention(x, x, x), undivided.rotary(x)
        cache = undivided.KeyValueCache(1, 2, 4, dtype="float64")
        cache.append(x, x), cache.attention(x)
        print('torch' in sys.modules)
    """
    assert after(program) == "False\n"


def test_without_torch_the_module_says_what_to_do() -> None:
    program = "import sys; sys.modules['torch'] = None; import undivided; undivided.torch"
    assert after(program).endswith(
        "ImportError: undivided.torch needs PyTorch, which is not installed. Install it: "
        "pip install torch.\n"
    )


def test_the_module_is_there_when_it_is_asked_for() -> None:
    pytest.importorskip("torch")
    program = "import sys, undivided; undivided.torch.sdpa; print('torch' in sys.modules)"
    assert after(program) == "True\n"
