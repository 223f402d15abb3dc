"""The exported classifier of the reference programs, on all of MNIST's test images."""

from __future__ import annotations

import numpy as np
import pytest
from c_programs import Program, exported

import undivided


def test_it_answers_all_test_images_as_the_model_does(tmp_path):
    try:
        data = undivided.datasets.mnist()
    except undivided.DataError:
        pytest.skip("MNIST is not on this machine: set UNDIVIDED_DATA to its folder")
    model = undivided.Model(undivided.recipe("mnist-attention"))
    model.fit(data.train, epochs=3, log=False)
    exported(model, tmp_path)
    assert len(data.test) == 10_000
    scores = Program(tmp_path, "gcc", "-O3")(data.test.x)
    assert np.array_equal(scores.argmax(axis=1), model.predict(data.test.x))
    assert np.abs(scores - model.logits(data.test.x)).max() <= 1e-6 * np.abs(scores).max()
