"""Break every backward pass on purpose, one small change at a time, and see that it is noticed.

    python tests/mutate.py                  all of them
    python tests/mutate.py attention        those of some primitives

A change flips a sign, drops a term, a factor or a whole statement, swaps operands, forgets a
transposition, moves an index by one … in everything that backward uses in a module of
`engines/reference`, in a copy in memory. The forward pass that it is compared with stays whole.
A change that no check notices is a survivor. Survivors that compute the same as before stand in
EQUIVALENT with the reason; any other makes the script fail.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "reference"))

import attention_cases
import linear_attention_cases
from conformance import CASES, MODULES, check_relu_at_its_kink
from small_networks import NETWORKS, engine_for, samples

from undivided.engines.reference import engine
from undivided.layers import Dense, Dropout, Flatten, MultiHeadAttention
from undivided.network import Network
from undivided.targets import checked_targets
from undivided.training.losses import CategoricalCrossentropy

__all__ = ["EQUIVALENT", "Mutant", "is_noticed", "mutants", "parsed"]

EQUIVALENT: dict[tuple[str, str], str] = {
    ("windows", "-1 → -2"): "reshape takes any negative number for the extent to be found",
    (
        "windows",
        "np.pad(picture, ((0, 0), *pads, (0, 0)), constant_values=value) → "
        "np.pad(picture, ((0, 0), *pads, (0, 0)))",
    ): "windows themselves are padded with zeros; max_pool asks for another value",
    ("max_pool", "np.zeros_like(x) → x"): "where there is no token there is nothing to be zero",
    ("max_pool", "-1 → -2"): "reshape takes any negative number for the extent to be found",
    (
        "unfold",
        "dy.reshape(B, R, C, h, w, K) → dy.reshape(R, B, C, h, w, K)",
    ): "the first two axes are never parted",
    (
        "unfold",
        "dy.reshape(B, R, C, h, w, K) → dy.reshape(B, R, C, h, K, w)",
    ): "the last two axes are never parted",
    ("linear", "-1 → -2"): "reshape takes any negative number for the extent to be found",
    ("attention", "x.swapaxes(-1, -2) → x.swapaxes(-2, -1)"): "a swap has no first and second",
    ("attention", "-2 → 2"): "of four axes the last but one is number 2",
    ("attention", "max(D, 1) → max(1, D)"): "the larger of two is the larger of two",
    (
        "attention",
        "np.maximum(z.max(axis=-1, keepdims=True, initial=lowest), sink) → "
        "np.maximum(sink, z.max(axis=-1, keepdims=True, initial=lowest))",
    ): "the larger of two is the larger of two",
    (
        "attention",
        "np.maximum(total, 1) → np.maximum(1, total)",
    ): "the larger of two is the larger of two",
    ("linear_attention", "-2 → 2"): "of four axes the last but one is number 2",
    (
        "linear_attention",
        "np.minimum(x, 0) → np.minimum(0, x)",
    ): "the smaller of two is the smaller of two",
    (
        "linear_attention",
        "np.maximum(x, 0) → np.maximum(0, x)",
    ): "the larger of two is the larger of two",
    ("activation", "x.ravel().tolist() → x.ravel()"): "only slower",
    (
        "rotary",
        "np.cos(angle).astype(x.dtype) → np.cos(angle)",
    ): "checked in float64, where nothing is converted",
    (
        "rotary",
        "np.sin(angle).astype(x.dtype) → np.sin(angle)",
    ): "checked in float64, where nothing is converted",
    (
        "attention",
        "positions.alibi(q.shape[1], S, T, offset=offset, bidirectional=True, dtype=q.dtype) → "
        "positions.alibi(q.shape[1], S, T, offset=offset, bidirectional=True)",
    ): "slopes are powers of 2 and distances small: float32 holds them exactly",
    (
        "rms_normalize",
        "a.reshape(*x.shape[:-1], heads, len(gain)) → a.reshape(heads, *x.shape[:-1], len(gain))",
    ): "reshaped alike and back, and the gain is one for all heads",
    ("pool", "max(S, 1) → max(1, S)"): "the larger of two is the larger of two",
    ("cross_entropy", "target.astype(logits.dtype) → target"): "checked in float64",
    ("binary_cross_entropy", "target.astype(logits.dtype) → target"): "checked in float64",
    ("deviation", "target.astype(y.dtype) → target"): "checked in float64",
    ("engine", "dlosses.astype(self.dtype) → dlosses"): "checked in float64",
    ("engine", "1.0 → 2.0"): "0 divided by anything is 0",
    (
        "engine",
        "float(counted.sum(dtype=np.float64)) → counted.sum(dtype=np.float64)",
    ): "NumPy's float64 is a float",
    (
        "engine",
        "counted.sum(dtype=np.float64) → counted.sum()",
    ): "checked in float64, where the sum is float64 anyway",
    (
        "engine",
        "np.asarray(dy[row], self.dtype) → dy[row]",
    ): "checked in float64, where nothing is converted",
    (
        "engine",
        "dvalues[self.plan.output.name] += doutput → dvalues[self.plan.output.name] = doutput",
    ): "it is added to zeros",
}
"""(module, change) → why it computes the same."""

UNTOUCHED = {
    *("forward", "attention", "linear_attention", "weights", "p"),
    *("sinusoidal_table", "kept_cells", "kept_numbers"),
}
"""Functions of the primitives that backward does not use."""

BACKWARD_OF_THE_ENGINE = {"_backward", "_loss", "loss_and_gradients", "pull_back"}


@dataclass(frozen=True)
class Mutant:
    """A module with one change."""

    module: str
    function: str
    line: int
    change: str
    tree: ast.Module
    """The module before the change."""
    index: int
    """Which of its nodes gives way."""
    number: int
    """To which of that node's replacements."""

    def __str__(self) -> str:
        return f"{self.module}.py:{self.line}: {self.function}: {self.change}"

    @property
    def equivalent(self) -> str | None:
        return EQUIVALENT.get((self.module, self.change))

    def is_noticed(self) -> bool:
        return is_noticed(self.module, _replaced(self.tree, self.index, self.number))


def is_noticed(name: str, tree: ast.Module) -> bool:
    """Whether a check fails, or anything else goes wrong, with this text in place of a module."""
    broken = ModuleType(f"changed_{name}")
    sys.modules[broken.__name__] = broken  # where data classes look for what they are made of
    try:
        exec(compile(tree, f"<changed {name}>", "exec"), broken.__dict__)
        CHECKS.get(name, _check_primitive)(name, broken)
    except Exception:
        return True
    finally:
        del sys.modules[broken.__name__]
    return False


def mutants(*names: str) -> Iterator[Mutant]:
    """Every change to the modules of these names; of all without any."""
    for name in names or (*MODULES, "engine"):
        tree = parsed(name)
        for index, (node, function) in enumerate(_nodes(tree)):
            if function is None or not _belongs_to_backward(name, function):
                continue
            before = ast.unparse(node)
            for number, replacement in enumerate(_replacements(node)):
                after = ast.unparse(replacement) if replacement else "nothing"
                if after != before:
                    line = getattr(node, "lineno", 0)
                    change = f"{before} → {after}"
                    yield Mutant(name, function, line, change, tree, index, number)


def parsed(name: str) -> ast.Module:
    module = engine if name == "engine" else MODULES[name]
    return ast.parse(Path(str(module.__file__)).read_text())


# What may be changed, and into what.


def _belongs_to_backward(module: str, function: str) -> bool:
    if module == "engine":
        return function in BACKWARD_OF_THE_ENGINE
    return function not in UNTOUCHED


def _nodes(tree: ast.Module) -> list[tuple[ast.AST, str | None]]:
    """All nodes in a fixed order, each with the function whose body it is in."""
    found: list[tuple[ast.AST, str | None]] = []

    def visit(node: ast.AST, function: str | None) -> None:
        found.append((node, function))
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST):
                    continue
                inside = function
                if isinstance(node, ast.FunctionDef):
                    inside = node.name if field == "body" else None
                if isinstance(child, ast.Raise | ast.AnnAssign):
                    inside = None
                if isinstance(node, ast.UnaryOp) and isinstance(child, ast.Constant):
                    continue  # −1 changes as a whole
                visit(child, inside)

    visit(tree, None)
    return found


def _replaced(tree: ast.Module, index: int, number: int) -> ast.Module:
    """A copy of the tree in which one node gave way to one of its replacements."""
    changed = copy.deepcopy(tree)
    node = _nodes(changed)[index][0]
    new = _replacements(node)[number] or ast.Pass()
    for parent in ast.walk(changed):
        for field, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, field, new)
            elif isinstance(value, list) and any(item is node for item in value):
                value[:] = [new if item is node else item for item in value]
    return ast.fix_missing_locations(changed)


SWAPS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Gt: ast.GtE,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
}


def _replacements(node: ast.AST) -> list[Any]:
    """What a node may turn into; None drops a statement."""
    found: list[Any] = []
    if isinstance(node, ast.BinOp):
        found += [node.left, node.right]
        if not isinstance(node.op, ast.Add | ast.Mult | ast.BitAnd):
            found.append(ast.BinOp(node.right, node.op, node.left))
        if type(node.op) in SWAPS:
            found.append(ast.BinOp(node.left, SWAPS[type(node.op)](), node.right))
    elif isinstance(node, ast.UnaryOp):
        found.append(node.operand)
        if isinstance(node.operand, ast.Constant):
            found.append(ast.UnaryOp(node.op, ast.Constant(node.operand.value + 1)))
    elif isinstance(node, ast.AugAssign):
        found += [None, ast.Assign([node.target], node.value, lineno=node.lineno)]
        found.append(ast.AugAssign(node.target, ast.Sub(), node.value))
    elif isinstance(node, ast.Attribute) and node.attr == "T":
        found.append(node.value)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        found.append(ast.Compare(node.left, [SWAPS[type(node.ops[0])]()], node.comparators))
    elif isinstance(node, ast.IfExp):
        found += [node.body, node.orelse]
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        found.append(ast.Constant(node.value + 1))
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        items = node.value.elts
        for first in range(len(items) - 1):
            swapped = [*items[:first], items[first + 1], items[first], *items[first + 2 :]]
            found.append(ast.Return(ast.Tuple(swapped, ast.Load())))
    elif isinstance(node, ast.Call):
        found += _replacements_of_a_call(node)
    return found


def _replacements_of_a_call(node: ast.Call) -> list[Any]:
    """x.sum(…) → x and x.mean(…); f(x, …) → x; arguments swapped; keywords forgotten."""
    found: list[Any] = []
    is_method = isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in (
        "np",
        "math",
    )
    if is_method:
        found.append(node.func.value)
    elif node.args:
        found.append(node.args[0])
    if is_method and node.func.attr in ("sum", "mean"):
        other = {"sum": "mean", "mean": "sum"}[node.func.attr]
        function = ast.Attribute(node.func.value, other, ast.Load())
        found.append(ast.Call(function, node.args, node.keywords))
    for first in range(len(node.args) - 1):
        swapped = [*node.args]
        swapped[first : first + 2] = reversed(swapped[first : first + 2])
        found.append(ast.Call(node.func, swapped, node.keywords))
    for keyword in node.keywords:
        if keyword.arg == "strict":
            continue  # a guard, not a part of the result
        others = [other for other in node.keywords if other is not keyword]
        found.append(ast.Call(node.func, node.args, others))
    return found


# The checks.


def _check_primitive(name: str, broken: ModuleType) -> None:
    for case in CASES:
        if case.primitive == name:
            case.check(broken)


def _check_activation(name: str, broken: ModuleType) -> None:
    _check_primitive(name, broken)
    check_relu_at_its_kink(broken)


def _check_attention(name: str, broken: ModuleType) -> None:
    _check_primitive(name, broken)
    attention_cases.check_beyond_differences(broken)


def _check_linear_attention(name: str, broken: ModuleType) -> None:
    _check_primitive(name, broken)
    linear_attention_cases.check_beyond_differences(broken)


def _check_engine(name: str, broken: ModuleType) -> None:
    """A broken walk against the whole one, whose gradients the tests compare with differences."""
    for network in NETWORKS.values():
        whole = engine_for(network)
        walk = broken.ReferenceEngine(whole.plan, np.float64)
        walk.parameters = whole.parameters
        x: Any = samples(network, count=3)
        if None in network.input:
            x = [x[0], x[1][:2], x[2]]  # two lengths, so two groups
        y, dy = np.array([0, 1, 1]), np.random.default_rng(4).normal(size=(3, 3))
        dy = dy[:, : whole.plan.output.width]
        loss, gradients = walk.loss_and_gradients(x, y)
        dx, pulled = walk.pull_back(x, dy)
        expected_loss, expected_gradients = whole.loss_and_gradients(x, y)
        expected_dx, expected_pulled = whole.pull_back(x, dy)
        np.testing.assert_allclose(loss, expected_loss, rtol=1e-9)
        _same(gradients, expected_gradients)
        _same(pulled, expected_pulled)
        for found, expected in zip(dx, expected_dx, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9)

    _check_weighted_losses(broken)
    _check_a_step_of_training(broken)


def _check_a_step_of_training(broken: ModuleType) -> None:
    """Where coins fall, and where somebody looks on."""
    layers = (MultiHeadAttention(num_heads=2, dropout=0.4), Dropout(0.5), Flatten(), Dense(3))
    network = Network(input=(3, 4), layers=layers)
    whole = engine_for(network)
    walk = broken.ReferenceEngine(whole.plan, np.float64)
    walk.parameters = whole.parameters
    x, y = samples(network, count=3), np.array([0, 1, 1])
    loss, gradients = walk.loss_and_gradients(x, y, step=2)
    expected_loss, expected_gradients = whole.loss_and_gradients(x, y, step=2)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-9)
    _same(gradients, expected_gradients)
    seen, expected = (each.look_inside(x[:1], y[:1]).attention for each in (walk, whole))
    assert list(seen) == list(expected)
    for name in expected:
        np.testing.assert_allclose(seen[name].back.dq, expected[name].back.dq, rtol=1e-9)


def _check_weighted_losses(broken: ModuleType) -> None:
    """A loss with an option, and rows that do not all count the same."""
    network = Network(input=(2, 3), layers=(Dense(4),), loss=CategoricalCrossentropy(0.3))
    whole = engine_for(network)
    walk = broken.ReferenceEngine(whole.plan, np.float64)
    walk.parameters = whole.parameters
    x, y = samples(network, count=3), np.eye(4)[[[0, 1], [3, 3], [2, 0]]]
    x[1, 0] = 1.7e308  # of which the scores are infinite, and which does not count
    targets = checked_targets(y, whole.plan, 3, weights=[[1, 2], [0, 0.5], [1, 1]])
    loss, gradients = walk.loss_and_gradients(x, targets)
    expected_loss, expected_gradients = whole.loss_and_gradients(x, targets)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-9)
    _same(gradients, expected_gradients)


def _same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9)


CHECKS: dict[str, Callable[[str, ModuleType], None]] = {
    "activation": _check_activation,
    "attention": _check_attention,
    "engine": _check_engine,
    "linear_attention": _check_linear_attention,
}


def main(names: list[str]) -> int:
    count, survivors = 0, []
    with np.errstate(all="ignore"):
        for mutant in mutants(*names):
            count += 1
            if not mutant.is_noticed():
                survivors.append(mutant)
    for mutant in survivors:
        print(f"{'same:    ' if mutant.equivalent else 'SURVIVED:'} {mutant}")
        if mutant.equivalent:
            print(f"              {mutant.equivalent}")
    unexplained = sum(mutant.equivalent is None for mutant in survivors)
    print(
        f"{count} changes: {count - len(survivors)} noticed, "
        f"{len(survivors) - unexplained} compute the same, {unexplained} survived"
    )
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
