"""The reference programs' training curves come out: every listed loss within 0.1 %, every test
accuracy within half a point. Needs MNIST (UNDIVIDED_DATA)."""

from __future__ import annotations

import pytest

import undivided

CURVES = {
    ("mnist-attention", 1): "2.293233/18.03 2.174691/22.41 1.954818/28.94 1.794513/29.24 "
    "1.674640/36.61",
    ("mnist-attention", 2): "2.292921/19.39 2.173388/22.66 1.930632/25.87 1.782937/32.05 "
    "1.673384/31.46",
    ("mnist-attention-64", 42): "2.208794/30.18 1.622909/53.18 1.020412/72.33 .736559/80.51 "
    ".570142/83.45 .480651/86.31 .408541/89.79 .346679/91.08",
    ("mnist-attention-64", 123): "2.157828/33.52 1.285663/68.26 .739073/82.52 .531871/84.92 "
    ".438833/88.80 .383595/88.51 .343992/89.86 .317183/83.63",
}


@pytest.fixture(scope="module")
def mnist() -> undivided.datasets.Dataset:
    try:
        return undivided.datasets.mnist()
    except undivided.DataError:
        pytest.skip("MNIST is not on this machine: set UNDIVIDED_DATA to its folder")


@pytest.mark.parametrize(("recipe", "seed"), CURVES, ids=lambda value: str(value))
def test_listed_curves(recipe: str, seed: int, mnist) -> None:
    listed = [tuple(map(float, point.split("/"))) for point in CURVES[recipe, seed].split()]
    model = undivided.Model(undivided.recipe(recipe), seed=seed)
    history = model.fit(mnist.train, test=mnist.test, epochs=len(listed), log=False)
    for epoch, (loss, accuracy) in zip(history, listed, strict=True):
        assert epoch.loss == pytest.approx(loss, rel=1e-3)
        assert 100 * epoch.test_accuracy == pytest.approx(accuracy, abs=0.5)


def test_the_reference_engine_starts_on_the_same_curve(mnist) -> None:
    """The first 100 steps of the narrow classifier, in both engines and in float64."""
    start = mnist.train
    losses = []
    for engine, dtype in (
        ("native", "float32"),
        ("reference", "float32"),
        ("reference", "float64"),
    ):
        model = undivided.Model(undivided.recipe("mnist-attention"), engine=engine, dtype=dtype)
        losses.append(model.fit((start.x[:3200], start.y[:3200]), epochs=1, log=False)[0].loss)
    assert losses == pytest.approx([losses[-1]] * 3, rel=1e-6)
