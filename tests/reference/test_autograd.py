"""The same primitives and networks in PyTorch, differentiated by its autograd, in float64."""

import numpy as np
import pytest
from attention_cases import OperatorCase
from conformance import CASES
from linear_attention_cases import LinearOperatorCase
from plain_attention import (
    torch_attention,
    torch_layer,
    torch_linear_attention,
    torch_linear_layer,
)
from small_networks import NETWORKS, engine_for, samples

TOLERANCE = 1e-10


def torch_functions():
    """Primitive → the same function, out of PyTorch's own parts where it has them."""
    torch = pytest.importorskip("torch")
    F = torch.nn.functional

    def rescale(x, *, scale, offset):
        return torch.add(torch.mul(x, scale), offset)

    def unfold(x, *, size):
        if x.ndim == 3:
            x = x[..., None]
        tiles = x.unfold(1, size[0], size[0]).unfold(2, size[1], size[1])  # [B, R, C, K, h, w]
        return tiles.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(1, 2)

    def linear(x, weight, bias=None, *, turned=False):
        return F.linear(x, weight if turned else weight.T, bias)

    def position(x, table=None, *, offset=0):
        _, S, E = x.shape
        if table is not None:
            return x + table[offset : offset + S]
        rows = []
        for t in range(offset, offset + S):
            angles = [t / 10000 ** (2 * (d // 2) / E) for d in range(E)]
            rows.append([np.cos(a) if d % 2 else np.sin(a) for d, a in enumerate(angles)])
        return x + torch.tensor(rows, dtype=x.dtype)

    def attention(query, key, value, table=None, *, heads, scale, **options):
        if table is not None or options:
            return torch_layer(query, key, value, table, heads=heads, scale=scale, **options)
        split = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query, key, value))
        return F.scaled_dot_product_attention(*split, scale=scale).transpose(1, 2).flatten(2)

    def rotary(x, *, heads, base=10000.0, offset=0):
        B, S, E = x.shape
        D = E // heads
        x = x.view(B, S, heads, D)
        pairs = torch.view_as_complex(x[..., : D // 2 * 2].unflatten(-1, (-1, 2)).contiguous())
        places = torch.arange(offset, offset + S)[:, None]
        angles = places * base ** (-torch.arange(0, D - 1, 2).double() / D)
        turned = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)[:, None])
        return torch.cat([turned.flatten(-2), x[..., D // 2 * 2 :]], dim=-1).view(B, S, E)

    def normalize(x, gain, shift, *, epsilon):
        return F.layer_norm(x, x.shape[-1:], gain, shift, epsilon)

    def activation(x, *, function):
        if function == "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        return getattr(torch if function in ("tanh", "sigmoid") else F, function)(x)

    def softmax(x):
        return torch.softmax(x, dim=-1)

    def dropout(x, *, rate, kept=None):
        return x if kept is None else x * torch.as_tensor(kept) / (1 - rate)

    def windows(x, *, size, strides, pads):
        x = (x[..., None] if x.ndim == 3 else x).permute(0, 3, 1, 2)
        (above, below), (left, right) = pads
        x = F.pad(x, (left, right, above, below))
        tiles = x.unfold(2, size[0], strides[0]).unfold(
            3, size[1], strides[1]
        )  # [B, K, R, C, h, w]
        return tiles.permute(0, 2, 3, 4, 5, 1).flatten(3)

    def max_pool(x, *, size=None, strides=None, pads=None):
        if size is None:
            return x.amax(dim=1) if x.shape[1] else x.sum(dim=1)
        (above, below), (left, right) = pads
        x = F.pad(x.permute(0, 3, 1, 2), (left, right, above, below), value=-torch.inf)
        return F.max_pool2d(x, size, strides).permute(0, 2, 3, 1)

    def rms_normalize(x, gain, *, epsilon, heads=1):
        each = x.unflatten(-1, (heads, -1))
        return F.rms_norm(each, gain.shape, gain, epsilon).flatten(-2)

    def pool(x):
        return x.mean(dim=1) if x.shape[1] else x.sum(dim=1)  # PyTorch's mean of nothing is NaN

    def reshape(x, *, shape):
        return x.reshape(-1, *shape)

    def cross_entropy(logits, target, *, label_smoothing=0.0):
        if target.dtype.is_floating_point:
            if label_smoothing:
                target = (1 - label_smoothing) * target + label_smoothing / logits.shape[-1]
            return -(target * logits.log_softmax(dim=-1)).sum(dim=-1)
        flat = F.cross_entropy(
            logits.flatten(0, -2),
            target.flatten(),
            reduction="none",
            label_smoothing=label_smoothing,
        )
        return flat.reshape(target.shape)

    def binary_cross_entropy(logits, *, target, label_smoothing=0.0):
        target = (1 - label_smoothing) * target + label_smoothing / 2
        losses = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return losses.mean(dim=-1)

    def deviation(y, *, target, measure, delta=1.0):
        losses = {
            "squared": lambda: F.mse_loss(y, target, reduction="none"),
            "absolute": lambda: F.l1_loss(y, target, reduction="none"),
            "huber": lambda: F.huber_loss(y, target, reduction="none", delta=delta),
        }[measure]()
        return losses.mean(dim=-1)

    return {
        "rescale": rescale,
        "unfold": unfold,
        "linear": linear,
        "position": position,
        "embed": lambda ids, table: F.embedding(ids, table),
        "rotary": rotary,
        "attention": attention,
        "linear_attention": torch_linear_layer,
        "normalize": normalize,
        "rms_normalize": rms_normalize,
        "activation": activation,
        "softmax": softmax,
        "multiply": torch.mul,
        "dropout": dropout,
        "windows": windows,
        "max_pool": max_pool,
        "permute": lambda x, *, axes: x.permute(0, *(n + 1 for n in axes)),
        "pick": lambda x, *, index: x[:, index],
        "learned": lambda x, table: table.expand(len(x), *table.shape) + 0 * x.sum(),
        "concatenate": lambda x, y: torch.cat([x, y], dim=1),
        "add": torch.add,
        "pool": pool,
        "reshape": reshape,
        "cross_entropy": cross_entropy,
        "binary_cross_entropy": binary_cross_entropy,
        "deviation": deviation,
    }


def by_torch(case, tensors):
    if isinstance(case, LinearOperatorCase):
        return torch_linear_attention(*tensors, **case.attributes)
    if not isinstance(case, OperatorCase):
        torch = pytest.importorskip("torch")
        options = {
            name: torch.tensor(value) if isinstance(value, np.ndarray) else value
            for name, value in case.attributes.items()
        }
        return torch_functions()[case.primitive](*tensors, **options)
    torch = pytest.importorskip("torch")
    options = {**case.attributes, **dict(zip(case.given, tensors[3:], strict=True))}
    if case.forbidden is not None:
        options["bias"] = options["bias"].masked_fill(torch.tensor(case.forbidden), -torch.inf)
    return torch_attention(*tensors[:3], **options)


def agree(found, expected):
    assert found.shape == expected.shape
    largest = max(1.0, np.abs(expected).max(initial=0.0))
    assert np.abs(found - expected).max(initial=0.0) <= TOLERANCE * largest


@pytest.mark.parametrize("case", CASES, ids=str)
def test_primitive(case):
    torch = pytest.importorskip("torch")
    tensors = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in case.inputs]
    expected = by_torch(case, tensors)
    y = case.forward(*case.inputs)
    agree(y, expected.detach().numpy())

    dy = np.random.default_rng(5).normal(size=y.shape)
    gradients = case.backward(dy, *case.inputs)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    expected.backward(torch.tensor(dy))
    floats = [tensor for tensor in tensors if tensor.requires_grad]
    for gradient, tensor in zip(gradients, floats, strict=True):
        agree(gradient, tensor.grad.numpy())


def run_plan(plan, functions, x, parameters):
    """The plan's output, by functions of PyTorch."""
    values = {plan.input.name: x}
    for op in plan.operations:
        arguments = {role: parameters[name] for role, name in op.parameters.items()}
        arguments |= dict(op.attributes)
        if op.kind == "reshape":
            arguments["shape"] = plan.values[op.output].shape
        inputs = (values[name] for name in op.inputs)
        values[op.output] = functions[op.kind](*inputs, **arguments)
    return values[plan.output.name]


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name):
    torch = pytest.importorskip("torch")
    functions = torch_functions()
    engine = engine_for(NETWORKS[name], seed=3)
    x = samples(NETWORKS[name], count=3)
    y = np.array([1, 0, 1])

    source = torch.tensor(x, requires_grad=True)
    parameters = {
        name: torch.tensor(parameter, requires_grad=True)
        for name, parameter in engine.parameters.items()
    }
    output = run_plan(engine.plan, functions, source, parameters)
    agree(engine.predict(x), output.detach().numpy())

    loss = torch.nn.functional.cross_entropy(output, torch.tensor(y))
    found, gradients = engine.loss_and_gradients(x, y)
    assert found == pytest.approx(loss.item(), rel=1e-12)
    names = list(parameters)
    expected = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
    for parameter, gradient in zip(names, expected, strict=True):
        agree(gradients[parameter], gradient.numpy())

    dy = np.random.default_rng(6).normal(size=output.shape)
    dx, gradients = engine.pull_back(x, dy)
    expected = torch.autograd.grad(output, [source, *parameters.values()], torch.tensor(dy))
    agree(np.asarray(dx), expected[0].numpy())
    for parameter, gradient in zip(names, expected[1:], strict=True):
        agree(gradients[parameter], gradient.numpy())
