"""The training loop: chunks, order, progress, logs, Ctrl-C. An engine that only counts will do."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from undivided import Adam, ArgumentError, ExponentialDecay, Model, Network, Output, Progress, Train
from undivided.engines.engine import TrainedSteps
from undivided.errors import NonFiniteError
from undivided.layers import Flatten
from undivided.training import loop
from undivided.training.generators import XorShift64
from undivided.training.history import Epoch, TrainingState
from undivided.training.logs import Log
from undivided.training.progress import Interruption

NETWORK = Network(
    input=(2,),
    layers=(Flatten(), Output(2)),
    optimizer=Adam(0.01),
    train=Train(epochs=3, batch_size=4),
)


class Clock:
    """A time that passes only where a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop, "perf_counter", clock)
    return clock


class Counting:
    """An engine that notes what it is asked, and takes as long as it is told to."""

    def __init__(self, seconds_a_step: float = 0.0) -> None:
        self.plan = NETWORK.plan()
        self.seconds_a_step = seconds_a_step
        self.calls: list[tuple[np.ndarray, int, int, np.ndarray]] = []
        self.optimizer_steps: list[int] = []
        self.fails_at: int | None = None
        self.before_each: Callable[[], None] = lambda: None

    def train(  # type: ignore[no-untyped-def]
        self, x, y, order, batch_size, first_step, learning_rates, optimizer_steps
    ):
        self.before_each()
        self.optimizer_steps.append(optimizer_steps)
        steps = len(learning_rates)
        assert len(order) <= steps * batch_size and len(order) > (steps - 1) * batch_size
        if self.seconds_a_step:
            loop.perf_counter.now += steps * self.seconds_a_step  # type: ignore[attr-defined]
        self.calls.append((order.copy(), batch_size, first_step, learning_rates.copy()))
        if self.fails_at is not None and first_step + steps > self.fails_at:
            return TrainedSteps(np.ones(self.fails_at - first_step), failed=True)
        # The loss of sample i is i, whatever the step.
        bounds = range(0, len(order), batch_size)
        return TrainedSteps(
            np.array([x[order[b : b + batch_size], 0].sum() for b in bounds]), False
        )

    def predict(self, x):  # type: ignore[no-untyped-def]
        return np.stack([x[:, 0] * 0, x[:, 0]], axis=1)


def run(engine: Counting, count: int = 10, epochs: int = 2, **given: object) -> list[Epoch]:
    x = np.stack([np.arange(count), np.arange(count)], axis=1).astype(np.float32)
    y = np.zeros(count, np.int32)
    state = given.pop("state", None) or TrainingState(XorShift64(42))
    settings = {"epochs": epochs, "batch_size": 4, "learning_rate": 0.5, "test": None} | given
    return loop.train(engine, state, (x, y), **settings)  # type: ignore[arg-type]


class TestSteps:
    def test_every_sample_once_an_epoch_in_the_generators_order(self) -> None:
        engine = Counting()
        run(engine, epochs=2)
        seen = np.concatenate([call[0] for call in engine.calls])
        generator, order = XorShift64(42), np.arange(10, dtype=np.uint32)
        generator.shuffle(order)
        assert list(order) == [3, 6, 1, 8, 9, 5, 7, 4, 2, 0]
        assert list(seen[:10]) == list(order)
        generator.shuffle(order)
        assert list(seen[10:]) == list(order)

    def test_steps_are_counted_and_the_short_batch_is_kept(self) -> None:
        engine, state = Counting(), TrainingState(XorShift64(1))
        run(engine, epochs=3, state=state)
        steps = [(call[2], len(call[3])) for call in engine.calls]
        assert [first for first, _ in steps] == list(np.cumsum([0] + [n for _, n in steps])[:-1])
        assert state.steps == state.optimizer_steps == 9
        assert state.epochs == 3

    def test_an_optimizer_that_began_anew_counts_for_itself(self) -> None:
        engine, state = Counting(), TrainingState(XorShift64(1), steps=7)
        run(engine, epochs=1, state=state)
        assert [call[2] for call in engine.calls] == [7, 8]
        assert engine.optimizer_steps == [0, 1]

    def test_the_loss_is_the_mean_over_all_samples(self) -> None:
        assert [entry.loss for entry in run(Counting())] == [4.5, 4.5]

    def test_the_loss_does_not_tell_the_chunks(self) -> None:
        losses = set()
        for seconds in (0.0, 0.001, 0.03):
            engine = Counting(seconds)
            losses.add(run(engine, count=97, epochs=1, batch_size=3)[0].loss)
        assert losses == {48.0}

    def test_a_schedule_goes_on_from_step_to_step(self) -> None:
        rate = ExponentialDecay(1.0, 1, 0.5)
        engine = Counting()
        run(engine, epochs=2, learning_rate=rate)
        rates = np.concatenate([call[3] for call in engine.calls])
        assert list(rates) == [0.5**step for step in range(6)]

    def test_chunks_grow_to_what_lasts_fifty_milliseconds(self) -> None:
        engine = Counting(0.002)
        run(engine, count=4 * 200, epochs=1)
        steps = [len(call[3]) for call in engine.calls]
        assert loop.CHUNK_SECONDS == 0.05
        assert steps == [1, 16, *[25] * 7, 8]

    def test_a_slow_step_goes_alone(self) -> None:
        engine = Counting(0.06)
        run(engine, count=12, epochs=1)
        assert [len(call[3]) for call in engine.calls] == [1, 1, 1]

    def test_the_seconds_are_those_of_training_alone(self, clock: Clock) -> None:
        class Slow(Progress):
            def finished(self, entry: Epoch) -> None:
                clock.now += 1000

            def advanced(self, epoch: int, done: int, samples: int, loss: float) -> None:
                clock.now += 100

        class Shuffling(XorShift64):
            def shuffle(self, order: np.ndarray) -> None:
                super().shuffle(order)
                clock.now += 10

        state = TrainingState(Shuffling(1))
        history = run(Counting(1), epochs=2, watchers=[Slow()], state=state)
        assert [entry.seconds for entry in history] == [13, 13]

    def test_a_test_follows_each_epoch(self) -> None:
        x = np.ones((5, 2), np.float32)
        history = run(Counting(), test=(x, np.array([1, 1, 0, 1, 1], np.int32)))
        assert [entry.test_accuracy for entry in history] == [0.8, 0.8]


class TestFailure:
    @pytest.mark.parametrize("step", [0, 2, 4])
    def test_it_names_epoch_and_step_and_asks_where(self, step: int) -> None:
        engine, state, asked = Counting(), TrainingState(XorShift64(42)), []
        engine.fails_at = step

        def diagnose(x: np.ndarray, y: np.ndarray) -> str:
            asked.append(x[:, 0].astype(int).tolist())
            return "layer 'output_1'"

        with pytest.raises(NonFiniteError) as error:
            run(engine, epochs=2, state=state, diagnose=diagnose)
        assert f"The loss of epoch {1 + step // 3}, step {1 + step % 3} is not" in str(error.value)
        assert "The first number that is not: layer 'output_1'." in str(error.value)
        assert "the weights are those of the step before" in str(error.value)
        assert state.steps == step
        order = np.arange(10, dtype=np.uint32)
        generator = XorShift64(42)
        for _ in range(1 + step // 3):
            generator.shuffle(order)
        assert asked == [list(order[4 * (step % 3) : 4 * (step % 3) + 4])]

    def test_without_a_diagnosis(self) -> None:
        engine = Counting()
        engine.fails_at = 1
        with pytest.raises(NonFiniteError, match=r"is not finite.\nTraining stopped before"):
            run(engine)


class TestProgress:
    def test_it_hears_of_everything_in_order(self) -> None:
        heard: list[object] = []

        class Watcher(Progress):
            def advanced(self, epoch: int, done: int, samples: int, loss: float) -> None:
                heard.append((epoch, done, samples))
                assert 0 <= loss <= 9

            def finished(self, entry: Epoch) -> None:
                heard.append(entry)

        history = run(Counting(0.06), epochs=2, watchers=[Watcher()])
        expected: list[object] = []
        for entry in history:
            expected += [(entry.epoch, done, 10) for done in (4, 8, 10)] + [entry]
        assert heard == expected

    def test_the_base_does_nothing(self) -> None:
        run(Counting(), watchers=[Progress()])

    def test_lines(self) -> None:
        assert str(Epoch(1, 2.2932334, 0.27149, 0.18031)) == (
            "Epoch 1 | loss=2.293233 | time=0.271s | test_acc=18.03%"
        )
        assert str(Epoch(12, 0.5, 10.0)) == "Epoch 12 | loss=0.500000 | time=10.000s"


class TestInterruption:
    def test_ctrl_c_waits_for_the_end_of_a_chunk(self) -> None:
        engine, state = Counting(0.01), TrainingState(XorShift64(1))
        engine.before_each = lambda: os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            run(engine, epochs=100, state=state)
        assert len(engine.calls) == 1 and state.steps == 1
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def test_a_second_one_does_not_wait(self) -> None:
        with pytest.raises(KeyboardInterrupt), Interruption():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("the second Ctrl-C was not raised")

    def test_one_at_the_very_end_is_not_lost(self) -> None:
        with pytest.raises(KeyboardInterrupt), Interruption():
            os.kill(os.getpid(), signal.SIGINT)

    def test_a_handler_of_ones_own_stays(self) -> None:
        heard: list[int] = []
        before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
        try:
            run_once = Counting()
            run_once.before_each = lambda: os.kill(os.getpid(), signal.SIGINT)
            run(run_once, epochs=1)
        finally:
            signal.signal(signal.SIGINT, before)
        assert set(heard) == {signal.SIGINT}

    def test_other_threads_can_train(self) -> None:
        results: list[list[Epoch]] = []
        thread = threading.Thread(target=lambda: results.append(run(Counting())))
        thread.start()
        thread.join()
        assert len(results[0]) == 2

    def test_training_goes_on_afterwards(self) -> None:
        model = Model(NETWORK, engine="reference")
        x, y = np.ones((40, 2), np.float32), np.zeros(40, np.int32)

        class Stop(Progress):
            def advanced(self, epoch: int, done: int, samples: int, loss: float) -> None:
                os.kill(os.getpid(), signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            model.fit((x, y), progress=Stop())
        assert model.epochs == 0 and model.steps == 1
        assert [entry.epoch for entry in model.fit((x, y), epochs=2)] == [1, 2]


class TestLog:
    def test_header_and_lines(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "b" / "log.txt"
        with Log(path) as log:
            assert path.read_text() == "epoch,loss,time,test_accuracy\n"
            log.finished(Epoch(1, 2.2932334, 0.27149, 0.18031))
            assert path.read_text().endswith("\n1,2.293233,0.271,18.03\n")  # there at once
            log.finished(Epoch(2, 0.5, 1.0))
        assert path.read_text().endswith("\n2,0.500000,1.000,\n")

    def test_a_fit_writes_one_and_a_second_adds_to_it(self, tmp_path: Path) -> None:
        path = tmp_path / "log.csv"
        path.write_text("of an older run")
        model = Model(NETWORK, engine="reference")
        samples = np.ones((8, 2), np.float32), np.zeros(8, np.int32)
        model.fit(samples, epochs=2, log=path)
        model.fit(samples, epochs=1, log=path)
        lines = path.read_text().splitlines()
        assert lines[0] == "epoch,loss,time,test_accuracy"
        assert [line.split(",")[0] for line in lines[1:]] == ["1", "2", "3"]

    def test_the_networks_own_log(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        network = Network(NETWORK.input, NETWORK.layers, train=Train(epochs=1, log="logs/log.txt"))
        samples = np.ones((8, 2), np.float32), np.zeros(8, np.int32)
        Model(network, engine="reference").fit(samples, log=False)
        assert not os.listdir(tmp_path)
        Model(network, engine="reference").fit(samples, log="other.csv")
        assert os.listdir(tmp_path) == ["other.csv"]
        Model(network, engine="reference").fit(samples)
        assert len(Path("logs/log.txt").read_text().splitlines()) == 2

    @pytest.mark.parametrize("place", [".", "plain/log.csv", "nul\0l"])
    def test_a_place_that_cannot_be_written_is_refused_before_training(
        self, tmp_path: Path, place: str
    ) -> None:
        (tmp_path / "plain").touch()
        model = Model(NETWORK, engine="reference")
        samples = np.ones((8, 2), np.float32), np.zeros(8, np.int32)
        with pytest.raises(ArgumentError, match=r"The log '.*' cannot be written: .* Name another"):
            model.fit(samples, log=f"{tmp_path}/{place}")
        assert model.steps == 0
