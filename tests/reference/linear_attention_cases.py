"""The rows of the conformance table for linear attention: as an operator, and in a plan."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
from case import MODULES, Case, arrays

from undivided.errors import ArgumentError

__all__ = ["LINEAR_CASES", "LinearOperatorCase", "check_beyond_differences"]


@dataclass(frozen=True)
class LinearOperatorCase(Case):
    """`linear_attention` and `linear_attention_backward` on [B, H, S, D]."""

    def forward(self, *inputs: np.ndarray, module: ModuleType | None = None) -> np.ndarray:
        operator = (module or MODULES[self.primitive]).linear_attention
        return operator(*inputs, **self.attributes)

    def backward(
        self, dy: np.ndarray, *inputs: np.ndarray, module: ModuleType | None = None
    ) -> Any:
        operator = (module or MODULES[self.primitive]).linear_attention_backward
        return operator(dy, *inputs, **self.attributes)


def _operator() -> list[Case]:
    cases: list[Case] = []
    for feature_map in ("elu", "relu", "identity"):
        for name, options in {
            "all keys": {},
            "causal": {"causal": True},
            "lengths": {"key_lengths": [3, 0]},
            "lengths, causal": {"key_lengths": [2, 4], "causal": True},
        }.items():
            for H, Hkv in ((2, 2), (2, 1)):
                shapes = (2, H, 4, 3), (2, Hkv, 4, 3), (2, Hkv, 4, 2)
                query, key, value = arrays(*shapes, seed=H + Hkv)
                if feature_map == "identity":  # weights of both signs would divide by nearly 0
                    query, key = abs(query), abs(key)
                attributes = {"feature_map": feature_map, **options}
                option = f"operator, {feature_map}, {name}"
                inputs = query, key, value
                cases.append(LinearOperatorCase("linear_attention", option, inputs, attributes))
    return cases


def _layer() -> list[Case]:
    cases = []
    for option, heads, given, query, tokens, value_width in [
        ("1 head", 1, {}, (2, 3, 4), 3, 4),
        ("1 head", 1, {}, (1, 1, 2), 1, 3),
        ("2 heads", 2, {}, (2, 3, 4), 5, 6),
        ("3 heads", 3, {}, (1, 4, 6), 2, 3),
        ("causal", 2, {"causal": True}, (2, 4, 4), 4, 6),
        ("causal", 1, {"causal": True}, (1, 1, 3), 1, 2),
        ("fewer key heads", 4, {"key_heads": 2}, (2, 3, 8), 4, 6),
        ("one key head, causal", 4, {"key_heads": 1, "causal": True}, (2, 3, 8), 3, 2),
        ("no keys", 2, {}, (2, 3, 4), 0, 4),
    ]:
        batch, _, width = query
        key_width = width // heads * given.get("key_heads", heads)
        inputs = arrays(query, (batch, tokens, key_width), (batch, tokens, value_width), seed=9)
        cases.append(Case("linear_attention", option, inputs, {"heads": heads, **given}))
    return cases


LINEAR_CASES: list[Case] = [*_operator(), *_layer()]


def check_beyond_differences(module: ModuleType = MODULES["linear_attention"]) -> None:
    """What central differences do not see."""
    check_poison(module)
    check_no_weights(module)
    check_kinks(module)
    check_feature_maps(module)


def check_poison(module: ModuleType) -> None:
    """What is not finite reaches only those that may attend: the sums are written out here."""
    options = {"causal": True, "key_lengths": [4, 2, 0]}
    d_out, *whole = arrays((3, 2, 4, 3), (3, 2, 4, 2), (3, 1, 4, 2), (3, 1, 4, 3), seed=11)
    for number, poison in product(range(4), (np.nan, np.inf)):
        for sample, row in ((0, 1), (0, 3), (1, 1), (1, 3), (2, 2)):
            inputs = [d_out.copy(), *(x.copy() for x in whole)]
            inputs[number][sample, 0, row, 0] = poison
            found = module.linear_attention_backward(*inputs, **options)
            with np.errstate(all="ignore"):
                expected = row_by_row(*inputs, lengths=options["key_lengths"])
            for a, b in zip(found, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def row_by_row(
    d_out: np.ndarray, query: np.ndarray, key: np.ndarray, value: np.ndarray, lengths: list[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The causal gradients, one query after the other, of the keys that it may attend to."""

    def phi(x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))

    def slope(x: np.ndarray) -> np.ndarray:
        return np.exp(np.minimum(x, 0))

    dq, dk, dv = (np.zeros_like(x) for x in (query, key, value))
    B, H, S, _ = query.shape
    for b, h, s in product(range(B), range(H), range(S)):
        g, seen = h * key.shape[1] // H, min(s + 1, lengths[b])
        if not seen:
            continue
        q, k, v = query[b, h, s], key[b, g, :seen], value[b, g, :seen]
        weights = phi(k) @ phi(q)
        mean = d_out[b, h, s] / weights.sum()
        d_weights = v @ mean - mean @ (weights @ v / weights.sum())
        dq[b, h, s] = d_weights @ phi(k) * slope(q)
        dk[b, g, :seen] += d_weights[:, None] * phi(q) * slope(k)
        dv[b, g, :seen] += weights[:, None] * mean
    return dq, dk, dv


def check_no_weights(module: ModuleType) -> None:
    """Features that do not meet give 0 and get nothing, whatever stands in a value."""
    query, key = np.array([[[[1.0, -1.0], [1.0, 1.0]]]]), np.array([[[[-1.0, 2.0], [-1.0, -1.0]]]])
    value, d_out = np.array([[[[np.nan], [2.0]]]]), np.array([[[[np.inf], [3.0]]]])
    dq, dk, dv = module.linear_attention_backward(
        d_out, query, key, value, feature_map="relu", key_lengths=[1]
    )
    out = module.linear_attention(query, key, value, feature_map="relu", key_lengths=[1])
    assert out[0, 0, 0] == 0 and np.isnan(out[0, 0, 1])
    assert not dq[0, 0, 0].any() and np.isnan(dq[0, 0, 1]).all()
    assert np.isnan(dk[0, 0, 0, 1]) and dk[0, 0, 0, 0] == 0  # relu's slope at −1
    np.testing.assert_array_equal(dk[0, 0, 1], 0)
    np.testing.assert_array_equal(dv[0, 0], [[3.0], [0.0]])


def check_kinks(module: ModuleType) -> None:
    """At 0 relu's slope is 0 by definition, and that of elu(x) + 1 is 1."""
    ones = np.ones((1, 1))
    zero = np.zeros((1, 1))
    assert module.relu_backward(ones, zero) == 0
    assert module.elu_backward(ones, zero) == 1


def check_feature_maps(module: ModuleType) -> None:
    """A pair of functions has gradients; one alone has none, and anything else is refused."""

    def square(x: np.ndarray) -> np.ndarray:
        return x * x

    def square_backward(d_features: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 2 * d_features * x

    inputs = arrays((1, 1, 3, 2), (1, 1, 3, 2), (1, 1, 3, 2), seed=12)
    option = {"feature_map": (square, square_backward)}
    assert LinearOperatorCase("linear_attention", "", inputs, option).check(module).ok
    for wrong in (square, "cosine", ["elu"], [square] * 2, (square,) * 3, ("a", "b"), 7):
        backward = module.linear_attention_backward
        with np.testing.assert_raises(ArgumentError):
            backward(inputs[2], *inputs, feature_map=wrong)
