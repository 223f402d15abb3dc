"""undivided.attention as its users call it: PyTorch's tensors in and out, or NumPy's arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from peers.attention.calls import Form
from peers.attention.case import LEARNED, WINDOW, Case, arrays, lengths

__all__ = ["Arrays", "Tensors"]


def options(case: Case) -> dict[str, Any]:
    return {
        "full": {},
        "causal": {"causal": True},
        "padding": {"key_lengths": lengths(case)},
        "window": {"window": (WINDOW, WINDOW)},
        "bias": {},
    }[case.variant]


class Arrays:
    def __init__(self, threads: int) -> None:
        os.environ["UNDIVIDED_THREADS"] = str(threads)
        import undivided

        self.undivided = undivided

    def forms(self, case: Case) -> dict[str, Form]:
        given, chosen = arrays(case), options(case)
        d_out, bias = given.pop("d_out"), given.pop("bias", None)
        inputs = tuple(given.values())

        def forward() -> tuple[Any, ...]:
            return (self.undivided.attention(*inputs, bias=bias, **chosen),)

        def both() -> tuple[Any, ...]:
            out, pullback = self.undivided.attention_vjp(*inputs, bias=bias, **chosen)
            return (out, *(x for x in pullback(d_out) if x is not None))

        return {"attention_vjp": both} if case.gradient else {"attention": forward}

    def weights(self, case: Case, seconds: float) -> tuple[float, float, float]:
        """Forward, forward with all weights, and only writing as many numbers: fastest seconds."""
        query, key, value, _ = arrays(case).values()
        batch, heads, rows, _ = case.shape
        attention = self.undivided.attention
        return (
            fastest(lambda: attention(query, key, value), seconds),
            fastest(lambda: attention(query, key, value, return_weights=True), seconds),
            fastest(lambda: np.full((batch, heads, rows, rows), 1, np.float32), seconds),
        )

    def short_call(self, case: Case, seconds: float) -> tuple[float, float]:
        """Seconds of a call, and of its arithmetic: what 64 samples more take, on one thread."""
        one = arrays(case)
        many = {name: np.concatenate([x] * 65) for name, x in one.items()}

        def call(given: dict[str, np.ndarray]) -> Callable[[], Any]:
            q, k, v = given["query"], given["key"], given["value"]
            return lambda: self.undivided.attention(q, k, v, threads=1)

        alone, together = fastest(call(one), seconds), fastest(call(many), seconds)
        return alone, (together - alone) / 64


def fastest(call: Callable[[], Any], seconds: float) -> float:
    call()
    best = np.inf
    end = perf_counter() + seconds
    while (started := perf_counter()) < end:
        call()
        best = min(best, perf_counter() - started)
    return best


class Tensors:
    def __init__(self, threads: int) -> None:
        os.environ["UNDIVIDED_THREADS"] = str(threads)
        import torch

        import undivided

        torch.set_num_threads(threads)
        self.torch, self.undivided = torch, undivided

    def forms(self, case: Case) -> dict[str, Form]:
        torch, chosen = self.torch, options(case)
        given = {name: torch.from_numpy(x) for name, x in arrays(case).items()}
        d_out, bias = given.pop("d_out"), given.pop(LEARNED, None)
        inputs = tuple(given.values())
        learned = (*inputs, bias) if bias is not None else inputs

        def forward() -> tuple[Any, ...]:
            with torch.no_grad():
                return (self.undivided.attention(*inputs, bias=bias, **chosen),)

        def both() -> tuple[Any, ...]:
            out = self.undivided.attention(*inputs, bias=bias, **chosen)
            return (out.detach(), *torch.autograd.grad(out, learned, d_out))

        if not case.gradient:
            return {"attention": forward}
        for x in learned:
            x.requires_grad_()
        return {"attention": both}
