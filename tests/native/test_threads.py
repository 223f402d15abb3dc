"""Threads: how many, from where, and what they leave alone — forks, other threads, the caller."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from small_models import NETWORKS, OPTIMIZERS, engine_for, samples_for, trained

from undivided.engines.native import NativeEngine, available_threads, machine
from undivided.errors import ArgumentError

HERE = Path(__file__).parent


def fresh(program: str, **environment: str) -> str:
    """What a program prints in a process of its own, with these tests' helpers at hand."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(HERE)!r})\n{program}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,  # a process that hangs is a failure, not a wait
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# How many.


@pytest.mark.parametrize("threads", [1, 2, 7, 1024])
def test_threads_that_are_asked_for(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDIVIDED_THREADS", "5")
    assert engine_for("table", threads=threads).threads == threads


def test_threads_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = NETWORKS["table"].plan()
    monkeypatch.setenv("UNDIVIDED_THREADS", "5")
    assert NativeEngine(plan).threads == 5
    monkeypatch.setenv("UNDIVIDED_THREADS", "")
    assert NativeEngine(plan).threads == available_threads()
    monkeypatch.delenv("UNDIVIDED_THREADS")
    assert NativeEngine(plan).threads == available_threads()


@pytest.mark.parametrize("threads", [0, -1, 1025, 10**9])
def test_a_number_of_threads_that_cannot_be(threads: int) -> None:
    with pytest.raises(ArgumentError) as caught:
        NativeEngine(NETWORKS["table"].plan(), threads)
    assert str(caught.value) == f"'threads' must be a whole number from 1 to 1024. Got {threads}."


@pytest.mark.parametrize("text", ["0", "-2", "1025", "two", "1.5", " ", "2 cores"])
def test_an_environment_that_cannot_be(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDIVIDED_THREADS", text)
    with pytest.raises(ArgumentError) as caught:
        NativeEngine(NETWORKS["table"].plan())
    assert str(caught.value) == (
        f"UNDIVIDED_THREADS must be a whole number from 1 to 1024. Got {text!r}."
    )


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="there is no affinity here")
def test_the_default_respects_affinity() -> None:
    program = """
import os
from undivided.engines.native import available_threads
before = available_threads()
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(before, available_threads())
"""
    before, after = map(int, fresh(program).split())
    assert 1 <= before <= len(os.sched_getaffinity(0))
    assert after == 1


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "20000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "1600000 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "250000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu.max": "nonsense\n"}, 8),
        ({}, 8),
    ],
    ids=str,
)
def test_the_default_respects_the_quota(
    files: dict[str, str],
    expected: int,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def path(text: str) -> pathlib.Path:
        return tmp_path / pathlib.Path(text).relative_to("/sys/fs/cgroup")

    monkeypatch.setattr(machine, "Path", path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    machine.granted_cores.cache_clear()
    try:
        assert available_threads() == expected
    finally:
        machine.granted_cores.cache_clear()


# Forks.

FORK = """
import hashlib, os, threading
import numpy as np
from small_models import OPTIMIZERS, engine_for, trained

def digest(engine):
    return hashlib.sha256(b"".join(a.tobytes() for a in trained(engine))).hexdigest()[:16]

def model():
    return engine_for("classifier", OPTIMIZERS["AdamW"], threads=3)

def child_says(speak):
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.write(theirs, speak().encode())
        os._exit(0)
    os.close(theirs)
    said = os.read(ours, 100).decode()
    os.waitpid(child, 0)
    return said
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_after_use() -> None:
    """The child has none of the parent's threads: it makes its own, as does its child."""
    program = f"""{FORK}
used, kept = model(), model()
expected = digest(used)
def grandchild():
    return child_says(lambda: digest(model()))
print(expected, child_says(lambda: digest(model())), child_says(lambda: digest(kept)),
      child_says(grandchild), digest(model()), digest(kept))
"""
    expected, *others = fresh(program).split()
    assert others == [expected] * 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_while_another_thread_trains() -> None:
    program = f"""{FORK}
expected = digest(model())
over = False
def train_on():
    engine = model()
    while not over:
        trained(engine)
thread = threading.Thread(target=train_on)
thread.start()
said = [child_says(lambda: digest(model())) for _ in range(5)]
over = True
thread.join()
print(expected, *said, digest(model()))
"""
    expected, *others = fresh(program, PYTHONWARNINGS="ignore").split()
    assert others == [expected] * 6


# Other threads of Python.


def test_two_engines_at_once() -> None:
    def work(name: str) -> list[np.ndarray]:
        return trained(engine_for(name, OPTIMIZERS["AdamW"], threads=2))

    names = [*NETWORKS] * 4
    expected = {name: work(name) for name in NETWORKS}
    with ThreadPoolExecutor(4) as pool:
        for name, found in zip(names, pool.map(work, names), strict=True):
            for a, b in zip(found, expected[name], strict=True):
                np.testing.assert_array_equal(a, b)


def test_one_engine_used_by_several_threads() -> None:
    """Batches of different sizes at once: room that one needs must not move under another."""
    engine = engine_for("classifier", threads=2)
    x, y = samples_for(engine, 200)
    counts = [1, 200, 3, 33, 130, 8, 65, 2] * 8
    predictions = engine_for("classifier", threads=2).predict(x)
    expected = {n: engine_for("classifier").loss_and_gradients(x[:n], y[:n]) for n in set(counts)}
    engines = [engine, *(engine_for("classifier", threads=2) for _ in range(4))]
    for shared in engines:

        def ask(count: int, shared: NativeEngine = shared) -> None:
            np.testing.assert_array_equal(shared.predict(x[:count]), predictions[:count])
            loss, gradients = shared.loss_and_gradients(x[:count], y[:count])
            assert loss == expected[count][0]
            for name, gradient in gradients.items():
                np.testing.assert_array_equal(gradient, expected[count][1][name])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, counts))


def test_others_run_while_it_trains() -> None:
    """The interpreter is free during a call: this thread counts while another one trains."""
    engine = engine_for("classifier", threads=1)
    x, y = samples_for(engine, 40)
    order = np.arange(40 * 2000, dtype=np.uint32) % 40
    started, seconds = threading.Event(), []

    def train() -> None:
        started.set()
        before = time.perf_counter()
        engine.train(x, y, order, 40, 0, np.full(2000, 0.01))
        seconds.append(time.perf_counter() - before)

    thread = threading.Thread(target=train)
    thread.start()
    started.wait()
    ticks = 0
    while thread.is_alive():
        time.sleep(0.001)
        ticks += 1
    thread.join()
    assert seconds[0] > 0.03, "too short a run to say anything"
    assert ticks >= 5


# The caller's arithmetic.


def test_denormal_numbers_stay_the_callers_own() -> None:
    def survive() -> bool:
        small = np.full(64, 1e-40, np.float32)
        return bool(np.float32(1e-40) * np.float32(1) != 0 and (small * np.float32(0.5)).all())

    assert survive(), "they are flushed before anything was done"
    engine = engine_for("classifier", OPTIMIZERS["Adam"], threads=2)
    x, y = samples_for(engine)
    for call in (
        lambda: trained(engine),
        lambda: engine.predict(x),
        lambda: engine.loss_and_gradients(x, y),
        lambda: engine.pull_back(x, np.ones((len(x), 10), np.float32)),
        lambda: engine.attention_weights(x),
    ):
        call()
        assert survive()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: (trained(engine), survive())[1]).result()


def test_rounding_is_the_callers_own_after_a_failure() -> None:
    engine = engine_for("table")
    x, y = samples_for(engine, 4)
    x[1] = np.nan
    assert engine.train(x, y, np.arange(4, dtype=np.uint32), 4, 0, np.ones(1)).failed
    assert np.float32(1e-40) * np.float32(1) != 0
