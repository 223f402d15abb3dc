"""undivided.attention on tensors: an autograd function like any of PyTorch's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import undivided
from undivided import masks
from undivided.errors import ArgumentError

torch = pytest.importorskip("torch", "2.5")

from torch.utils.checkpoint import checkpoint  # noqa: E402

B, H, K, S, T, D, F = 2, 4, 2, 4, 5, 3, 2


def drawn(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def inputs(dtype: Any = torch.float64) -> list[Any]:
    torch.manual_seed(1)
    return [drawn(*s, dtype=dtype) for s in [(B, H, S, D), (B, K, T, D), (B, K, T, F)]]


FORBIDS = torch.tensor([True, True, False, True])[:, None].expand(S, T)  # row 2 sees nothing

OPTIONS: list[dict[str, Any]] = [
    {},
    {"mask": FORBIDS, "scale": 0.4},
    {"mask": masks.window(1, 1) | masks.global_tokens(1), "sinks": (H,)},
    {"bias": (H, 1, T), "softcap": 2.0},
    {"bias": (B, 1, S, 1), "causal": "bottom_right"},
    {"bias": (T,), "sinks": (H,), "softcap": 3.0, "window": (2, 1), "query_offset": 1},
    {"query_lengths": torch.tensor([4, 2]), "key_lengths": [5, 0], "sinks": (H,)},
    {"causal": True, "query_offset": torch.tensor([0, 3]), "bias": (S, T)},
    {"dropout": 0.4, "seed": 3},
    {"return_weights": True, "bias": (1, S, T), "softcap": 2.0},
    {"return_lse": True, "sinks": (H,)},
    {"return_weights": ([1, 1, 3], [0, 2]), "return_lse": True, "causal": "bottom_right"},
    {"return_weights": True, "return_lse": True, "key_lengths": [3, 5], "dropout": 0.4, "seed": 1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_gradcheck(options: dict[str, Any]) -> None:
    leaves = inputs()
    names = [name for name in ("bias", "sinks") if name in options]
    leaves += [drawn(*options[name]) for name in names]

    def function(q: Any, k: Any, v: Any, *added: Any) -> Any:
        given = dict(zip(names, added, strict=True))
        return undivided.attention(q, k, v, **{**options, **given})

    assert torch.autograd.gradcheck(function, leaves)


@pytest.mark.parametrize("sinks", [False, True])
def test_gradcheck_of_sequences_end_to_end(sinks: bool) -> None:
    torch.manual_seed(1)
    leaves = [drawn(7, H, D), drawn(9, K, D), drawn(9, K, F), drawn(H)][: 4 if sinks else 3]
    starts = torch.tensor([0, 3, 3, 7]), torch.tensor([0, 4, 5, 9])

    def function(q: Any, k: Any, v: Any, *sinks: Any) -> Any:
        of_heads = sinks[0] if sinks else None
        return undivided.attention_varlen(
            q, k, v, *starts, causal="bottom_right", return_lse=True, sinks=of_heads
        )

    assert torch.autograd.gradcheck(function, leaves)


def test_gradcheck_where_keys_are_taken_in_tiles() -> None:
    torch.manual_seed(2)
    q, k, v = drawn(1, 1, 2, 2), drawn(1, 1, 600, 2), drawn(1, 1, 600, 1)
    assert torch.autograd.gradcheck(
        lambda q, k, v: undivided.attention(q, k, v, return_lse=True), (q, k, v), fast_mode=True
    )


@pytest.mark.parametrize("which", range(5))
def test_only_what_is_asked_for_gets_a_gradient(which: int) -> None:
    leaves = [*inputs(), drawn(S, T), drawn(H)]
    out = undivided.attention(*leaves[:3], bias=leaves[3], sinks=leaves[4])
    expected = torch.autograd.grad(out.sum(), leaves)[which]
    alone = [x.detach().requires_grad_(n == which) for n, x in enumerate(leaves)]
    undivided.attention(*alone[:3], bias=alone[3], sinks=alone[4]).sum().backward()
    assert torch.equal(alone[which].grad, expected)
    assert all(x.grad is None for n, x in enumerate(alone) if n != which)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_types_are_computed_in_float32_at_least(dtype: Any) -> None:
    leaves = [*inputs(dtype), drawn(S, T, dtype=dtype), drawn(H, dtype=dtype)]
    wide = [x.detach().float().requires_grad_() for x in leaves]
    results, gradients = [], []
    for q, k, v, bias, sinks in (leaves, wide):
        found = undivided.attention(
            q, k, v, bias=bias, sinks=sinks, return_weights=True, return_lse=True
        )
        results.append(found)
        d_out = torch.linspace(-1, 1, found[0].numel()).reshape(found[0].shape).to(dtype)
        gradients.append(
            torch.autograd.grad(found[0], (q, k, v, bias, sinks), d_out.to(found[0].dtype))
        )
    (out, weights, lse), expected = results
    assert out.dtype == weights.dtype == dtype and lse.dtype == torch.float32
    assert torch.equal(out, expected[0].to(dtype)) and torch.equal(weights, expected[1].to(dtype))
    assert torch.equal(lse, expected[2])
    for found, wanted in zip(*gradients, strict=True):
        assert found.dtype == dtype and torch.equal(found, wanted.to(dtype))


def test_tensors_and_arrays_get_the_same_bits() -> None:
    leaves = inputs(torch.float32)
    out = undivided.attention(*leaves, causal="bottom_right")
    gradients = torch.autograd.grad(out.sum(), leaves)
    arrays = [x.detach().numpy() for x in leaves]
    expected, pullback = undivided.attention_vjp(*arrays, causal="bottom_right")
    assert np.array_equal(out.detach().numpy(), expected)
    for found, wanted in zip(gradients, pullback(np.ones_like(expected)), strict=False):
        assert np.array_equal(found.numpy(), wanted)


def test_views_are_read_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads side by side in one projection, which is how they come: no copy of them is made."""
    from undivided._operator import core

    seen = []
    call = core._native.attend_float32
    monkeypatch.setattr(
        core, "_call", lambda dtype: lambda *a, **o: seen.append(a[5:8]) or call(*a, **o)
    )
    packed = torch.randn(B, S, 3 * H * 16)
    q, k, v = (x.view(B, S, H, 16) for x in packed.chunk(3, dim=-1))
    found = undivided.attention(q, k, v, layout="bshd")
    for x, array in zip((q, k, v), seen[0], strict=True):
        assert array.__array_interface__["data"][0] == x.data_ptr()
    wanted = undivided.attention(*(x.transpose(1, 2).contiguous() for x in (q, k, v)))
    assert torch.equal(found, wanted.transpose(1, 2))


def test_strides_of_every_kind() -> None:
    torch.manual_seed(3)
    plain = [torch.randn(B, H, S, D) for _ in range(3)]
    odd = [
        plain[0].transpose(0, 3).contiguous().transpose(0, 3),
        torch.stack([plain[1], plain[1]], dim=-1)[..., 1],
        plain[2][:1].expand(B, H, S, D),
    ]
    plain[2] = odd[2].contiguous()
    leaves = [x.requires_grad_() for x in plain]
    views = [x.detach().requires_grad_() for x in odd]
    outs = [undivided.attention(*xs) for xs in (leaves, views)]
    assert torch.equal(*outs)
    gradients = [
        torch.autograd.grad(out.square().sum(), xs)
        for out, xs in zip(outs, (leaves, views), strict=True)
    ]
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("which", range(3))
def test_what_was_changed_is_noticed_in_short_calls_too(which: int) -> None:
    leaves = [x * 1 for x in inputs(torch.float32)]
    loss = undivided.attention(*leaves).sum()
    with torch.no_grad():
        leaves[which].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("which", ["query", "key", "value", "bias", "mask", "out"])
def test_what_was_changed_before_backward_is_noticed(which: str) -> None:
    leaves = [x * 1 for x in inputs()]
    sinks = drawn(H)  # with which backward reads out
    named = dict(zip(("query", "key", "value"), leaves, strict=True))
    named["bias"], named["mask"] = drawn(S, T) * 1, torch.ones(S, T, dtype=torch.bool)
    named["out"] = undivided.attention(
        *leaves, bias=named["bias"], mask=named["mask"], sinks=sinks, scale=0.5
    )
    loss = named["out"].sum()
    with torch.no_grad():
        named[which].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_weights_and_results_may_be_changed_where_backward_does_not_read_them() -> None:
    leaves = inputs(torch.float32)
    expected = torch.autograd.grad(undivided.attention(*leaves).sum(), leaves)
    out, weights = undivided.attention(*leaves, return_weights=True)
    loss = out.sum()
    with torch.no_grad():
        out.zero_(), weights.zero_()
    for found, wanted in zip(torch.autograd.grad(loss, leaves), expected, strict=True):
        assert torch.equal(found, wanted)


def test_backward_twice_needs_the_graph() -> None:
    leaves = inputs()
    loss = undivided.attention(*leaves).sum()
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    second = torch.autograd.grad(loss, leaves)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_gradient_of_a_gradient_is_refused(dtype: Any) -> None:
    leaves = inputs(dtype)
    out = undivided.attention(*leaves)
    (gradient,) = torch.autograd.grad(out.square().sum(), leaves[0], create_graph=True)
    with pytest.raises(ArgumentError) as refused:
        gradient.sum().backward()
    assert str(refused.value) == (
        "undivided.attention has first derivatives only, and the gradient of its gradient was "
        "asked for. Where that is needed (gradient penalties, Hessians), take PyTorch's own: "
        "torch.nn.functional.scaled_dot_product_attention under "
        "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)."
    )


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing(use_reentrant: bool) -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        return undivided.attention(q, k, v, dropout=0.5)  # drawn again alike

    leaves = inputs()
    torch.manual_seed(4)
    expected = torch.autograd.grad(function(*leaves).square().sum(), leaves)
    torch.manual_seed(4)
    checkpoint(function, *leaves, use_reentrant=use_reentrant).square().sum().backward()
    for x, wanted in zip(leaves, expected, strict=True):
        assert torch.equal(x.grad, wanted)


def test_nothing_is_kept_without_gradients() -> None:
    leaves = inputs()
    with torch.no_grad():
        assert undivided.attention(*leaves).grad_fn is None
    with torch.inference_mode():
        assert undivided.attention(*leaves).is_inference()
    assert undivided.attention(*(x.detach() for x in leaves)).grad_fn is None


def test_parameters_and_tensors_of_a_class_of_ones_own() -> None:
    class Own(torch.Tensor):
        pass

    q, k, v = (x.detach() for x in inputs())
    expected = undivided.attention(q, k, v)
    assert torch.equal(undivided.attention(torch.nn.Parameter(q), k, v), expected)
    found = undivided.attention(q.as_subclass(Own), k.as_subclass(Own), v.as_subclass(Own))
    assert torch.equal(found.as_subclass(torch.Tensor), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_torch_func_is_refused(dtype: Any) -> None:
    q, k, v = (x.detach() for x in inputs(dtype))
    with pytest.raises(ArgumentError, match=r"cannot be transformed by torch\.func"):
        torch.func.grad(lambda q: undivided.attention(q, k, v).sum())(q)
    with pytest.raises(ArgumentError, match=r"cannot be transformed by torch\.func"):
        torch.vmap(lambda q: undivided.attention(q, k, v))(q[None])


X = torch.zeros(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((X, X.numpy(), X), {}, "The 'key' of attention must be a PyTorch tensor, as 'query' is. "
         "Got ndarray."),
        ((X.numpy(), X, X), {}, "The 'key' of attention must be a NumPy array, as 'query' is. Got "
         "a PyTorch tensor."),
        ((X, X.double(), X), {}, "The 'key' of attention must be of float32, as 'query' is. Got "
         "float64."),
        ((X, X, X.to("meta")), {}, "The 'value' of attention must be on cpu, as 'query' is. Got "
         "meta."),
        ((X.int(),) * 3, {}, "The 'query' of attention must be of float32, float64, float16 or "
         "bfloat16. Got int32."),
        ((X, X, X), {"bias": torch.zeros(3, 3, device="meta")}, "The 'bias' of attention must be "
         "on cpu, as 'query' is. Got meta."),
        ((X, X, X), {"mask": torch.ones(3, 3)}, "The 'mask' of attention must be boolean, True "
         "where a query may attend, or made by undivided.masks. Got float32. Write `mask != 0`; "
         "what is added to scores goes into 'bias'."),
    ],
)  # fmt: skip
def test_what_cannot_be(arguments: Any, options: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        undivided.attention(*arguments, **options)
    assert str(refused.value) == text
