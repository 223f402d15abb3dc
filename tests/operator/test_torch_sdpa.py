"""undivided.torch.sdpa is torch.nn.functional.scaled_dot_product_attention, with 0 for NaN."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from undivided.errors import ArgumentError

torch = pytest.importorskip("torch", "2.5")
F = torch.nn.functional

from undivided.torch import sdpa  # noqa: E402


def drawn(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def same(q: Any, k: Any, v: Any, **options: Any) -> None:
    """Out and all gradients as PyTorch's own formulas have them in float64."""
    leaves = [q, k, v]
    mask = options.get("attn_mask")
    if mask is not None and mask.requires_grad:
        leaves.append(mask)
    found = sdpa(q, k, v, **options)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = F.scaled_dot_product_attention(q, k, v, **options)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    d_out = torch.randn_like(expected)
    gradients = [torch.autograd.grad(out, leaves, d_out) for out in (found, expected)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


LEADS = [(), (3,), (2, 3), (2, 1, 3), (2, 2, 1, 3)]


@pytest.mark.parametrize("lead", LEADS, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_any_number_of_leading_axes(lead: tuple[int, ...], is_causal: bool) -> None:
    torch.manual_seed(1)
    same(drawn(*lead, 5, 4), drawn(*lead, 7, 4), drawn(*lead, 7, 6), is_causal=is_causal)


@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_masks_of_every_shape_that_broadcasts(lead: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    q, k, v = drawn(*lead, 5, 4), drawn(*lead, 7, 4), drawn(*lead, 7, 6)
    whole = (*lead, 5, 7)
    for dropped in range(len(whole) - 1):
        for ones in itertools.product([False, True], repeat=len(whole) - dropped):
            shape = [1 if one else n for n, one in zip(whole[dropped:], ones, strict=True)]
            mask = torch.rand(shape) > 0.3
            mask[..., 0] = True  # PyTorch's gradient of an empty row is not ours to judge here
            if sum(ones) % 2:
                same(q, k, v, attn_mask=mask, scale=0.7)
            else:
                same(q, k, v, attn_mask=drawn(*shape))


@pytest.mark.parametrize("lead", [(), (2,), (2, 2)], ids=str)
@pytest.mark.parametrize("heads", [1, 2])
def test_shared_heads(lead: tuple[int, ...], heads: int) -> None:
    torch.manual_seed(3)
    q, k, v = drawn(*lead, 4, 5, 3), drawn(*lead, heads, 6, 3), drawn(*lead, heads, 6, 2)
    same(q, k, v, enable_gqa=True, is_causal=True)
    same(q, k, v, enable_gqa=True, attn_mask=torch.rand(4, 5, 6) > 0.2)


def test_leading_axes_broadcast() -> None:
    torch.manual_seed(4)
    same(drawn(2, 1, 5, 4), drawn(1, 3, 6, 4), drawn(3, 6, 4))


def test_a_row_that_may_attend_to_nothing_is_0_with_gradients_0() -> None:
    torch.manual_seed(5)
    q, k, v = drawn(2, 3, 4), drawn(2, 5, 4), drawn(2, 5, 4)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[1] = False
    for attn_mask in (mask, torch.zeros(3, 5).masked_fill(~mask, -torch.inf)):
        out = sdpa(q, k, v, attn_mask=attn_mask)
        assert not out[:, 1].any() and out[:, 0].all()
        dq, dk, dv = torch.autograd.grad(out.square().sum(), (q, k, v))
        assert not dq[:, 1].any() and dk.isfinite().all() and dv.isfinite().all()


def test_dropout_follows_torchs_seed_and_keeps_the_mean() -> None:
    q, k = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 4096, 4)
    v = torch.ones(1, 1, 4096, 1)
    torch.manual_seed(6)
    first = sdpa(q, k, v, dropout_p=0.25)
    second = sdpa(q, k, v, dropout_p=0.25)
    torch.manual_seed(6)
    assert torch.equal(first, sdpa(q, k, v, dropout_p=0.25)) and not torch.equal(first, second)
    assert first.item() == pytest.approx(1.0, abs=0.05) and first.item() != 1.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_narrower_types(dtype: Any) -> None:
    torch.manual_seed(7)
    q, k, v = (drawn(2, 3, 6, 8).detach() for _ in range(3))
    narrow = sdpa(*(x.to(dtype) for x in (q, k, v)), is_causal=True)
    wide = sdpa(*(x.to(dtype).double() for x in (q, k, v)), is_causal=True)
    assert narrow.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(narrow.double(), wide, rtol=2 * eps, atol=2 * eps)


Q, K = torch.zeros(2, 3, 4), torch.zeros(2, 5, 4)


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (
            (Q[0, 0], K, K),
            {},
            "The 'query' of sdpa must be a tensor [..., rows, width]. Got shape [4].",
        ),
        (
            (Q, [1], K),
            {},
            "The 'key' of sdpa must be a tensor [..., rows, width]. Got list.",
        ),
        (
            (Q, K, K),
            {"is_causal": True, "attn_mask": torch.zeros(3, 5)},
            "The 'attn_mask' of sdpa must be left out with is_causal=True. Got both. Put one in "
            "the other.",
        ),
        (
            (Q, K, K),
            {"attn_mask": torch.zeros(3, 5, dtype=torch.int64)},
            "The 'attn_mask' of sdpa must be boolean or of floats. Got torch.int64.",
        ),
        (
            (Q, K, K),
            {"attn_mask": torch.zeros(5, 3)},
            "The 'attn_mask' of sdpa must be of a shape that broadcasts to [2, 3, 5]. Got [5, 3].",
        ),
        (
            (torch.zeros(4, 3, 4), K, K),
            {},
            "The 'query, key and value' of sdpa must be alike in their leading axes. Got "
            "[4, 3, 4], [2, 5, 4], [2, 5, 4]. Fewer heads of keys than of queries need "
            "enable_gqa=True.",
        ),
        (
            (Q, K, K),
            {"dropout_p": 1.0},
            "The 'dropout' of attention must be a number from 0 to below 1. Got 1.0.",
        ),
        (
            (Q, K[..., :3], K),
            {},
            "The 'key' of attention must be 4 wide, as 'query' is. Got 3. The shapes, "
            "[batch, heads, rows, width]: query [1, 2, 3, 4], key [1, 2, 5, 3], "
            "value [1, 2, 5, 4].",
        ),
    ],
)
def test_what_cannot_be(arguments: Any, options: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        sdpa(*arguments, **options)
    assert str(refused.value) == text
