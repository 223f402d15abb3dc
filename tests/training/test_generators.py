"""The generators, number for number, and the initial values that are drawn from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from undivided.errors import ArgumentError
from undivided.layers import (
    Activation,
    Dense,
    GlobalAveragePooling1D,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    Output,
    Patches,
    Rescaling,
)
from undivided.network import Network
from undivided.training import generators
from undivided.training.generators import GENERATORS, Philox, XorShift64, philox4x32
from undivided.training.initial import initialize

SEEDS = st.integers(0, 2**64 - 1)


def classifier(width, hidden, **positions):
    """The MNIST attention classifier of the reference programs."""
    return Network(
        input=(28, 28),
        layers=(
            Rescaling(1 / 255),
            Patches(4),
            Dense(width),
            LearnedPositions(**positions),
            Activation("relu"),
            MultiHeadAttention(num_heads=1, output_projection=False),
            Dense(hidden, activation="relu"),
            Dense(width),
            GlobalAveragePooling1D(),
            Output(10),
        ),
    ).plan()


# xorshift64, as the reference programs draw.


@pytest.mark.parametrize(
    ("seed", "draws"),
    [
        (1, [0, 268452102, 2602468399, 4115985667, 2248941488, 4138750722]),
        (42, [10, 2685053693, 2333292956, 674990334, 1318150115, 2350379700]),
        (0, [3692787630, 1693511353, 2064109201, 811533580]),
    ],
)
def test_xorshift64_draws(seed, draws):
    generator = XorShift64(seed)
    assert [generator.next_u32() for _ in draws] == draws


def test_xorshift64_shuffles():
    order = np.arange(10, dtype=np.uint32)
    XorShift64(42).shuffle(order)
    assert order.tolist() == [3, 6, 1, 8, 9, 5, 7, 4, 2, 0]
    assert order.dtype == np.uint32


def test_the_next_shuffle_starts_from_the_last():
    order, generator = np.arange(10, dtype=np.uint32), XorShift64(42)
    generator.shuffle(order)
    again = order.copy()
    generator.shuffle(again)
    fresh = np.arange(10, dtype=np.uint32)
    later = XorShift64(42)
    later.shuffle(np.arange(10, dtype=np.uint32))
    later.shuffle(fresh)
    np.testing.assert_array_equal(again, order[fresh])


FIRST_TWO = {
    "dense_1.weight": (-0.4330127, -0.3788828),
    "positions_1.table": (0.0277512, 0.0241117),
    "attention_1.query.weight": (-0.1097224, 0.2881884),
    "attention_1.key.weight": (-0.3734601, 0.0059145),
    "attention_1.value.weight": (-0.3901534, 0.0083485),
    "dense_2.weight": (0.0395072, -0.0445947),
    "dense_3.weight": (-0.1169941, -0.259686),
    "output_1.weight": (-0.4484355, 0.1769897),
}


def test_initial_values_of_the_narrow_classifier():
    plan, generator = classifier(16, 32), XorShift64(1)
    values = initialize(plan, generator)
    assert list(values) == list(plan.parameters)
    for name, array in values.items():
        assert array.dtype == np.float32
        assert array.shape == plan.parameters[name].shape
        if name.endswith("bias"):
            assert not array.any()
        else:
            np.testing.assert_allclose(array.ravel()[:2], FIRST_TWO[name], rtol=0, atol=5.1e-8)
    order = np.arange(60000, dtype=np.uint32)
    generator.shuffle(order)
    assert order[:8].tolist() == [35522, 25316, 21571, 57718, 9393, 49857, 58711, 1311]
    np.testing.assert_array_equal(np.sort(order), np.arange(60000))


def test_initial_values_of_the_wide_classifier():
    """The sinusoidal table draws nothing, or what comes after it would differ."""
    values = initialize(classifier(64, 128, start="sinusoidal"), XorShift64(42))
    for name, expected in {
        "dense_1.weight": (-0.2738613, 0.0685545),
        "attention_1.query.weight": (-0.0296176, -0.1509095),
        "output_1.weight": (-0.1391478, -0.0001306),
    }.items():
        np.testing.assert_allclose(values[name].ravel()[:2], expected, rtol=0, atol=5.1e-8)
    table = values["positions_1.table"]
    t, d = 48, 10
    assert table[t, d] == np.float32(np.sin(t / 10000 ** (d / 64)))
    assert table[t, d + 1] == np.float32(np.cos(t / 10000 ** (d / 64)))


def test_each_kind_of_start():
    network = Network(
        input=(6, 4), layers=(LayerNormalization(), GlobalAveragePooling1D(), Output(3))
    )
    values = initialize(network.plan(), Philox(1))
    np.testing.assert_array_equal(values["normalization_1.gain"], np.ones(4))
    np.testing.assert_array_equal(values["normalization_1.shift"], np.zeros(4))
    assert np.abs(values["output_1.weight"]).max() <= np.sqrt(6 / 7)

    def table(**arguments):
        return initialize(classifier(16, 32, **arguments), Philox(1))["positions_1.table"]

    assert not table(start="zero").any()
    assert 0.4 < np.abs(table(range=0.5)).max() <= 0.5
    limit = np.sqrt(6 / (49 + 16))
    assert 0.9 * limit < np.abs(table(start="xavier")).max() <= limit


# Philox, against the known answers of its authors' library.


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0, 0, 0, 0], (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ([0xFFFFFFFF] * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_known_answers(counter, key, words):
    found = philox4x32(np.array([counter, counter], np.uint32), key)
    for row in found:
        assert " ".join(f"{word:08x}" for word in row) == words


def test_philox_blocks_stand_alone():
    counters = np.random.default_rng(1).integers(0, 2**32, (5, 4), dtype=np.uint32)
    together = philox4x32(counters, (1, 2))
    for counter, words in zip(counters, together, strict=True):
        np.testing.assert_array_equal(philox4x32(counter[None], (1, 2))[0], words)


@given(SEEDS, st.integers(0, 5))
def test_philox_draws_the_nth_without_those_before(seed, n):
    one_by_one, straight = Philox(seed), Philox(seed)
    for count in range(n):
        one_by_one.uniform(3 + count, 0, 1)
        one_by_one.shuffle(np.arange(count, dtype=np.uint32))
    straight.state = (seed, n, n)
    np.testing.assert_array_equal(one_by_one.uniform(9, 0, 1), straight.uniform(9, 0, 1))
    first, second = (np.arange(20, dtype=np.uint32) for _ in range(2))
    one_by_one.shuffle(first)
    straight.shuffle(second)
    np.testing.assert_array_equal(first, second)


@given(SEEDS)
def test_a_philox_shuffle_does_not_depend_on_the_order_before(seed):
    first, second = np.arange(20, dtype=np.uint32), np.arange(20, dtype=np.uint32)[::-1].copy()
    Philox(seed).shuffle(first)
    Philox(seed).shuffle(second)
    np.testing.assert_array_equal(first, second)


def test_philox_draws_are_pinned():
    """What a seed gives may not change from one version to the next."""
    generator = Philox(42)
    assert generator.uniform(3, -1, 1).tolist() == [
        0.2259197235107422,
        -0.06282699108123779,
        -0.8535365462303162,
    ]
    order = np.arange(10, dtype=np.uint32)
    generator.shuffle(order)
    assert order.tolist() == [5, 9, 8, 2, 3, 4, 0, 6, 7, 1]


# What both promise.


@pytest.mark.parametrize("kind", GENERATORS)
@given(seed=SEEDS, count=st.integers(0, 50))
def test_uniform_stays_between_its_limits(kind, seed, count):
    values = GENERATORS[kind](seed).uniform(count, -0.25, 0.5)
    assert values.dtype == np.float32
    assert values.shape == (count,)
    assert ((values >= -0.25) & (values <= 0.5)).all()


@pytest.mark.parametrize("kind", GENERATORS)
@given(seed=SEEDS, count=st.integers(0, 50))
def test_a_shuffle_keeps_every_sample(kind, seed, count):
    order = np.arange(count, dtype=np.uint32)
    GENERATORS[kind](seed).shuffle(order)
    np.testing.assert_array_equal(np.sort(order), np.arange(count))


@pytest.mark.parametrize("kind", GENERATORS)
@given(seed=SEEDS)
def test_the_state_is_all_there_is(kind, seed):
    generator = GENERATORS[kind](seed)
    generator.uniform(5, 0, 1)
    generator.shuffle(np.arange(7, dtype=np.uint32))
    other = GENERATORS[kind](1)
    other.state = generator.state
    assert all(isinstance(number, int) for number in generator.state)
    np.testing.assert_array_equal(generator.uniform(5, 0, 1), other.uniform(5, 0, 1))
    first, second = (np.arange(9, dtype=np.uint32) for _ in range(2))
    generator.shuffle(first)
    other.shuffle(second)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", GENERATORS)
def test_draws_are_even(kind):
    values = GENERATORS[kind](7).uniform(20000, 0, 1)
    counts = np.histogram(values, bins=20, range=(0, 1))[0]
    chi_square = ((counts - 1000) ** 2 / 1000).sum()
    assert chi_square < 43.8  # 19 degrees of freedom, 0.1 %
    places = np.zeros((5, 5))
    generator = GENERATORS[kind](7)
    for _ in range(2000):
        order = np.arange(5, dtype=np.uint32)
        generator.shuffle(order)
        places[np.arange(5), order] += 1
    assert ((places - 400) ** 2 / 400).sum() < 39.3  # 16 degrees of freedom, 0.1 %


@pytest.mark.parametrize("kind", GENERATORS)
@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "1", True, None])
def test_a_seed_is_a_64_bit_number(kind, seed):
    with pytest.raises(ArgumentError, match=r"whole number from 0 to 2⁶⁴ − 1\. Got"):
        GENERATORS[kind](seed)


def test_the_fast_path_draws_the_same(monkeypatch):
    """A compiled filler and shuffler change nothing but the time."""

    def fill(state, draws):
        slow = plain(state)
        draws[:] = [slow.next_u32() for _ in range(len(draws))]
        return slow.state[0]

    def shuffle(state, order):
        slow = plain(state)
        for i in range(len(order) - 1, 0, -1):
            j = slow.next_u32() % (i + 1)
            order[i], order[j] = order[j], order[i]
        return slow.state[0]

    def plain(state):
        generator = XorShift64(1)
        generator.state = (state,)
        return generator

    def run():
        generator, order = XorShift64(5), np.arange(30, dtype=np.uint32)
        values = generator.uniform(10, -1, 1)
        generator.shuffle(order)
        return values.tolist(), order.tolist(), generator.state

    monkeypatch.setattr(generators, "_native", None)
    expected = run()

    class Native:
        xorshift64_fill = staticmethod(fill)
        xorshift64_shuffle = staticmethod(shuffle)

    monkeypatch.setattr(generators, "_native", Native)
    assert run() == expected


def test_the_compiled_path_if_it_is_there(monkeypatch):
    if not hasattr(generators._native, "xorshift64_fill"):
        pytest.skip("built without the native engine")
    fast, order = XorShift64(123), np.arange(1000, dtype=np.uint32)
    values = fast.uniform(1000, -1, 1)
    fast.shuffle(order)
    monkeypatch.setattr(generators, "_native", None)
    slow, slow_order = XorShift64(123), np.arange(1000, dtype=np.uint32)
    np.testing.assert_array_equal(slow.uniform(1000, -1, 1), values)
    slow.shuffle(slow_order)
    np.testing.assert_array_equal(order, slow_order)
    assert fast.state == slow.state
