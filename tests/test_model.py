"""Model: learning, going on, looking inside, and what it refuses. On every engine there is."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import undivided
from undivided import (
    SGD,
    Adam,
    AdamW,
    ArgumentError,
    DataError,
    Dense,
    ExponentialDecay,
    GlobalAveragePooling1D,
    LayerNormalization,
    LearnedPositions,
    Model,
    MultiHeadAttention,
    Network,
    NonFiniteError,
    Output,
    Patches,
    Rescaling,
    Residual,
    Train,
)

ENGINES = ["reference"]
if importlib.util.find_spec("undivided._native"):
    ENGINES.append("native")


def tiny(**changes: object) -> Network:
    """4×4 pictures, four tokens, two heads, a residual block, three classes."""
    description: dict[str, object] = {
        "name": "Tiny",
        "input": (4, 4),
        "layers": (
            Rescaling(1 / 16),
            Patches(2),
            Dense(8, name="embed"),
            LearnedPositions(),
            Residual((LayerNormalization(), MultiHeadAttention(2, name="look"))),
            GlobalAveragePooling1D(),
            Output(3, name="scores"),
        ),
        "optimizer": AdamW(0.01),
        "train": Train(epochs=2, batch_size=8, seed=7),
    }
    return Network(**(description | changes))  # type: ignore[arg-type]


def samples(count: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pictures whose class is told by where they are bright."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count).astype(np.int32)
    x = rng.integers(0, 6, (count, 4, 4)).astype(np.uint8)
    for row, label in enumerate(y):
        x[row, label, :] += 9
    return x, y


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def model(engine: str) -> Model:
    return Model(tiny(), engine=engine)


def same_bits(one: Model, other: Model) -> bool:
    return all(
        np.array_equal(one.parameters[name], other.parameters[name]) for name in one.plan.parameters
    )


class TestConstruction:
    def test_same_seed_same_numbers(self, engine: str) -> None:
        assert same_bits(Model(tiny(), engine=engine), Model(tiny(), seed=7, engine=engine))
        assert not same_bits(Model(tiny(), engine=engine), Model(tiny(), seed=8, engine=engine))

    def test_the_largest_seed(self, engine: str) -> None:
        assert Model(tiny(), seed=2**64 - 1, engine=engine).seed == 2**64 - 1

    @pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "1", True])
    def test_other_seeds_are_refused(self, seed: object) -> None:
        with pytest.raises(ArgumentError, match="The 'seed' of train must be a whole number ≥ 0"):
            Model(tiny(), seed=seed, engine="reference")  # type: ignore[arg-type]

    def test_an_unknown_engine_is_refused(self) -> None:
        with pytest.raises(ArgumentError, match="'engine' of execution must be one of 'native'"):
            Model(tiny(), engine="torch")  # type: ignore[arg-type]

    @pytest.mark.parametrize("threads", [0, 1025, "two"])
    def test_threads_out_of_range_are_refused(self, threads: object) -> None:
        with pytest.raises(ArgumentError, match="'threads' of execution must be"):
            Model(tiny(), threads=threads, engine="reference")  # type: ignore[arg-type]

    def test_a_text_is_not_a_network(self) -> None:
        with pytest.raises(ArgumentError, match=r"must be a Network. Got str. undivided.recipe"):
            Model("digits-attention")  # type: ignore[arg-type]

    def test_float64_is_the_reference_engines(self) -> None:
        model = Model(tiny(), engine="reference", dtype="float64")
        assert model.logits(samples()[0]).dtype == np.float64
        with pytest.raises(ArgumentError, match="native engine computes in float32"):
            Model(tiny(), engine="native", dtype="float64")
        with pytest.raises(ArgumentError, match=r"'float32' or 'float64'. Got 'half'"):
            Model(tiny(), dtype="half")  # type: ignore[arg-type]

    def test_the_representation_says_what_it_is(self, model: Model) -> None:
        assert repr(model).startswith("Model(Tiny: ")
        assert f"{model.engine} engine float32" in repr(model)
        assert repr(model).endswith("not trained)")

    @pytest.mark.skipif("native" not in ENGINES, reason="the native engine is not built")
    def test_threads_come_from_argument_network_and_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("UNDIVIDED_THREADS", "3")
        two = tiny(execution=undivided.Execution(threads=2))
        assert Model(tiny(), engine="native").threads == 3
        assert Model(two, engine="native").threads == 2
        assert Model(two, threads=1, engine="native").threads == 1
        monkeypatch.setenv("UNDIVIDED_THREADS", "many")
        with pytest.raises(ArgumentError, match="UNDIVIDED_THREADS must be a whole number from 1"):
            Model(tiny(), engine="native")


class TestFit:
    def test_an_entry_an_epoch(self, model: Model) -> None:
        history = model.fit(samples(), test=samples(20, seed=1), epochs=3)
        assert [entry.epoch for entry in history] == [1, 2, 3]
        assert all(entry.seconds > 0 for entry in history)
        assert all(0 <= entry.test_accuracy <= 1 for entry in history)  # type: ignore[operator]
        assert history == model.history

    def test_without_a_test_there_is_no_accuracy(self, model: Model) -> None:
        assert model.fit(samples(), epochs=1)[0].test_accuracy is None

    def test_it_learns(self, model: Model) -> None:
        history = model.fit(samples(300), test=samples(100, seed=1), epochs=20)
        assert history[-1].loss < 0.2 * history[0].loss
        assert history[-1].test_accuracy == 1

    def test_the_loss_is_the_mean_over_the_samples_as_they_were_met(self, model: Model) -> None:
        x, y = samples(16)
        loss, _ = model.loss_and_gradients(x, y)
        entry = model.fit((x, y), epochs=1, batch_size=16)[0]
        assert entry.loss == pytest.approx(loss, rel=1e-5)

    @pytest.mark.parametrize("generator", ["philox", "xorshift64"])
    @pytest.mark.parametrize(
        "optimizer",
        [SGD(0.05, 0.9), Adam(0.01), AdamW(ExponentialDecay(0.01, 5, 0.5))],
        ids=lambda optimizer: optimizer.keyword,
    )
    def test_two_epochs_and_three_are_five(
        self, engine: str, generator: str, optimizer: undivided.Adam
    ) -> None:
        train = Train(batch_size=8, generator=generator)  # type: ignore[arg-type]
        network = tiny(optimizer=optimizer, train=train)
        whole, parts = Model(network, engine=engine), Model(network, engine=engine)
        once = whole.fit(samples(), epochs=5)
        twice = parts.fit(samples(), epochs=2) + parts.fit(samples(), epochs=3)
        assert same_bits(whole, parts)
        assert [(e.epoch, e.loss) for e in once] == [(e.epoch, e.loss) for e in twice]
        assert parts.epochs == 5 and parts.steps == 5 * 7

    def test_a_set_of_another_size_starts_a_new_order(self, model: Model) -> None:
        model.fit(samples(50), epochs=1)
        model.fit(samples(20), epochs=1)
        assert model.epochs == 2 and model.steps == 7 + 3

    def test_a_batch_larger_than_the_set_is_the_whole_set(self, model: Model) -> None:
        other = Model(tiny(), engine=model.engine)
        model.fit(samples(10), epochs=2, batch_size=10**30)
        other.fit(samples(10), epochs=2, batch_size=10)
        assert same_bits(model, other) and model.steps == 2

    def test_a_learning_rate_takes_the_place_of_the_networks(self, engine: str) -> None:
        given = Model(tiny(), engine=engine)
        described = Model(tiny(optimizer=AdamW(0.03)), engine=engine)
        given.fit(samples(), learning_rate=0.03)
        described.fit(samples())
        assert same_bits(given, described)
        assert given.network == described.network and given.plan == described.plan

    def test_a_learning_rate_of_zero_changes_nothing(self, engine: str) -> None:
        model, untouched = Model(tiny(), engine=engine), Model(tiny(), engine=engine)
        model.fit(samples(), epochs=1, learning_rate=0)
        assert same_bits(model, untouched)

    def test_samples_may_be_floats_of_any_layout(self, engine: str) -> None:
        x, y = samples()
        plain, odd = Model(tiny(), engine=engine), Model(tiny(), engine=engine)
        plain.fit((x, y))
        wide = np.zeros((50, 8, 4))
        wide[:, ::2] = x
        odd.fit((np.asfortranarray(wide)[:, ::2], y[::-1].astype(">i8")[::-1]))
        assert same_bits(plain, odd)

    def test_the_samples_are_left_alone(self, model: Model) -> None:
        x, y = samples()
        x.flags.writeable = y.flags.writeable = False
        model.fit((x, y), epochs=1)

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"epochs": 0}, "The 'epochs' of train must be a whole number ≥ 1. Got 0."),
            ({"epochs": "3"}, "The 'epochs' of train must be a whole number ≥ 1. Got '3'."),
            ({"batch_size": -1}, "The 'batch_size' of train must be a whole number ≥ 1. Got -1."),
            ({"learning_rate": -0.1}, "The 'learning_rate' of AdamW must be"),
            ({"learning_rate": float("nan")}, "The 'learning_rate' of AdamW must be"),
        ],
    )
    def test_wrong_settings_are_refused(self, model: Model, given: dict, text: str) -> None:
        with pytest.raises(ArgumentError) as error:
            model.fit(samples(), **given)
        assert text in str(error.value)
        assert model.steps == 0

    def test_a_loss_that_is_not_finite_stops_before_the_weights_change(self, engine: str) -> None:
        network = tiny(optimizer=SGD(1e30), train=Train(batch_size=10))
        model, witness = Model(network, engine=engine), Model(network, engine=engine)
        with pytest.raises(NonFiniteError) as error:
            model.fit(samples(), epochs=3)
        text = str(error.value)
        assert f"The loss of epoch 1, step {model.steps + 1} is not finite." in text
        assert "layer '" in text and "smaller learning rate" in text
        # The same steps without the one that failed: the same bits.
        order = np.arange(50, dtype=np.uint32)
        witness._state.generator.shuffle(order)
        x, y = samples()
        taken = order[: 10 * model.steps]
        for start in range(0, len(taken), 10):
            witness._engine.train(
                x, y, taken[start : start + 10], 10, start // 10, np.array([1e30])
            )
        for name, values in model.parameters.items():
            assert np.array_equal(values, witness.parameters[name], equal_nan=True)

    def test_the_first_step_can_fail_too(self, model: Model) -> None:
        model.parameters["scores.bias"][1] = np.inf
        with pytest.raises(NonFiniteError, match=r"its parameter 'scores.bias' holds infinity"):
            model.fit(samples())
        assert model.steps == 0 and model.epochs == 0

    def test_progress_prints_a_line_an_epoch(
        self, model: Model, capsys: pytest.CaptureFixture[str]
    ) -> None:
        history = model.fit(samples(), samples(), progress=True)
        assert capsys.readouterr().out == "".join(f"{entry}\n" for entry in history)

    def test_it_is_silent_otherwise(self, model: Model, capsys: pytest.CaptureFixture[str]) -> None:
        model.fit(samples())
        assert capsys.readouterr().out == ""


class TestRefusals:
    """What is handed to a model is checked where it comes in."""

    METHODS = ("predict", "predict_proba", "logits", "attention_weights", "vjp")

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize(
        ("x", "text"),
        [
            (np.zeros((4, 4)), "This is one sample without the axis of samples: x[None] adds it."),
            (
                np.zeros((2, 5, 4)),
                "x must have the shape (samples, 4, 4), as the network's input is (4, 4). "
                "Its shape is (2, 5, 4).",
            ),
            (np.zeros((2, 16)), "The numbers are as many: reshape them."),
            (np.float32(1), "Its shape is ()."),
            (np.zeros((2, 4, 4), int), "x must be uint8 or floating point; it is int64."),
            (np.zeros((2, 4, 4), bool), "it is bool. Use .astype('uint8')."),
            (np.zeros((2, 4, 4), complex), "it is complex128."),
            ([["a"]], "x must be uint8 or floating point; it is <U1."),
            ([[1.0], [1.0, 2.0]], "x cannot be read as an array"),
            (None, "it is object."),
            (np.full((2, 4, 4), np.nan), "x[0, 0, 0] is nan, which is not finite."),
            (np.full((2, 4, 4), 1e39), "x[0, 0, 0] is 1e+39, which does not fit into float32."),
        ],
        ids=lambda value: None if isinstance(value, str) else "x",
    )
    def test_samples(self, method: str, x: object, text: str) -> None:
        model = Model(tiny(), engine="reference")
        with pytest.raises(DataError) as error:
            getattr(model, method)(x)
        assert text in str(error.value)

    @pytest.mark.parametrize(
        ("y", "text"),
        [
            (np.full(50, 12), "y[0] is class 12, but the network has 3 outputs: classes 0 to 2."),
            (np.full(50, -1), "y[0] is class -1, but the network has 3 outputs"),
            (np.zeros(50), "y must hold whole class numbers; it is float64."),
            (np.zeros(49, int), "one class for each sample, shape (50,); its shape is (49,)."),
            (np.zeros((50, 3), int), "One-hot rows become classes by .argmax(axis=-1), or"),
            (np.array(["a"] * 50), "y must hold whole class numbers; it is <U1."),
        ],
        ids=["high", "negative", "float", "short", "one-hot", "text"],
    )
    def test_classes(self, model: Model, y: np.ndarray, text: str) -> None:
        x, _ = samples()
        for call in (
            lambda: model.fit((x, y)),
            lambda: model.evaluate((x, y)),
            lambda: model.loss_and_gradients(x, y),
        ):
            with pytest.raises(DataError) as error:
                call()
            assert text in str(error.value)

    def test_a_whole_data_set_is_not_a_split(self, model: Model) -> None:
        with pytest.raises(DataError, match=r"Got Dataset. A data set has two: train is its .tr"):
            model.fit(undivided.datasets.digits())
        with pytest.raises(DataError, match=r"must be a split with .x and .y, a pair"):
            model.evaluate(3)

    def test_errors_name_the_split(self, model: Model) -> None:
        x, y = samples()
        with pytest.raises(DataError, match=r"^test.y\[3\] is class 5"):
            model.fit((x, y), test=(x, np.where(np.arange(50) == 3, 5, y)))

    def test_no_samples(self, model: Model) -> None:
        x, y = samples()
        for call in (model.fit, model.evaluate, lambda pair: model.loss_and_gradients(*pair)):
            with pytest.raises(DataError, match=r"x must hold at least one sample"):
                call((x[:0], y[:0]))


class TestPredictions:
    def test_of_no_samples_are_none(self, model: Model) -> None:
        nothing = np.zeros((0, 4, 4), np.float32)
        assert model.predict(nothing).shape == (0,)
        assert model.predict_proba(nothing).shape == (0, 3)
        assert model.attention_weights(nothing)["look"].shape == (0, 2, 4, 4)
        y, pullback = model.vjp(nothing)
        dx, gradients = pullback(y)
        assert dx.shape == (0, 4, 4) and not gradients["embed.weight"].any()

    def test_classes_probabilities_and_scores_agree(self, model: Model) -> None:
        x, _ = samples()
        logits, probabilities = model.logits(x), model.predict_proba(x)
        assert np.array_equal(model.predict(x), logits.argmax(1))
        assert np.allclose(probabilities.sum(1), 1)
        assert np.allclose(
            np.log(probabilities), logits - np.log(np.exp(logits).sum(1))[:, None], atol=1e-5
        )

    def test_the_first_of_equals_wins(self, model: Model) -> None:
        for values in model.parameters.values():
            values[...] = 0
        assert not model.predict(samples()[0]).any()

    def test_probabilities_of_huge_scores_are_finite(self, model: Model) -> None:
        model.parameters["scores.bias"][...] = [1e30, -1e30, 0]
        assert np.array_equal(model.predict_proba(samples(1)[0]), [[1, 0, 0]])

    def test_a_sample_does_not_depend_on_its_batch_mates(self, model: Model) -> None:
        x, _ = samples(3000)
        together = model.logits(x)
        alone = np.concatenate([model.logits(x[i : i + 1]) for i in range(0, 3000, 500)])
        if model.engine == "native":
            assert np.array_equal(together[::500], alone)
        assert np.allclose(together[::500], alone, atol=1e-6)

    def test_attention_weights_add_up_to_one(self, model: Model) -> None:
        weights = model.attention_weights(samples()[0])
        assert list(weights) == ["look"] and weights["look"].shape == (50, 2, 4, 4)
        assert np.allclose(weights["look"].sum(-1), 1, atol=1e-6)

    def test_evaluation(self, model: Model) -> None:
        x, y = samples()
        result = model.evaluate((x, y))
        assert result.accuracy == np.mean(model.predict(x) == y)
        assert result.loss == pytest.approx(model.loss_and_gradients(x, y)[0], rel=1e-5)
        assert isinstance(result.accuracy, float)

    def test_evaluation_takes_a_split(self, model: Model) -> None:
        x, y = samples()
        assert model.evaluate(undivided.datasets.Split(x, y)) == model.evaluate((x, y))


class TestGradients:
    def test_they_are_those_of_the_loss(self) -> None:
        model = Model(tiny(), engine="reference", dtype="float64")
        x, y = samples(5)
        loss, gradients = model.loss_and_gradients(x, y)
        weight = model.parameters["look.query.weight"]
        step = 1e-6
        weight[2, 3] += step
        higher = model.loss_and_gradients(x, y)[0]
        assert (higher - loss) / step == pytest.approx(
            gradients["look.query.weight"][2, 3], rel=1e-3
        )

    def test_a_loss_of_ones_own_behind_the_network(self, model: Model) -> None:
        x, labels = samples(6)
        logits, pullback = model.vjp(x)
        softmax = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        dx, gradients = pullback((softmax - np.eye(3)[labels]) / 6)
        expected = model.loss_and_gradients(x, labels)[1]
        assert dx.shape == x.shape
        for name in expected:
            assert np.allclose(gradients[name], expected[name], atol=1e-5), name

    def test_the_gradient_of_the_samples(self) -> None:
        model = Model(tiny(), engine="reference", dtype="float64")
        x = samples(2)[0].astype(float)
        y, pullback = model.vjp(x)
        dx, _ = pullback(np.ones_like(y))
        moved = x.copy()
        moved[1, 2, 3] += 1e-4
        assert (model.logits(moved) - y).sum() / 1e-4 == pytest.approx(dx[1, 2, 3], rel=1e-3)

    def test_they_accumulate_until_cleared(self, model: Model) -> None:
        y, pullback = model.vjp(samples(4)[0])
        _, once = pullback(np.ones_like(y))
        pullback(np.ones_like(y))
        for name, gradient in once.items():
            assert np.array_equal(model.gradients[name], 2 * gradient)
        model.clear_gradients()
        assert model.gradients == {}

    def test_a_pullback_belongs_to_the_weights_and_samples_it_was_made_with(
        self, model: Model
    ) -> None:
        x, _ = samples(4)
        y, pullback = model.vjp(x)
        before = pullback(y)
        x[...] = 0
        model.fit(samples(), epochs=1)
        trained = {name: values.copy() for name, values in model.parameters.items()}
        after = pullback(y)
        assert np.array_equal(before[0], after[0])
        assert all(np.array_equal(before[1][name], after[1][name]) for name in before[1])
        assert all(np.array_equal(trained[name], model.parameters[name]) for name in trained)

    @pytest.mark.parametrize("dy", [np.ones((4, 2)), np.ones(3), np.ones((4, 3), bool), "x"])
    def test_a_wrong_dy_is_refused(self, model: Model, dy: object) -> None:
        _, pullback = model.vjp(samples(4)[0])
        with pytest.raises(DataError, match=r"^dy must h"):
            pullback(dy)

    @pytest.mark.parametrize(
        "optimizer",
        [SGD(0.1), SGD(0.1, 0.9), Adam(0.01), AdamW(0.01)],
        ids=["SGD", "momentum", "Adam", "AdamW"],
    )
    def test_applying_them_is_a_step_of_fit(self, engine: str, optimizer: Adam) -> None:
        x, labels = samples(8)
        # The gradient of a key's bias is zero but for rounding, of which Adam makes a step.
        attention = MultiHeadAttention(2, bias=False)
        layers = (Patches(2), Dense(8), attention, GlobalAveragePooling1D(), Output(3))
        network = tiny(optimizer=optimizer, layers=(Rescaling(1 / 16), *layers))
        by_hand, by_fit = Model(network, engine=engine), Model(network, engine=engine)
        for _ in range(3):
            logits, pullback = by_hand.vjp(x)
            softmax = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            by_hand.clear_gradients()
            pullback((softmax - np.eye(3)[labels]) / 8)
            by_hand.apply_gradients()
        by_fit.fit((x, labels), epochs=3, batch_size=8)
        assert by_hand.steps == by_fit.steps == 3
        for name in by_fit.parameters:
            assert np.allclose(by_hand.parameters[name], by_fit.parameters[name], atol=2e-3), name

    def test_applying_takes_a_rate_for_one_step(self, model: Model) -> None:
        start = {name: values.copy() for name, values in model.parameters.items()}
        with pytest.raises(ArgumentError, match="no gradients to apply: call a pullback first"):
            model.apply_gradients()
        y, pullback = model.vjp(samples(4)[0])
        pullback(np.ones_like(y))
        model.apply_gradients(learning_rate=0)
        assert all(np.array_equal(start[name], model.parameters[name]) for name in start)
        assert model.network == tiny()

    def test_gradients_that_are_not_finite_change_nothing(self, model: Model) -> None:
        start = {name: values.copy() for name, values in model.parameters.items()}
        y, pullback = model.vjp(samples(4)[0])
        pullback(np.full_like(y, np.nan))
        with pytest.raises(NonFiniteError, match="is not finite; nothing changed"):
            model.apply_gradients()
        assert all(np.array_equal(start[name], model.parameters[name]) for name in start)


class TestParameters:
    def test_names_and_shapes(self, model: Model) -> None:
        assert model.parameters["look.query.weight"].shape == (8, 8)
        assert list(model.parameters) == list(model.plan.parameters)
        assert len(model.parameters) == len(model.plan.parameters)

    def test_what_is_written_is_used(self, model: Model) -> None:
        x, _ = samples(4)
        model.parameters["scores.bias"][...] = [0, 0, 1000]
        assert (model.predict(x) == 2).all()
        model.parameters["scores.bias"] = np.array([1000.0, 0, 0])
        assert (model.predict(x) == 0).all()

    def test_they_are_live(self, model: Model) -> None:
        weight = model.parameters["scores.weight"]
        before = weight.copy()
        model.fit(samples(), epochs=1)
        assert not np.array_equal(weight, before)

    def test_wrong_names_and_shapes_are_refused(self, model: Model) -> None:
        with pytest.raises(KeyError, match=r"Did you mean 'scores.bias'\?"):
            model.parameters["score.bias"]
        with pytest.raises(ArgumentError, match=r"has the shape \(3,\). Got \(1,\)."):
            model.parameters["scores.bias"] = np.zeros(1)
        assert "nothing" not in model.parameters


def test_digits_are_learned(engine: str) -> None:
    data = undivided.datasets.digits()
    model = Model(undivided.recipe("digits-attention"), engine=engine)
    history = model.fit(data.train, test=data.test, epochs=5)
    assert history[-1].test_accuracy > 0.75  # type: ignore[operator]


class TestSequencesOfAnyLength:
    @pytest.fixture
    def ragged(self, engine: str) -> Model:
        layers = (Dense(8), MultiHeadAttention(2), GlobalAveragePooling1D(), Output(3))
        return Model(Network(input=(None, 4), layers=layers), engine=engine)

    def test_one_array_of_one_length(self, ragged: Model) -> None:
        for length in (1, 5):
            x = np.ones((2, length, 4))
            assert ragged.predict(x).shape == (2,)
            for part in (x, x[:0]):
                weights = ragged.attention_weights(part)["attention_1"]
                assert weights.shape == (len(part), 2, length, length)
            y, pullback = ragged.vjp(x)
            assert pullback(y)[0].shape == x.shape

    def test_a_list_of_lengths(self, ragged: Model) -> None:
        rng = np.random.default_rng(0)
        x = [rng.normal(size=(length, 4)) for length in (3, 1, 6, 3, 2)]
        together = ragged.logits(x)
        assert np.allclose(together, [ragged.logits(one[None])[0] for one in x], atol=1e-6)
        weights = ragged.attention_weights(x)["attention_1"]
        assert [of.shape for of in weights] == [(2, len(one), len(one)) for one in x]
        y, pullback = ragged.vjp(x)
        assert [dx.shape for dx in pullback(y)[0]] == [one.shape for one in x]
        labels = np.array([0, 1, 2, 0, 1])
        history = ragged.fit((x, labels), test=(x, labels), epochs=30, batch_size=2)
        assert history[-1].loss < history[0].loss
        assert ragged.predict([]).shape == (0,)

    def test_bytes_and_floats_in_one_list(self, ragged: Model) -> None:
        x = np.arange(12, dtype=np.uint8).reshape(3, 4)
        assert np.allclose(*ragged.logits([x, x.astype(float)]))

    def test_a_loss_that_is_not_finite(self, ragged: Model) -> None:
        x = [np.full((length, 4), 1e30) for length in (1, 2, 3)]
        with pytest.raises(NonFiniteError, match="layer '"):
            ragged.fit((x, np.array([0, 1, 2])))

    @pytest.mark.parametrize(
        ("x", "text"),
        [
            (np.ones((2, 5, 3)), "x must have the shape (samples, None, 4)"),
            (np.ones((2, 0, 4)), "x must have the shape (samples, None, 4)"),
            ([np.ones((5, 4)), np.ones((5, 3))], "x[1] must have the shape (None, 4), with at "),
            ([np.ones((5, 4)), np.ones((0, 4))], "with at least one row. Its shape is (0, 4)."),
            ([np.ones((5, 4)), np.full((1, 4), np.inf)], "x[1][0, 0] is inf, which is not finite"),
            ([np.ones((5, 4), int)], "x[0] must be uint8 or floating point; it is int64."),
        ],
    )
    def test_refusals(self, ragged: Model, x: object, text: str) -> None:
        with pytest.raises(DataError) as error:
            ragged.predict(x)
        assert text in str(error.value)
