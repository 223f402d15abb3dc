"""Tensors that are not on the CPU go through PyTorch's own operator, with the same meaning.

There need not be another device here: the way there is taken with tensors of the CPU, and compared
with what undivided's kernels give for them.
"""

from __future__ import annotations

from typing import Any

import pytest

import undivided
from undivided import masks
from undivided.errors import ArgumentError

torch = pytest.importorskip("torch", "2.5")

from undivided._operator import torch_elsewhere  # noqa: E402

B, H, K, S, T, D, F = 3, 4, 2, 5, 7, 4, 3


def drawn(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def all_options(**options: Any) -> dict[str, Any]:
    names = "mask", "query_lengths", "key_lengths", "query_offset", "scale", "softcap", "seed"
    return {"causal": False, "window": None, "dropout": 0.0, **dict.fromkeys(names), **options}


MASK = torch.arange(B * H * S * T).reshape(B, H, S, T) % 3 > 0
MASK[1, :, 2] = False  # a row that may attend to nothing
MASK[2, 0, :, 3] = False  # and a key that nobody of a head may attend to
LENGTHS = {"query_lengths": torch.tensor([5, 2, 0]), "key_lengths": torch.tensor([7, 0, 4])}

OPTIONS: list[dict[str, Any]] = [
    {},
    {"scale": 0.3},
    {"causal": "top_left"},
    {"causal": "bottom_right"},
    {"causal": "bottom_right", **LENGTHS},
    {"causal": True, "query_offset": torch.tensor([-3, 0, 9])},
    {"causal": True, "query_offset": [-3, 0, 9]},
    {"window": (1, 2), "query_offset": 1, "key_lengths": [7, 0, 4]},
    {"mask": MASK},
    {"mask": MASK[:1, :1], "query_lengths": [5, 2, 0]},
    {"mask": masks.window(1, 1) & ~masks.strided(2)},
    {"mask": masks.random(1, block=2, seed=1)},
    {"bias": (H, S, T)},
    {"bias": (B, 1, 1, T), "mask": MASK},
    {"sinks": (H,)},
    {"sinks": (H,), "bias": (S, 1), "causal": "bottom_right", **LENGTHS},
]


def same(found: Any, expected: Any, leaves: list[Any]) -> None:
    """Results and the gradients of all of them together."""
    found = [x for x in found if x is not None]
    expected = list(expected) if isinstance(expected, tuple) else [expected]
    gradients = []
    for results in (found, expected):
        given = [torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape) for x in results]
        gradients.append(
            torch.autograd.grad(results, leaves, given, allow_unused=True, materialize_grads=True)
        )
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_numbers(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    leaves = [drawn(B, H, S, D), drawn(B, K, T, D), drawn(B, K, T, F)]
    options = dict(options)
    for name in ("bias", "sinks"):
        if name in options:
            options[name] = drawn(*options[name])
            leaves.append(options[name])
    for asked in (
        {},
        {"return_weights": True, "return_lse": True},
        {"return_weights": ([2, 2], [0, 4])},
    ):
        found = torch_elsewhere.attention(*leaves[:3], **all_options(**options), **asked)
        same(found, undivided.attention(*leaves[:3], **options, **asked), leaves)


def test_a_bias_that_forbids() -> None:
    torch.manual_seed(1)
    leaves = [drawn(B, H, S, D), drawn(B, K, T, D), drawn(B, K, T, F)]
    bias = torch.where(MASK, 0.5, -torch.inf).double()
    found = torch_elsewhere.attention(*leaves, bias=bias, **all_options())
    same(found, undivided.attention(*leaves, bias=bias), leaves)


def test_padding_reaches_nothing() -> None:
    torch.manual_seed(1)
    leaves = [drawn(B, H, S, D), drawn(B, K, T, D), drawn(B, K, T, F)]
    with torch.no_grad():
        leaves[0][2] = torch.nan
        leaves[1][2, :, 4:] = torch.nan
        leaves[2][1] = torch.inf
    found = torch_elsewhere.attention(*leaves, **all_options(**LENGTHS))
    same(found, undivided.attention(*leaves, **LENGTHS), leaves)
    assert found[0].isfinite().all()


@pytest.mark.parametrize("layout", ["bshd", "flat"])
def test_layouts(layout: str) -> None:
    torch.manual_seed(1)
    if layout == "flat":
        leaves = [drawn(B, S, H * D), drawn(B, T, K * D), drawn(B, T, K * F)]
        options: dict[str, Any] = {"num_heads": H, "num_kv_heads": K}
    else:
        leaves = [drawn(B, S, H, D), drawn(B, T, K, D), drawn(B, T, K, F)]
        options = {"layout": "bshd"}
    found = torch_elsewhere.attention(*leaves, **all_options(**options))
    same(found, undivided.attention(*leaves, **options), leaves)


@pytest.mark.parametrize("empty", ["S", "T", "B"])
def test_nothing_at_all(empty: str) -> None:
    n = {"B": B, "S": S, "T": T, empty: 0}
    leaves = [drawn(n["B"], H, n["S"], D), drawn(n["B"], K, n["T"], D), drawn(n["B"], K, n["T"], F)]
    for options in ({}, {"causal": "bottom_right"}):
        asked = {"return_weights": True, "return_lse": True}
        found = torch_elsewhere.attention(*leaves, **all_options(**options), **asked)
        same(found, undivided.attention(*leaves, **options, **asked), leaves)


@pytest.mark.parametrize("options", [{}, {"causal": "bottom_right"}, {"window": (1, 1),
                         "query_offset": 1}, {"sinks": (H,)}], ids=str)  # fmt: skip
def test_sequences_end_to_end(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    leaves = [drawn(8, H, D), drawn(10, K, D), drawn(10, K, F)]
    starts = torch.tensor([0, 3, 3, 8]), torch.tensor([0, 4, 5, 10])
    options = dict(options)
    if "sinks" in options:
        options["sinks"] = drawn(H)
        leaves.append(options["sinks"])
    names = "query_offset", "scale", "softcap", "seed"
    given = {"causal": False, "window": None, "dropout": 0.0, **dict.fromkeys(names), **options}
    for asked in ({}, {"return_lse": True}):
        found = torch_elsewhere.attention_varlen(*leaves[:3], starts, **given, **asked)
        same(found, undivided.attention_varlen(*leaves[:3], *starts, **options, **asked), leaves)


def test_dropout_is_pytorchs_own() -> None:
    q, k, v = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 4096, 4), torch.ones(1, 1, 4096, 1)
    torch.manual_seed(1)
    out, _, _ = torch_elsewhere.attention(q, k, v, **all_options(dropout=0.25))
    assert out.item() == pytest.approx(1.0, abs=0.05) and out.item() != 1.0


def test_the_front_door_leads_there() -> None:
    """Where there are shapes and no numbers; lengths and masks are on the device too."""
    q, k = torch.zeros(B, H, S, D, device="meta"), torch.zeros(B, K, T, D, device="meta")
    lengths = torch.zeros(B, dtype=torch.int64, device="meta")
    out = undivided.attention(q, k, k, causal="bottom_right", key_lengths=lengths)
    assert out.device.type == "meta" and out.shape == (B, H, S, D)
    q, k = torch.zeros(4, H, D, device="meta"), torch.zeros(6, K, D, device="meta")
    out = undivided.attention_varlen(q, k, k, [0, 3, 4], [0, 1, 6])
    assert out.device.type == "meta" and out.shape == (4, H, D)


def test_what_takes_pytorchs_place_leads_there_too() -> None:
    from undivided.torch import MultiheadAttention, sdpa

    layer = MultiheadAttention(8, 2, batch_first=True, device="meta")
    x = meta(3, 5, 8)
    out, weights = layer(x, x, x, key_padding_mask=meta(3, 5, dtype=torch.bool))
    assert out.device.type == "meta" and weights.shape == (3, 5, 5)
    assert sdpa(x, x, x, is_causal=True).device.type == "meta"


def meta(*shape: int, dtype: Any = None) -> Any:
    return torch.zeros(shape, device="meta", dtype=dtype)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"softcap": 2.0, "dropout": 0.1, "seed": 1}, "On meta attention is PyTorch's "
         "scaled_dot_product_attention, which has no 'softcap' and no 'seed'. Leave it out, "
         "or move the tensors with .cpu()."),
        ({"dropout": 0.5, "seed": 1}, "On meta attention is PyTorch's "
         "scaled_dot_product_attention, which has no 'seed'. Leave it out, or move the tensors "
         "with .cpu()."),
        ({"mask": torch.ones(2, 2, dtype=torch.bool)}, "The 'mask' of attention must be on meta, "
         "as 'query' is. Got cpu."),
        ({"mask": meta(2, 2)}, "The 'mask' of attention must be a boolean tensor, True where a "
         "query may attend, or made by undivided.masks. Got torch.float32."),
        ({"mask": meta(3, 2, dtype=torch.bool)}, "The 'mask' of attention must be of a shape that "
         "broadcasts to [B, H, S, T] = [1, 2, 2, 2]. Got [3, 2]. Add axes of length 1 where it is "
         "the same for all."),
        ({"sinks": meta(3)}, "The 'sinks' of attention must be numbers [H] = [2]. Got shape [3]."),
        ({"window": 3}, "The 'window' of attention must be (left, right), each a whole number, or "
         "−1 or None for no bound. Got 3. Write (3, 3) for both sides."),
    ],
)  # fmt: skip
def test_what_cannot_be(options: dict[str, Any], text: str) -> None:
    x = meta(1, 2, 2, 4)
    with pytest.raises(ArgumentError) as refused:
        undivided.attention(x, x, x, **options)
    assert str(refused.value) == text
