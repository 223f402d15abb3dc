"""undivided.torch.MultiheadAttention is torch.nn.MultiheadAttention, with 0 for NaN."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import pytest

import undivided
from undivided.errors import ArgumentError

torch = pytest.importorskip("torch", "2.5")
nn = torch.nn

from undivided.torch import MultiheadAttention  # noqa: E402

E, H, N, L, S = 12, 3, 2, 5, 7


def pair(**options: Any) -> tuple[Any, Any]:
    """PyTorch's own and undivided's, with the same parameters."""
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(E, H, dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.4)
    ours = MultiheadAttention(E, H, dtype=torch.float64, **options)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return theirs, ours


def same(theirs: Any, ours: Any, inputs: list[Any], **options: Any) -> None:
    """Results, weights, and the gradients of every input and parameter."""
    outs, gradients = [], []
    for module in (theirs, ours):
        out, weights = module(*inputs, **options)
        outs.append((out, weights))
        leaves = list(dict.fromkeys(inputs)) + list(module.parameters())
        results = [out] if weights is None else [out, weights]
        given = [torch.linspace(-1, 1, x.numel(), dtype=x.dtype).reshape(x.shape) for x in results]
        gradients.append(torch.autograd.grad(results, leaves, given))
    (expected, expected_weights), (found, found_weights) = outs
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert (found_weights is None) == (expected_weights is None)
    if found_weights is not None:
        torch.testing.assert_close(found_weights, expected_weights, rtol=1e-10, atol=1e-12)
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-12)


def drawn(*shape: int) -> Any:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def inputs_for(batch_first: bool, batched: bool = True, kdim: int = E, vdim: int = E) -> list[Any]:
    shapes = [(L, E), (S, kdim), (S, vdim)]
    if batched:
        shapes = [(N, r, w) if batch_first else (r, N, w) for r, w in shapes]
    return [drawn(*shape) for shape in shapes]


CONSTRUCTED = [
    {},
    {"bias": False},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"add_bias_kv": True, "add_zero_attn": True, "bias": False},
    {"kdim": 5, "vdim": 4},
    {"kdim": 5, "bias": False, "add_bias_kv": True},
]


def masks_for(batched: bool) -> list[dict[str, Any]]:
    torch.manual_seed(2)
    forbidden = torch.rand(L, S) > 0.6
    forbidden[:, 0] = False
    of_heads = torch.rand((N if batched else 1) * H, L, S) > 0.6
    of_heads[..., 0] = False
    ignored = torch.rand(*((N, S) if batched else (S,))) > 0.6
    ignored[..., 0] = False
    added = torch.randn(L, S, dtype=torch.float64)
    return [
        {},
        {"attn_mask": forbidden},
        {"attn_mask": of_heads, "key_padding_mask": ignored},
        {"attn_mask": added.masked_fill(forbidden, -torch.inf)},
        {"key_padding_mask": ignored},
        {"attn_mask": added, "key_padding_mask": torch.randn(ignored.shape, dtype=torch.float64)},
    ]


@pytest.mark.parametrize("constructed", CONSTRUCTED, ids=str)
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("batched", [True, False])
def test_the_same_numbers(constructed: dict[str, Any], batch_first: bool, batched: bool) -> None:
    theirs, ours = pair(batch_first=batch_first, **constructed)
    widths = {name: constructed.get(name, E) for name in ("kdim", "vdim")}
    inputs = inputs_for(batch_first, batched, **widths)
    asked = itertools.cycle(
        [
            {"need_weights": False},
            {"need_weights": True},
            {"need_weights": True, "average_attn_weights": False},
        ]
    )
    for masks in masks_for(batched):
        same(theirs, ours, inputs, **masks, **next(asked))
        same(theirs, ours, inputs, **masks, **next(asked))


@pytest.mark.parametrize("batch_first", [False, True])
def test_of_itself(batch_first: bool) -> None:
    theirs, ours = pair(batch_first=batch_first)
    x = drawn(N, L, E)
    same(theirs, ours, [x, x, x])
    memory = drawn(N, L, E)
    same(theirs, ours, [x, memory, memory], need_weights=False)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("constructed", CONSTRUCTED[:1] + CONSTRUCTED[2:4], ids=str)
def test_causal(constructed: dict[str, Any], need_weights: bool) -> None:
    theirs, ours = pair(batch_first=True, **constructed)
    x = drawn(N, L, E)
    mask = nn.Transformer.generate_square_subsequent_mask(L, dtype=torch.float64)
    same(theirs, ours, [x, x, x], attn_mask=mask, need_weights=need_weights)
    if not constructed:  # with a key of its own PyTorch's short cut hides that key
        same(theirs, ours, [x, x, x], attn_mask=mask, is_causal=True, need_weights=need_weights)
    padding = torch.zeros(N, L, dtype=torch.bool)
    padding[1, 3:] = True
    same(
        theirs, ours, [x, x, x], attn_mask=mask == -torch.inf, is_causal=True,
        key_padding_mask=padding, need_weights=need_weights,
    )  # fmt: skip


def test_asking_for_weights_changes_no_bit() -> None:
    ours = MultiheadAttention(E, H)
    x = torch.randn(L, N, E)
    assert torch.equal(ours(x, x, x, need_weights=True)[0], ours(x, x, x, need_weights=False)[0])


def test_a_query_that_may_attend_to_nothing() -> None:
    theirs, ours = pair(batch_first=True)
    x = drawn(N, L, E)
    padding = torch.zeros(N, L, dtype=torch.bool)
    padding[1] = True
    assert theirs(x, x, x, key_padding_mask=padding)[0].isnan().any()
    out, weights = ours(x, x, x, key_padding_mask=padding)
    assert torch.equal(out[1], ours.out_proj.bias.expand(L, E))
    assert not weights[1].any()
    gradients = torch.autograd.grad(out.sum(), [x, *ours.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][1].any()


def test_dropout_in_training_alone() -> None:
    ours = MultiheadAttention(E, H, dropout=0.5)
    x = torch.randn(L, N, E)
    torch.manual_seed(3)
    first = ours(x, x, x)[0]
    torch.manual_seed(3)
    assert torch.equal(first, ours(x, x, x)[0])
    assert not torch.equal(first, ours(x, x, x)[0])
    ours.eval()
    assert torch.equal(ours(x, x, x)[0], ours(x, x, x)[0])


def test_it_takes_the_place_of_torchs_own() -> None:
    theirs = inspect.signature(nn.MultiheadAttention.forward).parameters
    ours = inspect.signature(MultiheadAttention.forward).parameters
    assert [(p.name, p.default) for p in ours.values()] == [
        (p.name, p.default) for p in theirs.values()
    ]
    torch.manual_seed(4)
    expected = nn.MultiheadAttention(E, H, dropout=0.1, batch_first=True)
    torch.manual_seed(4)
    drawn_alike = MultiheadAttention(E, H, dropout=0.1, batch_first=True)
    for a, b in zip(expected.parameters(), drawn_alike.parameters(), strict=True):
        assert torch.equal(a, b)
    layer = nn.TransformerEncoderLayer(E, H, 16, batch_first=True, dropout=0.0)
    x = torch.randn(N, L, E)
    before = layer(x)
    drawn_alike.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = drawn_alike.eval()
    torch.testing.assert_close(layer(x), before)


def test_it_compiles_in_one_piece() -> None:
    ours = MultiheadAttention(E, H, batch_first=True, add_bias_kv=True)
    torch._dynamo.reset()
    program = torch.compile(ours, fullgraph=True, backend="aot_eager")
    x = torch.randn(N, L, E)
    padding = torch.zeros(N, L, dtype=torch.bool)
    padding[1, 3:] = True
    results = [f(x, x, x, key_padding_mask=padding) for f in (program, ours)]
    for found, expected in zip(*results, strict=True):
        assert torch.equal(found, expected)
    gradients = [torch.autograd.grad(out.sum(), list(ours.parameters())) for out, _ in results]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)


X, Y = torch.zeros(L, N, E), torch.zeros(S, N, E)


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((X[0, 0], Y, Y), {}, "'query' of MultiheadAttention must be [L, N, E], or [L, E] without"
         " a batch. Got [12]."),
        ((X, Y[0], Y), {}, "'key' of MultiheadAttention must be of 3 axes, as query is. Got "
         "[2, 12]."),
        ((X, Y, Y[..., :5]), {}, "'value' of MultiheadAttention must be 12 wide. Got [7, 2, 5]."),
        ((X, Y, Y), {"is_causal": True}, "'attn_mask' of MultiheadAttention must be given with "
         "is_causal=True, which only promises that it is causal. Got None. See "
         "nn.Transformer.generate_square_subsequent_mask."),
        ((X, Y, Y), {"attn_mask": torch.zeros(S, L)}, "'attn_mask' of MultiheadAttention must be "
         "of shape [5, 7] or [6, 5, 7]. Got [7, 5]."),
        ((X, Y, Y), {"key_padding_mask": torch.zeros(S, N)}, "'key_padding_mask' of "
         "MultiheadAttention must be of shape [2, 7]. Got [7, 2]."),
        ((X, Y, Y), {"attn_mask": torch.zeros(L, S, dtype=torch.int64)}, "'attn_mask' of "
         "MultiheadAttention must be boolean or of floats. Got torch.int64."),
        ((X, Y[:, :1], Y[:, :1]), {}, "The 'key' of attention must be of a batch of 2, as 'query' "
         "is. Got 1."),
    ],
)  # fmt: skip
def test_what_cannot_be(arguments: Any, options: Any, text: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        MultiheadAttention(E, H)(*arguments, **options)
    assert text in str(refused.value)


def test_the_name_leads_there() -> None:
    assert undivided.torch.MultiheadAttention is MultiheadAttention
