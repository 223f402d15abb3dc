"""The rows of the conformance table for attention as an operator: options alone and together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, product
from types import ModuleType
from typing import Any

import numpy as np
from case import MODULES, Case, arrays
from plain_attention import attention_by_row

__all__ = ["OPERATOR_CASES", "OperatorCase", "check_beyond_differences", "chosen"]


@dataclass(frozen=True)
class OperatorCase(Case):
    """`attention` and `attention_backward` on [B, H, S, D]; bias and sinks are inputs too."""

    given: tuple[str, ...] = ()
    """What the inputs after query, key and value are."""
    forbidden: np.ndarray | None = None
    """Where the bias is −∞: central differences need it finite."""

    def options(self, *more: Any) -> dict[str, Any]:
        options = {**self.attributes, **dict(zip(self.given, more, strict=True))}
        if self.forbidden is not None:
            options["bias"] = np.where(self.forbidden, -np.inf, options["bias"])
        return options

    def forward(self, *inputs: np.ndarray, module: ModuleType | None = None) -> np.ndarray:
        operator = (module or MODULES[self.primitive]).attention
        return operator(*inputs[:3], **self.options(*inputs[3:]))

    def backward(
        self, dy: np.ndarray, *inputs: np.ndarray, module: ModuleType | None = None
    ) -> Any:
        operator = (module or MODULES[self.primitive]).attention_backward
        gradients = operator(dy, *inputs[:3], **self.options(*inputs[3:]))
        assert [g is not None for g in gradients[3:]] == [n in self.given for n in EXTRA]
        return tuple(gradient for gradient in gradients if gradient is not None)


EXTRA = ("bias", "sinks")

Sizes = tuple[int, int, int, int, int, int, int]

SMALL: Sizes = (2, 2, 2, 2, 3, 2, 1)
"""B, H, Hkv, S, T, D, F"""


def case(option: str, sizes: Sizes = SMALL, **options: Any) -> OperatorCase:
    """`bias` and `sinks` are given by shape, and `forbidden` goes with the bias."""
    B, H, Hkv, S, T, D, F = sizes
    shapes = [(B, H, S, D), (B, Hkv, T, D), (B, Hkv, T, F)]
    given = tuple(name for name in EXTRA if name in options)
    shapes += [options.pop(name) for name in given]
    forbidden = options.pop("forbidden", None)
    return OperatorCase(
        "attention", f"operator, {option}", arrays(*shapes), options, 1e-5, given, forbidden
    )


def chosen(*shape: int, share: float = 0.6) -> np.ndarray:
    """The same cells every time."""
    return np.random.default_rng([7, *shape]).random(shape) < share


def _plain() -> list[OperatorCase]:
    sizes: list[Sizes] = [
        (1, 1, 1, 1, 1, 1, 1),
        (2, 1, 1, 3, 3, 2, 2),
        (1, 2, 2, 2, 4, 3, 1),
        (1, 3, 3, 4, 2, 1, 2),
        (1, 2, 2, 3, 2, 0, 2),  # width 0: every score is 0
        (2, 2, 2, 3, 0, 2, 2),  # no key
    ]
    cases = [case("plain", each) for each in sizes]
    cases += [
        case("grouped", (1, 4, 2, 2, 3, 2, 1)),
        case("grouped", (2, 3, 1, 2, 2, 1, 2)),
        case("scale", scale=1.7),
        case("scale 0", scale=0.0),
        case("scale below 0", scale=-0.8),
    ]
    return cases


def _masks_and_biases() -> list[OperatorCase]:
    B, H, _, S, T, _, _ = SMALL
    shapes = [(T,), (S, T), (S, 1), (H, 1, T), (B, 1, 1, T), (B, H, S, T), (1, H, S, 1), ()]
    cases = []
    for shape in shapes:
        name = "×".join(map(str, shape)) or "one number"
        cases.append(case(f"mask {name}", mask=np.asarray(chosen(*shape) if shape else True)))
        cases.append(case(f"bias {name}", bias=shape))
        if shape:
            forbidden = chosen(*shape, share=0.3)
            cases.append(case(f"bias {name}, −∞", bias=shape, forbidden=forbidden))
    nothing = np.array([[True], [False]])
    cases.append(case("a row that may attend to nothing", mask=nothing))
    cases.append(case("… with sinks", mask=nothing, sinks=(H,)))
    cases.append(case("nothing at all", mask=np.zeros((), bool), sinks=(H,)))
    return cases


def _positions() -> list[OperatorCase]:
    wide: Sizes = (2, 1, 1, 2, 5, 1, 1)
    tall: Sizes = (2, 1, 1, 5, 2, 1, 1)
    cases = []
    for sizes in (wide, tall):
        for corner in (True, "top_left", "bottom_right"):
            cases.append(case(f"causal {corner}", sizes, causal=corner))
        cases.append(case("offset", sizes, causal=True, query_offset=2))
        cases.append(case("offset below 0", sizes, causal=True, query_offset=-1))
        cases.append(case("offsets", sizes, causal=True, query_offset=np.array([3, -1])))
        for window in [(1, 0), (0, 1), (-1, 1), (1, None), (None, -1), (0, 0)]:
            cases.append(case(f"window {window}", sizes, window=window))
        cases.append(case("window, offset", sizes, window=(1, 1), query_offset=1))
        lengths = {"query_lengths": [1, 2], "key_lengths": [2, 0]}
        for name, each in lengths.items():
            cases.append(case(name, sizes, **{name: each}))
        cases.append(case("lengths", sizes, **lengths))
        cases.append(case("lengths, bottom_right", sizes, causal="bottom_right", **lengths))
    return cases


def _large() -> list[OperatorCase]:
    """exp of these overflows unless the largest score is taken away first."""
    cases = [case("large bias", bias=(3,)), case("large sinks", sinks=(2,))]
    shift = (0, 0, 0, 1000.0)
    return [
        replace(c, inputs=tuple(x + n for x, n in zip(c.inputs, shift, strict=True)), step=1e-6)
        for c in cases
    ]


def _dropout() -> list[OperatorCase]:
    return [
        case("dropout, large seed", (1, 2, 2, 3, 4, 1, 1), dropout=0.3, seed=2**64 - 5),
        case("dropout, all words", (1, 1, 1, 1, 67, 1, 1), dropout=0.5, seed=1),
        case("dropout 0", dropout=0.0),
    ]


TOGETHER: dict[str, dict[str, Any]] = {
    "mask": {"mask": chosen(2, 1, 2, 3, share=0.8)},
    "bias": {"bias": (2, 1, 3)},
    "bias −∞": {"bias": (2, 3), "forbidden": chosen(2, 3, share=0.3)},
    "causal": {"causal": True},
    "bottom_right": {"causal": "bottom_right"},
    "window": {"window": (1, 1)},
    "query lengths": {"query_lengths": [2, 1]},
    "key lengths": {"key_lengths": np.array([2, 3])},
    "offset": {"query_offset": [1, 0]},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": (2,)},
    "dropout": {"dropout": 0.4, "seed": 5},
    "grouped": {"sizes": (2, 2, 1, 2, 3, 2, 1)},
}


def _go_together(names: tuple[str, ...]) -> bool:
    stated = [name for name in names if name in ("causal", "bottom_right", "offset")]
    biased = [name for name in names if name.startswith("bias")]
    return len(biased) < 2 and ("bottom_right" not in stated or len(stated) == 1)


def _combinations() -> list[OperatorCase]:
    """Each alone, all pairs, and some larger sets."""
    sets = [names for n in (1, 2) for names in combinations(TOGETHER, n)]
    random = np.random.default_rng(3)
    for n in (3, 4, 5, 6, 7, 8) * 4:
        sets.append(tuple(name for name in TOGETHER if name in random.permutation([*TOGETHER])[:n]))
    cases = []
    for names in filter(_go_together, dict.fromkeys(sets)):
        options = {key: value for name in names for key, value in TOGETHER[name].items()}
        cases.append(case(" + ".join(names), **options))
    return cases


OPERATOR_CASES: list[OperatorCase] = [
    *_plain(),
    *_masks_and_biases(),
    *_positions(),
    *_large(),
    *_dropout(),
    *_combinations(),
]


def check_beyond_differences(module: ModuleType = MODULES["attention"]) -> None:
    """What central differences do not see."""
    check_poison(module)
    check_types(module)
    check_lse(module)


def check_poison(module: ModuleType) -> None:
    """What is not finite reaches only what may attend: as when no other cell is even touched."""
    B, H, S, T, D, F = 2, 2, 4, 5, 2, 3
    shapes = [(B, H, S, F), (B, H, S, D), (B, H, T, D), (B, H, T, F), (B, H, S, T)]
    whole = arrays(*shapes, seed=6)
    allowed = chosen(B, H, S, T, share=0.6)
    allowed[0, 1, 2] = False
    whole[-1][0, 0, :, 1] = -1000.0  # so that a weight is 0 where it is allowed: 0·∞ is NaN
    whole[-1][:, :, 0] = np.where(chosen(B, H, T, share=0.5), -np.inf, 0)
    for number, poison in product(range(5), (np.nan, np.inf, -np.inf)):
        for place in [(0, 0, 1, 0), (0, 1, 2, 1), (1, 1, 3, 1)]:
            inputs = [x.copy() for x in whole]
            inputs[number][place] = poison
            expected = attention_by_row(*inputs, allowed & (inputs[-1] != -np.inf))
            *operands, bias = inputs
            out = module.attention(*operands[1:], mask=allowed, bias=bias)
            found = module.attention_backward(*operands, mask=allowed, bias=bias)
            for x, y in zip((out, *found), expected, strict=False):
                np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


def check_types(module: ModuleType) -> None:
    """float32 stays float32, whatever the options are given in."""
    shapes = [(1, 2, 3, 1), (1, 2, 3, 2), (1, 2, 4, 2), (1, 2, 4, 1)]
    inputs = [x.astype(np.float32) for x in arrays(*shapes)]
    numbers = {"scale": 0.4, "softcap": 2.0, "dropout": 0.3, "seed": 1}
    options: dict[str, Any] = {name: np.asarray(x)[()] for name, x in numbers.items()}
    options["bias"], options["sinks"] = arrays((3, 4), (2,))
    for chosen_options in ({}, {"scale": options["scale"]}, options):
        for gradient in module.attention_backward(*inputs, **chosen_options):
            assert gradient is None or gradient.dtype == np.float32


def check_lse(module: ModuleType) -> None:
    """The log of the sum over keys and sink; −∞ where a query is padding."""
    query, key, value, sinks = arrays((1, 2, 3, 2), (1, 2, 4, 2), (1, 2, 4, 1), (2,))
    options = {"sinks": sinks, "query_lengths": [2]}
    _, lse = module.attention(query, key, value, **options, return_lse=True)
    z = np.einsum("bhsd,bhtd->bhst", query, key) / np.sqrt(2)
    expected = np.log(np.exp(z).sum(axis=-1) + np.exp(sinks)[:, None])
    expected[..., 2] = -np.inf
    np.testing.assert_allclose(lse, expected, rtol=1e-12)
