"""PyTorch: `scaled_dot_product_attention` by each of its backends, attention written out, and
`flex_attention`, which has no backward pass on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from peers.attention.calls import Form
from peers.attention.case import LEARNED, WINDOW, Case, arrays, lengths

__all__ = ["Flex", "Naive", "Sdpa"]

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def allowed(case: Case) -> Tensor | None:
    """True where a query may attend, of as few axes as say it; none for what needs no mask."""
    rows = torch.arange(case.shape[2])
    if case.variant == "causal":
        return rows[:, None] >= rows
    if case.variant == "padding":
        return (rows < torch.from_numpy(lengths(case))[:, None])[:, None, None, :]
    if case.variant == "window":
        return (rows[:, None] - rows).abs() <= WINDOW
    return None


def call(case: Case, attend: Attend) -> Form:
    """`attend(query, key, value, bias)`, alone or with its gradients."""
    given = {name: torch.from_numpy(x) for name, x in arrays(case).items()}
    d_out, bias = given.pop("d_out"), given.pop(LEARNED, None)
    query, key, value = given.values()

    def forward() -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (attend(query, key, value, bias),)

    learned = (query, key, value) if bias is None else (query, key, value, bias)

    def both() -> tuple[Tensor, ...]:
        out = attend(query, key, value, bias)
        return (out.detach(), *torch.autograd.grad(out, learned, d_out))

    if not case.gradient:
        return forward
    for x in learned:
        x.requires_grad_()
    return both


class Library:
    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)


class Sdpa(Library):
    def forms(self, case: Case) -> dict[str, Form]:
        causal = case.variant == "causal"
        mask = None if causal else allowed(case)
        added = None if mask is None else torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)

        def form(backend: SDPBackend | None, mask: Tensor | None) -> Form:
            def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
                with nullcontext() if backend is None else sdpa_kernel(backend):
                    return scaled_dot_product_attention(
                        q, k, v, mask if bias is None else bias, is_causal=causal
                    )

            return call(case, attend)

        found = {"its own choice": form(None, mask), "math": form(SDPBackend.MATH, mask)}
        if added is not None:
            found["its own choice, mask added"] = form(None, added)
        return found


class Naive(Library):
    def forms(self, case: Case) -> dict[str, Form]:
        batch, heads, rows, width = case.shape
        scale = width**-0.5
        mask = allowed(case)
        added = None if mask is None else torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
        folded = None if added is None else added.expand(batch, heads, rows, rows)
        if folded is not None and batch * heads * rows * rows <= 1 << 24:
            folded = folded.reshape(batch * heads, rows, rows).contiguous()
        else:
            folded = None

        def matmul(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
            scores = q * scale @ k.transpose(-1, -2)
            if added is not None:
                scores = scores + added
            if bias is not None:
                scores = scores + bias
            return scores.softmax(-1) @ v

        def baddbmm(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
            q, k, v = (x.view(batch * heads, rows, width) for x in (q, k, v))
            if bias is not None:
                onto = bias.expand(batch, heads, rows, rows).reshape(-1, rows, rows)
                scores = torch.baddbmm(onto, q, k.transpose(1, 2), alpha=scale)
            elif folded is not None:
                scores = torch.baddbmm(folded, q, k.transpose(1, 2), alpha=scale)
            else:
                scores = torch.baddbmm(nothing, q, k.transpose(1, 2), beta=0, alpha=scale)
            return torch.bmm(scores.softmax(-1), v).view(batch, heads, rows, width)

        nothing = torch.empty(1, 1, 1)
        found = {"matmul": call(case, matmul)}
        if (added is None) == (folded is None):
            found["baddbmm"] = call(case, baddbmm)
        return found


class Flex(Library):
    def forms(self, case: Case) -> dict[str, Form]:
        if case.gradient or case.variant in ("full", "bias"):
            return {}
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        batch, _, rows, _ = case.shape
        ends = torch.from_numpy(lengths(case))

        def may(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            if case.variant == "causal":
                return i >= j
            return (i - j).abs() <= WINDOW if case.variant == "window" else j < ends[b]

        samples = batch if case.variant == "padding" else None
        blocks: Any = create_block_mask(may, samples, None, rows, rows, device="cpu")
        torch.compiler.reset()
        compiled = torch.compile(flex_attention, dynamic=False)
        return {"compiled": call(case, lambda q, k, v, _: compiled(q, k, v, block_mask=blocks))}
