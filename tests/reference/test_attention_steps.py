"""What `undivided view` shows is what the engine computes: both ways of attention, laid open."""

from __future__ import annotations

import numpy as np
import pytest
from small_networks import NETWORKS, engine_for, samples

from undivided.engines.reference.attention import merge


@pytest.mark.parametrize("name", list(NETWORKS))
def test_the_steps_are_those_of_the_engine(name: str) -> None:
    network = NETWORKS[name]
    engine = engine_for(network)
    attentions = [op for op in engine.plan.operations if op.kind == "attention"]
    x, y = samples(network, 1), np.ones(1, np.int32)

    inside = engine.look_inside(x, y)
    loss, gradients = engine.loss_and_gradients(x, y)

    assert inside.loss == pytest.approx(loss, abs=1e-13)
    np.testing.assert_allclose(inside.output, engine.predict(x)[0], atol=1e-13)
    assert list(inside.attention) == [op.output for op in attentions]
    weights = engine.attention_weights(x)
    for op in attentions:
        steps = inside.attention[op.output]
        np.testing.assert_array_equal(steps.way.p[0], weights[op.layer][0])
        np.testing.assert_allclose(steps.way.dots * steps.scale, steps.way.z, atol=1e-13)
        np.testing.assert_allclose(steps.way.p @ steps.value, steps.out, atol=1e-13)
        back = steps.back
        np.testing.assert_allclose(back.dp, steps.d_out @ steps.value.swapaxes(-1, -2), atol=1e-13)
        np.testing.assert_allclose(back.dz.sum(axis=-1), 0, atol=1e-13)
        # A bias is added to every row: its gradient is the sum of theirs, all heads together.
        for role, gradient in (("query", back.dq), ("key", back.dk), ("value", back.dv)):
            bias = f"{op.layer}.{role}.bias"
            if bias in gradients:
                np.testing.assert_allclose(
                    merge(gradient)[0].sum(axis=0), gradients[bias], atol=1e-13
                )
