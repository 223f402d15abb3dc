"""The conformance table: every primitive × option × shape whose backward is checked.

One row is one check. Tests compare each with central differences and with PyTorch's autograd,
and `tests/mutate.py` runs them against broken backward passes.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from attention_cases import OPERATOR_CASES
from case import MODULES, Case, arrays
from linear_attention_cases import LINEAR_CASES

from undivided import masks
from undivided.engines.reference import activation

__all__ = ["CASES", "MODULES", "Case", "arrays", "check_relu_at_its_kink", "labels"]


FUNCTIONS = ("relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "leaky_relu")


def check_relu_at_its_kink(module: ModuleType = activation) -> None:
    """Differences say nothing about 0 itself: there the derivative is 0 by definition."""
    x = np.array([[-1.0, -0.0, 0.0, 1.0]])
    np.testing.assert_array_equal(module.forward(x, "relu"), [[0, 0, 0, 1]])
    np.testing.assert_array_equal(module.backward(np.ones_like(x), x, "relu"), [[0, 0, 0, 1]])
    leak = [[0.01, 0.01, 0.01, 1]]
    np.testing.assert_array_equal(module.backward(np.ones_like(x), x, "leaky_relu"), leak)


def labels(count: int, classes: int) -> np.ndarray:
    return np.arange(count) * 7 % classes


def _rescale() -> list[Case]:
    return [
        Case("rescale", option, arrays(shape), attributes)
        for option, attributes in {
            "scale": {"scale": 1 / 255, "offset": 0.0},
            "scale and offset": {"scale": -2.5, "offset": 0.75},
        }.items()
        for shape in [(2, 3), (2, 3, 4), (1, 2, 2, 2)]
    ]


def _unfold() -> list[Case]:
    shapes = {
        "square": ((2, 2), [(2, 4, 4), (1, 2, 6), (2, 2, 2)]),
        "tall": ((3, 1), [(2, 3, 2), (1, 6, 3)]),
        "wide": ((1, 2), [(2, 3, 4)]),
        "square, channels": ((2, 2), [(2, 4, 4, 3), (1, 4, 2, 1)]),
        "wide, channels": ((1, 3), [(2, 3, 6, 2), (3, 2, 3, 2)]),
    }
    return [
        Case("unfold", option, arrays(shape), {"size": size})
        for option, (size, xs) in shapes.items()
        for shape in xs
    ]


def _linear() -> list[Case]:
    cases = []
    for x, units in [
        ((1, 1), 1),
        ((3, 4), 2),
        ((1, 5), 3),
        ((2, 3, 4), 5),
        ((2, 1, 3), 3),
        ((1, 4, 2), 4),
        ((2, 2, 2, 3), 2),
    ]:
        cases.append(Case("linear", "no bias", arrays(x, (x[-1], units))))
        cases.append(Case("linear", "bias", arrays(x, (x[-1], units), (units,))))
    return cases


def _tied() -> list[Case]:
    cases = []
    for x, units in [((3, 4), 2), ((2, 3, 4), 5), ((1, 2, 3), 3), ((2, 2, 2, 3), 4)]:
        turned = {"turned": True}
        shape = (units, x[-1])
        cases.append(Case("linear", "turned, no bias", arrays(x, shape), turned))
        cases.append(Case("linear", "turned, bias", arrays(x, shape, (units,)), turned))
    return cases


def _embed() -> list[Case]:
    cases = []
    for shape, vocabulary, width in [
        ((1, 1), 1, 2),
        ((2, 3), 4, 3),
        ((3, 4), 2, 1),
        ((2, 5), 9, 4),
    ]:
        ids = np.arange(np.prod(shape)).reshape(shape) ** 2 % vocabulary
        cases.append(Case("embed", "ids", (ids, *arrays((vocabulary, width)))))
    return cases


def _rotary() -> list[Case]:
    return [
        Case("rotary", f"{heads} heads, base {base:g}", arrays(x), {"heads": heads, "base": base})
        for heads, x in [
            (1, (2, 3, 4)),
            (2, (1, 4, 8)),
            (2, (2, 3, 6)),
            (3, (1, 2, 3)),
            (1, (1, 5, 5)),
        ]
        for base in (10000.0, 10.0)
    ] + [
        Case("rotary", f"{heads} heads, further on", arrays(x), {"heads": heads, "offset": offset})
        for heads, x, offset in [(2, (2, 3, 8), 4), (1, (1, 2, 5), 1)]
    ]


def _rms_normalize_heads() -> list[Case]:
    return [
        Case(
            "rms_normalize",
            f"{heads} heads",
            arrays(x, (x[-1] // heads,)),
            {"epsilon": epsilon, "heads": heads},
        )
        for heads, x in [(2, (2, 3, 8)), (3, (1, 2, 12)), (2, (3, 6))]
        for epsilon in (1e-5,)
    ]


def _attention_options() -> list[Case]:
    """What attention may be told besides heads, in shapes where it makes a difference."""
    options: dict[str, dict[str, Any]] = {
        "causal": {"causal": True},
        "window": {"window": (1, 0)},
        "window to one side": {"window": (None, 1)},
        "fewer key heads": {"key_heads": 2},
        "one key head, causal": {"key_heads": 1, "causal": True},
        "softcap": {"softcap": 0.7},
        "pattern": {"pattern": masks.strided(2) | masks.global_tokens(1)},
        "alibi": {"alibi": True},
        "alibi, causal, fewer key heads": {"alibi": True, "causal": True, "key_heads": 2},
        "causal, further on": {"causal": True, "offset": 1},
        "window, further on": {"window": (1, 0), "offset": 2},
        "pattern, further on": {"pattern": masks.strided(2), "offset": 1},
        "alibi, further on": {"alibi": True, "causal": True, "offset": 2},
    }
    cases = []
    for S, T in ((4, 4), (3, 5)):
        for name, given in options.items():
            heads = given.get("key_heads", 4)
            q, k, v = arrays((2, S, 8), (2, T, 2 * heads), (2, T, 3 * heads), seed=5)
            attributes = {"heads": 4, "scale": 0.7, **given}
            cases.append(Case("attention", f"{name}, layer", (q, k, v), attributes))
        kept = np.random.default_rng(7).random((2, 4, S, T)) < 0.6
        q, k, v = arrays((2, S, 8), (2, T, 8), (2, T, 12), seed=5)
        dropped = {"heads": 4, "scale": 0.7, "dropout": 0.4, "kept": kept}
        cases.append(Case("attention", "dropout, layer", (q, k, v), dropped))
        for name, given in {
            "relative": {"max_distance": 128},
            "relative, causal": {"causal": True, "max_distance": 128},
            "relative, near": {"max_distance": 3},
            "relative, further on": {"max_distance": 3, "offset": 2},
            "relative, causal, fewer key heads": {
                "causal": True,
                "key_heads": 2,
                "max_distance": 9,
            },
        }.items():
            heads = given.get("key_heads", 4)
            shapes = (2, S, 8), (2, T, 2 * heads), (2, T, 3 * heads), (8, 4)
            attributes = {"heads": 4, "scale": 0.7, **given}
            cases.append(Case("attention", f"{name}, layer", arrays(*shapes, seed=6), attributes))
    return cases


def _position() -> list[Case]:
    shapes = [(1, 1, 2), (2, 3, 4), (3, 2, 5), (1, 6, 3)]
    longer = [
        Case("position", "longer table", arrays(x, (x[1] + extra, x[2])))
        for x, extra in [((2, 3, 4), 1), ((1, 1, 2), 3)]
    ]
    further = [
        Case("position", "table, further on", arrays(x, (x[1] + 3, x[2])), {"offset": offset})
        for x, offset in [((2, 3, 4), 2), ((1, 1, 2), 3)]
    ]
    further += [Case("position", "sinusoidal, further on", arrays((2, 3, 4)), {"offset": 5})]
    return (
        longer
        + further
        + [Case("position", "sinusoidal", arrays(x)) for x in shapes]
        + [Case("position", "table", arrays(x, x[1:])) for x in shapes]
    )


def _attention() -> list[Case]:
    cases = []
    for heads, query, tokens, value_width in [
        (1, (2, 3, 4), 3, 4),
        (1, (1, 1, 2), 1, 2),
        (1, (2, 3, 2), 5, 3),
        (2, (2, 3, 4), 3, 4),
        (2, (1, 4, 2), 4, 2),
        (2, (2, 2, 4), 3, 6),
        (3, (1, 3, 6), 2, 3),
        (4, (2, 2, 4), 2, 4),
    ]:
        batch, _, width = query
        key, value = (batch, tokens, width), (batch, tokens, value_width)
        attributes = {"heads": heads, "scale": (width // heads) ** -0.5}
        name = f"{heads} heads"
        cases.append(Case("attention", name, arrays(query, key, value), attributes))
        if query[1] > 1:
            # The scale is an argument of its own: here it is not 1/√d, and rows are sharp.
            sharp = {"heads": heads, "scale": 3.0}
            cases.append(
                Case("attention", f"{name}, sharp", arrays(query, key, value, seed=1), sharp)
            )
    # Scores near 900, whose exp overflows unless the largest is taken away first.
    query, key, value = arrays((2, 3, 4), (2, 3, 4), (2, 3, 4), seed=2)
    query[:, :2, ::2] = key[..., ::2] = 30.0  # but not in the last row, which stays near 0
    large = {"heads": 2, "scale": 1.0}
    cases.append(Case("attention", "2 heads, large", (query, key, value), large, step=5e-7))
    # No key to look at.
    query, nothing, nothings = arrays((2, 3, 4), (2, 0, 4), (2, 0, 6))
    even = {"heads": 2, "scale": 0.5}
    cases.append(Case("attention", "2 heads, no keys", (query, nothing, nothings), even))
    # Every query and key the same: the weights are even.
    query, key = np.full((2, 3, 4), 0.5), np.full((2, 3, 4), 0.25)
    cases.append(Case("attention", "2 heads, even", (query, key, value), even))
    return cases


def _normalize() -> list[Case]:
    cases = []
    for x in [(3, 4), (2, 3, 4), (2, 1, 5), (1, 2, 2), (2, 2, 2, 3)]:
        shapes = (x, x[-1:], x[-1:])
        for name, epsilon in {"small epsilon": 1e-5, "large epsilon": 0.5}.items():
            cases.append(Case("normalize", name, arrays(*shapes), {"epsilon": epsilon}))
    x, gain, shift = arrays((2, 3, 4), (4,), (4,), seed=3, scale=10.0)
    cases.append(Case("normalize", "far from 0", (x + 100.0, gain, shift), {"epsilon": 1e-5}))
    return cases


def _activation() -> list[Case]:
    shapes = [(3, 4), (2, 3, 4), (1, 1), (2, 2, 2, 2)]
    cases = [
        Case("activation", function, arrays(x, scale=1.5), {"function": function})
        for function in FUNCTIONS
        for x in shapes
    ]
    tails = np.array([[-9.0, -6.0, -3.0, -1e-3, 0.0, 1e-3, 3.0, 6.0, 9.0]])
    away = tails[tails != 0.0][None, :]
    for function in FUNCTIONS:
        at = away if "relu" in function else tails
        cases.append(Case("activation", f"{function}, tails", (at,), {"function": function}))
    return cases


def _softmax() -> list[Case]:
    cases = [Case("softmax", "rows", arrays(x)) for x in [(1, 1), (3, 4), (2, 3, 5)]]
    large = arrays((2, 4))[0] + np.array([[800.0], [-800.0]])
    return [*cases, Case("softmax", "far from 0", (large,), step=1e-8)]


def _multiply() -> list[Case]:
    return [Case("multiply", "two values", arrays(x, x)) for x in [(3, 4), (2, 3, 4), (1, 1)]]


def _dropout() -> list[Case]:
    cases = []
    for x in [(3, 4), (2, 3, 5), (1, 1)]:
        kept = np.random.default_rng(7).random(x) < 0.6
        cases.append(Case("dropout", "some kept", arrays(x), {"rate": 0.4, "kept": kept}))
        cases.append(Case("dropout", "outside training", arrays(x), {"rate": 0.4}))
    return cases


WINDOWS = [
    ("touching", (2, 2), (2, 2), ((0, 0), (0, 0)), [(2, 4, 4, 3), (1, 2, 6)]),
    ("overlapping", (3, 2), (1, 1), ((0, 0), (0, 0)), [(2, 4, 3, 2), (1, 3, 5)]),
    ("with gaps", (1, 2), (2, 3), ((0, 0), (0, 0)), [(2, 4, 6, 2)]),
    ("padded", (3, 3), (2, 1), ((0, 1), (1, 1)), [(2, 4, 3, 2), (1, 2, 2)]),
    ("padded above too", (3, 3), (1, 1), ((1, 1), (1, 1)), [(2, 3, 4, 2), (3, 2, 2)]),
]


def _windows() -> list[Case]:
    return [
        Case("windows", option, arrays(x), {"size": size, "strides": strides, "pads": pads})
        for option, size, strides, pads, shapes in WINDOWS
        for x in shapes
    ]


def _max_pool() -> list[Case]:
    cases = [
        Case("max_pool", option, arrays(x), {"size": size, "strides": strides, "pads": pads})
        for option, size, strides, pads, shapes in WINDOWS
        for x in shapes
        if len(x) == 4
    ]
    return cases + [
        Case("max_pool", "tokens", arrays(x)) for x in [(2, 5, 3), (1, 1, 4), (2, 0, 3)]
    ]


def _moves() -> list[Case]:
    cases = [
        Case("permute", str(axes), arrays(x), {"axes": axes})
        for x, axes in [((2, 3, 4), (1, 0)), ((1, 2, 3, 4), (2, 0, 1)), ((2, 3, 2, 5), (1, 0, 2))]
    ]
    cases += [
        Case("pick", f"token {index}", arrays(x), {"index": index})
        for x, index in [((2, 3, 4), 0), ((1, 4, 2), 3), ((2, 1, 3), 0)]
    ]
    cases += [
        Case("learned", "rows", arrays(x, table))
        for x, table in [((2, 3, 4), (1, 4)), ((3, 5), (2, 5))]
    ]
    cases += [
        Case("concatenate", "two sequences", arrays(x, y))
        for x, y in [((2, 1, 4), (2, 3, 4)), ((1, 3, 2), (1, 2, 2))]
    ]
    return cases


def _rms_normalize() -> list[Case]:
    return [
        Case("rms_normalize", name, arrays(x, x[-1:]), {"epsilon": epsilon})
        for x in [(3, 4), (2, 3, 4), (2, 1, 5), (2, 2, 2, 3)]
        for name, epsilon in {"small epsilon": 1e-5, "large epsilon": 0.5}.items()
    ]


def _add() -> list[Case]:
    return [Case("add", "two values", arrays(x, x)) for x in [(3, 4), (2, 3, 4), (1, 1)]]


def _pool() -> list[Case]:
    shapes = [(2, 3, 4), (1, 1, 2), (3, 5, 1), (2, 2, 3)]
    cases = [Case("pool", "mean", arrays(x)) for x in shapes]
    return [*cases, Case("pool", "no tokens", arrays((2, 0, 3)))]


def _reshape() -> list[Case]:
    return [
        Case("reshape", option, arrays(x), {"shape": shape})
        for option, x, shape in [
            ("flatten", (2, 3, 4), (12,)),
            ("flatten", (2, 3), (3,)),
            ("flatten", (1, 2, 3, 2), (12,)),
            ("split", (2, 6), (3, 2)),
            ("regroup", (2, 4, 3), (2, 6)),
        ]
    ]


def _cross_entropy() -> list[Case]:
    cases = [
        Case("cross_entropy", "logits", (*arrays(x, scale=2.0), labels(*x)))
        for x in [(1, 2), (3, 4), (4, 3), (2, 10)]
    ]
    (logits,) = arrays((3, 4), seed=4)
    shifts = {
        "large logits": 1000.0,
        "small logits": -1000.0,
        "large and small rows": np.array([[1000.0], [0.0], [-1000.0]]),
    }
    for option, shift in shifts.items():
        cases.append(Case("cross_entropy", option, (logits + shift, labels(3, 4)), step=1e-8))
    cases.append(Case("cross_entropy", "sure and wrong", (logits * 15.0, labels(3, 4))))
    for shape in [(3, 4), (2, 3, 5), (2, 1, 2)]:
        (logits,) = arrays(shape, scale=2.0, seed=5)
        classes = labels(len(logits[..., 0].ravel()), shape[-1]).reshape(shape[:-1])
        onehot = np.eye(shape[-1])[classes]
        uneven = shares(shape) / shares(shape).sum(axis=-1, keepdims=True)
        for option, attributes in {
            "smoothed": {"target": classes, "label_smoothing": 0.3},
            "one-hot": {"target": onehot},
            "distribution": {"target": uneven},
            "distribution, smoothed": {"target": uneven, "label_smoothing": 0.2},
            "weighted rows of targets": {"target": 1.5 * shares(shape)},
        }.items():
            cases.append(Case("cross_entropy", option, (logits,), attributes))
    return cases


def shares(shape: tuple[int, ...]) -> np.ndarray:
    """Numbers from 0 to 1."""
    return np.random.default_rng([7, *shape]).random(shape)


def _binary_cross_entropy() -> list[Case]:
    cases = []
    for shape in [(2, 1), (3, 4), (2, 3, 5)]:
        (logits,) = arrays(shape, scale=2.0, seed=6)
        for option, attributes in {
            "yes or no": {"target": np.round(shares(shape))},
            "shares": {"target": shares(shape)},
            "smoothed": {"target": shares(shape), "label_smoothing": 0.3},
        }.items():
            cases.append(Case("binary_cross_entropy", option, (logits,), attributes))
    sure = np.array([[900.0, -900.0, 20.0, -20.0]])
    for option, target in {"sure and right": [1, 0, 1, 0], "sure and wrong": [0, 1, 0, 1]}.items():
        given = {"target": np.array([target], float)}
        cases.append(Case("binary_cross_entropy", option, (sure,), given))
    return cases


def _deviation() -> list[Case]:
    cases = []
    for shape in [(2, 1), (3, 4), (2, 3, 5)]:
        y, target = arrays(shape, shape, seed=8)
        for option, attributes in {
            "squared": {"measure": "squared"},
            "absolute": {"measure": "absolute"},
            "huber": {"measure": "huber"},
            "huber, small": {"measure": "huber", "delta": 0.3},
            "huber, large": {"measure": "huber", "delta": 30.0},
        }.items():
            cases.append(Case("deviation", option, (y,), {"target": target, **attributes}))
    return cases


CASES: list[Case] = [
    *_rescale(),
    *_unfold(),
    *_linear(),
    *_position(),
    *_attention(),
    *_attention_options(),
    *_tied(),
    *_embed(),
    *_rotary(),
    *_rms_normalize_heads(),
    *OPERATOR_CASES,
    *LINEAR_CASES,
    *_normalize(),
    *_rms_normalize(),
    *_activation(),
    *_softmax(),
    *_add(),
    *_multiply(),
    *_dropout(),
    *_windows(),
    *_max_pool(),
    *_moves(),
    *_pool(),
    *_reshape(),
    *_cross_entropy(),
    *_binary_cross_entropy(),
    *_deviation(),
]
