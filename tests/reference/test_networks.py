"""Whole networks: every parameter's gradient and that of x, against full differences."""

import numpy as np
import pytest
from small_networks import NETWORKS, engine_for, samples

from undivided.gradient_check import check_gradients


def setter(engine):
    """A function that puts arrays where the engine keeps its parameters."""

    def write(arrays):
        for parameter, array in zip(engine.parameters.values(), arrays, strict=True):
            parameter[...] = array

    return write


@pytest.mark.parametrize("name", NETWORKS)
def test_pull_back(name):
    engine = engine_for(NETWORKS[name])
    write = setter(engine)

    def forward(x, *parameters):
        write(parameters)
        return engine.predict(x)

    def backward(dy, x, *parameters):
        write(parameters)
        dx, gradients = engine.pull_back(x, dy)
        return np.asarray(dx), *gradients.values()

    x = samples(NETWORKS[name], count=2)
    start = [parameter.copy() for parameter in engine.parameters.values()]
    report = check_gradients(forward, backward, x, *start)
    assert report.derivatives == engine.predict(x).size * (x.size + engine.plan.parameter_count)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_the_mean_loss(name):
    engine = engine_for(NETWORKS[name], seed=2)
    write = setter(engine)
    x = samples(NETWORKS[name], count=4)
    y = np.array([0, 1, 1, 0])

    def forward(*parameters):
        write(parameters)
        return np.float64(engine.loss_and_gradients(x, y)[0])

    def backward(dloss, *parameters):
        write(parameters)
        return tuple(dloss * g for g in engine.loss_and_gradients(x, y)[1].values())

    start = [parameter.copy() for parameter in engine.parameters.values()]
    report = check_gradients(forward, backward, *start)
    assert report.derivatives == engine.plan.parameter_count


@pytest.mark.parametrize("name", NETWORKS)
def test_float32_differs_by_rounding_only(name):
    network = NETWORKS[name]
    x, y = samples(network, count=4), np.array([0, 1, 1, 0])
    loss, gradients = engine_for(network).loss_and_gradients(x, y)
    loss_32, gradients_32 = engine_for(network, np.float32).loss_and_gradients(x, y)
    assert loss_32 == pytest.approx(loss, abs=1e-5)
    for parameter, gradient in gradients.items():
        assert gradients_32[parameter].dtype == np.float32
        np.testing.assert_allclose(gradients_32[parameter], gradient, atol=2e-5)
