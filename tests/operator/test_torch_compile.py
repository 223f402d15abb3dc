"""torch.compile takes the operator without a graph break, with everything that can be asked of it.

Compiling costs seconds, so one program holds many calls; `aot_eager` runs what PyTorch wrote down
as it is, forward and backward, without a compiler behind it.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import undivided
from undivided import masks
from undivided._operator.mask_numbers import mask_of, numbers_of
from undivided.errors import ArgumentError

torch = pytest.importorskip("torch", "2.5")

B, H, K, S, T, D, F = 2, 4, 2, 9, 13, 8, 6

MASKS = [
    masks.full(),
    masks.causal(3),
    masks.window(None, 4) & ~masks.strided(3),
    (masks.global_tokens(2) | masks.global_tokens([1, 5])) & masks.block_local(4),
    masks.random(1, block=4, seed=2**64 - 1) | masks.random(1, 4).sized(S, T),
    masks.documents([-1] * 4 + [7] * 5, [7] * 6 + [-1] * 7),
]

# Each is one call of the program; `bias` and `sinks` have gradients.
CALLS: list[dict[str, Any]] = [
    {},
    {"bias": (1, H, S, T), "scale": 0.3, "softcap": 4.0},
    {"sinks": (H,), "causal": "bottom_right", "window": (5, None)},
    {"query_lengths": [9, 4], "key_lengths": torch.tensor([13, 0])},
    {"query_offset": torch.tensor([4, 0]), "causal": True, "threads": 1},
    {"query_offset": 4, "window": (2, 2), "return_lse": True},
    {"mask": (B, 1, S, T), "return_weights": True, "return_lse": True},
    {"return_weights": ([1, 3], torch.tensor([0, 5])), "dropout": 0.3, "seed": 2**63 + 5},
    *({"mask": mask} for mask in MASKS),
]


def tensors(*shapes: tuple[int, ...], dtype: Any = torch.float32) -> list[Any]:
    torch.manual_seed(1)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def inputs(dtype: Any = torch.float32) -> list[Any]:
    return tensors((B, H, S, D), (B, K, T, D), (B, K, T, F), dtype=dtype)


def compiled(function: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


def same(program: Any, function: Any, *leaves: Any) -> None:
    """Every number of the results and of the gradients."""
    found, expected = program(*leaves), function(*leaves)
    gradients = []
    for results in (found, expected):
        loss = sum((x * x).sum() for x in results if x.requires_grad)
        gradients.append(torch.autograd.grad(loss, leaves))
    for a, b in zip((*found, *gradients[0]), (*expected, *gradients[1]), strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


def test_every_option_in_one_program() -> None:
    calls, added = [], []
    for options in CALLS:
        options = dict(options)
        for name in ("bias", "sinks"):
            if name in options:
                added += tensors(options[name])
                options[name] = 2 + len(added)
        if isinstance(options.get("mask"), tuple):
            options["mask"] = torch.rand(options["mask"]) > 0.4
        calls.append(options)

    def function(*leaves: Any) -> list[Any]:
        results: list[Any] = []
        for options in calls:
            named = {n: leaves[options[n]] for n in ("bias", "sinks") if n in options}
            found = undivided.attention(*leaves[:3], **{**options, **named})
            results += found if isinstance(found, tuple) else [found]
        return results

    same(compiled(function), function, *inputs(), *added)


def test_layouts_types_and_sequences_end_to_end() -> None:
    starts = torch.tensor([0, 4, 4, 9])

    def function(flat: Any, narrow: Any, double: Any) -> list[Any]:
        q, k, v = (x.view(2, S, 4, 4) for x in flat.chunk(3, dim=-1))
        return [
            undivided.attention(q, k, v, layout="bshd", causal=True),
            undivided.attention(flat, flat, flat, num_heads=4),
            undivided.attention(narrow, narrow, narrow, return_lse=True)[0],
            undivided.attention(double, double, double, softcap=3.0, return_lse=True)[0],
            undivided.attention_varlen(*(flat[0].view(S, 6, 8),) * 3, starts, starts, causal=True),
            undivided.attention_varlen(
                *(narrow[0].swapaxes(0, 1),) * 3, starts[1:] - 4, starts[1:] - 4
            ),
        ]

    leaves = [
        *tensors((2, S, 48)),
        *tensors((2, 2, 5, 5), dtype=torch.bfloat16),
        *tensors((2, 2, 5, 5), dtype=torch.float64),
    ]
    same(compiled(function), function, *leaves)


def test_rotary_and_linear_attention_beside_it() -> None:
    def function(q: Any, k: Any, v: Any, lengths: Any) -> list[Any]:
        turned = [
            undivided.rotary(q, pairing="halves"),
            undivided.rotary(k, torch.arange(K), offset=torch.tensor([3, 9]), layout="bshd"),
        ]
        return [
            *turned,
            undivided.linear_attention(q, k, v, feature_map="relu"),
            undivided.linear_attention(q[:, :, :5], k[:, :, :5], v[:, :, :5], causal=True),
            undivided.linear_attention(q, k, v, key_lengths=lengths),
            undivided.linear_attention(q, k, v, key_lengths=lengths, feature_map=torch.exp),
        ]

    lengths = torch.tensor([13, 4])
    same(compiled(lambda *x: function(*x, lengths)), lambda *x: function(*x, lengths), *inputs())


def test_sizes_need_not_be_known_when_it_is_compiled() -> None:
    def function(q: Any, k: Any, v: Any) -> list[Any]:
        return [undivided.attention(q, k, v, causal="bottom_right")]

    program = compiled(function, dynamic=True)
    same(program, function, *inputs())
    same(program, function, *tensors((3, H, 5, D), (3, K, 21, D), (3, K, 21, F)))


def test_another_mask_is_another_program() -> None:
    program = compiled(lambda q, k, v, mask: undivided.attention(q, k, v, mask=mask))
    with torch.no_grad():
        for mask in MASKS[1:4]:
            expected = undivided.attention(*inputs(), mask=mask)
            assert torch.equal(program(*inputs(), mask), expected)


def test_dropout_is_drawn_anew_from_torchs_generator() -> None:
    program = compiled(lambda q, k, v: undivided.attention(q, k, v, dropout=0.5))
    torch.manual_seed(3)
    first, second = program(*inputs()), program(*inputs())
    torch.manual_seed(3)
    third = program(*inputs())  # inputs() seeds too, so all three draw after the same
    assert torch.equal(first, second) and torch.equal(first, third)
    leaves = inputs()
    assert not torch.equal(program(*leaves), program(*leaves))


@pytest.mark.parametrize("mask", MASKS, ids=repr)
def test_a_mask_as_numbers(mask: masks.Mask) -> None:
    assert mask_of(numbers_of(mask)) == mask


def test_a_mask_of_ones_own_has_no_numbers() -> None:
    class Own(masks.Mask):
        pass

    with pytest.raises(ArgumentError) as refused:
        numbers_of(Own())
    assert str(refused.value) == (
        "torch.compile takes the masks of undivided.masks alone. Got Own. Give what it allows as a "
        "boolean tensor."
    )


CONSTANTS = {
    "return_weights": False,
    "return_lse": False,
    "keep": True,
    "blocks": None,
    "causal": "",
    "window": None,
    "scale": None,
    "softcap": None,
    "dropout": 0.0,
    "num_heads": None,
    "num_kv_heads": None,
    "layout": "bhsd",
    "threads": None,
}


def test_opcheck() -> None:
    from undivided._operator import linear_torch, torch_library  # noqa: F401

    operator = torch.ops.undivided.attention.default
    bias, sinks = tensors((1, H, S, T), (H,))
    torch.library.opcheck(operator, (*inputs(), bias, sinks, *[None] * 9), CONSTANTS)
    asked = {**CONSTANTS, "causal": "bottom_right", "return_weights": True, "return_lse": True}
    mask = torch.rand(B, 1, S, T) > 0.3
    some = (torch.tensor([1]), None)
    torch.library.opcheck(
        operator, (*inputs(torch.bfloat16), None, None, mask, *[None] * 6, *some), asked
    )
    linear = torch.ops.undivided.linear_attention.default
    torch.library.opcheck(linear, (*inputs(), torch.tensor([13, 2]), "elu", False))
    packed = {**CONSTANTS, "layout": "packed", "return_lse": True}
    rows = tensors((9, H, D), (11, K, D), (11, K, F))
    starts = torch.tensor([0, 4, 9]), torch.tensor([0, 4, 11])
    torch.library.opcheck(operator, (*rows, *[None] * 7, *starts, None, None), packed)


def test_a_gradients_gradient_is_refused_here_too() -> None:
    from undivided._operator import torch_library  # noqa: F401

    leaves = inputs()
    out = torch.ops.undivided.attention(*leaves, *[None] * 11, **CONSTANTS)[0]
    (gradient,) = torch.autograd.grad(out.square().sum(), leaves[0], create_graph=True)
    with pytest.raises(ArgumentError, match="has first derivatives only"):
        gradient.sum().backward()


def test_what_is_wrong_is_said_while_compiling() -> None:
    q, k, v = inputs()
    with pytest.raises(Exception, match=r"The 'key' of attention must be 8 wide, as 'query' is"):
        compiled(lambda: undivided.attention(q, k[..., :4], v))()


def test_the_first_call_of_a_process_may_be_compiled() -> None:
    program = """if True:
        import torch, undivided
        f = torch.compile(lambda x: undivided.attention(x, x, x), fullgraph=True, backend="eager")
        x = torch.ones(1, 1, 2, 3)
        assert torch.equal(f(x), x)
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
