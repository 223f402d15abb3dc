"""Masks by blocks: the same cells, whatever was decided of rectangles and however edges fall."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undivided import masks

LENGTHS = st.one_of(st.integers(0, 200), st.sampled_from([63, 64, 65, 128, 192]))


def leaves(S: int, T: int) -> st.SearchStrategy[masks.Mask]:
    some = st.one_of(st.integers(0, 5), st.integers(0, 150))
    bound = st.one_of(st.none(), some)
    offset = st.integers(-150, 150)
    places = st.lists(st.integers(0, 220), max_size=6)
    blocks = st.sampled_from([1, 5, 64, 70, 128])

    def ids(n: int) -> st.SearchStrategy[list[int]]:
        cuts = st.lists(st.integers(1, 100), min_size=1, max_size=8)
        names = st.lists(st.integers(-2, 4), min_size=8, max_size=8)

        def laid_out(pair: tuple[list[int], list[int]]) -> list[int]:
            spans = [np.repeat(name, span) for span, name in zip(*pair, strict=False)]
            return np.resize(np.concatenate(spans), n).tolist()

        return st.tuples(cuts, names).map(laid_out)

    return st.one_of(
        st.just(masks.full()),
        st.builds(masks.causal, offset),
        st.builds(masks.window, bound, bound, offset),
        st.builds(masks.strided, st.integers(1, 130)),
        st.builds(masks.block_local, st.integers(1, 130)),
        st.builds(masks.global_tokens, some | places),
        st.builds(masks.random, st.integers(0, 3), blocks, st.integers(0, 9)),
        st.builds(masks.documents, ids(S), ids(T)),
    )


def compositions(S: int, T: int) -> st.SearchStrategy[masks.Mask]:
    return st.recursive(
        leaves(S, T),
        lambda mask: st.one_of(
            mask.map(lambda m: ~m),
            st.tuples(mask, mask).map(lambda pair: pair[0] & pair[1]),
            st.tuples(mask, mask).map(lambda pair: pair[0] | pair[1]),
        ),
        max_leaves=5,
    )


@st.composite
def sized_masks(draw: st.DrawFn) -> tuple[masks.Mask, int, int]:
    S, T = draw(LENGTHS), draw(LENGTHS)
    return draw(compositions(S, T)), S, T


def cellwise(mask: masks.Mask, S: int, T: int) -> np.ndarray:
    """By the rules of boolean algebra from the arrays of the leaves."""
    kind, parts = type(mask).__name__, getattr(mask, "masks", ())
    arrays = [cellwise(part, S, T) for part in parts]
    if kind == "And":
        return np.logical_and.reduce(arrays)
    if kind == "Or":
        return np.logical_or.reduce(arrays)
    if kind == "Not":
        return np.logical_not(arrays[0])
    return mask.sized(S, T).allows(np.arange(S)[:, None], np.arange(T))


@given(sized_masks())
@settings(max_examples=300, derandomize=True, database=None, deadline=None)
def test_blocks_say_what_cells_say(case: tuple[masks.Mask, int, int]) -> None:
    mask, S, T = case
    cells = mask.to_array(S, T)
    np.testing.assert_array_equal(cells, cellwise(mask, S, T))
    blocks = mask.blocks(S, T)
    np.testing.assert_array_equal(blocks.to_array(), cells)
    assert blocks.states.dtype == np.int32 and blocks.patterns.dtype == np.uint64
    assert blocks.states.shape == (-(-S // 64), -(-T // 64)) and blocks.patterns.shape[1:] == (64,)
    assert blocks.states.flags.c_contiguous and blocks.patterns.flags.c_contiguous
    # No pattern twice, none unused, and none where a block is all or nothing.
    count = len(blocks.patterns)
    assert len(np.unique(blocks.patterns, axis=0)) == count
    assert set(range(1, count + 1)) == set(blocks.states.reshape(-1).tolist()) - {-1, 0}
    for (i, j), state in np.ndenumerate(blocks.states):
        inside = cells[i * 64 : i * 64 + 64, j * 64 : j * 64 + 64]
        assert state == (0 if inside.all() else state if inside.any() and state > 0 else -1)


@given(sized_masks(), st.data())
@settings(max_examples=300, derandomize=True, database=None, deadline=None)
def test_what_is_decided_is_so(case: tuple[masks.Mask, int, int], data: st.DataObject) -> None:
    mask, S, T = case
    S, T = max(S, 1), max(T, 1)
    if mask.extent is not None:
        S, T = mask.extent
        if S == 0 or T == 0:
            return
    cells, mask = mask.to_array(S, T), mask.sized(S, T)
    q = np.sort(data.draw(st.lists(st.tuples(*[st.integers(0, S - 1)] * 2), min_size=8)), axis=1)
    k = np.sort(data.draw(st.lists(st.tuples(*[st.integers(0, T - 1)] * 2), min_size=8)), axis=1)
    decided = mask.decide(q[:, :1], q[:, 1:], k[:, 0], k[:, 1])
    assert decided.shape == (len(q), len(k)) and decided.dtype == np.int8
    for (row, column), says in np.ndenumerate(decided):
        inside = cells[q[row, 0] : q[row, 1] + 1, k[column, 0] : k[column, 1] + 1]
        assert says == 0 or inside.all() == inside.any() == (says > 0)


@pytest.mark.parametrize(
    "mask",
    [
        masks.full(),
        masks.window(7, 2),
        masks.strided(5),
        masks.block_local(3),
        masks.global_tokens(4),
        masks.global_tokens([2, 9]),
        masks.random(2, block=3),
        masks.documents(np.repeat(np.arange(10), 2)),
    ],
    ids=repr,
)
def test_a_single_cell_can_be_decided(mask: masks.Mask) -> None:
    at = np.arange(20)[:, None], np.arange(20)
    sized = mask.sized(20, 20)
    decided = sized.decide(at[0], at[0], at[1], at[1])
    wanted = np.where(mask.to_array(20, 20), 1, -1)
    if isinstance(mask, type(masks.documents([0]))):  # it knows the ids of blocks, not of cells
        wanted = np.zeros_like(wanted)
    np.testing.assert_array_equal(decided, wanted)


def test_causal_has_one_pattern() -> None:
    blocks = masks.causal().blocks(256, 256)
    np.testing.assert_array_equal(blocks.states, 2 * np.eye(4) - 1 + np.tri(4, k=-1))
    np.testing.assert_array_equal(blocks.patterns, [[2 ** (i + 1) - 1 for i in range(64)]])
    assert repr(blocks) == ("Blocks(256 × 256 in 16 blocks: 6 skipped, 6 whole, 4 by 1 patterns)")


def test_what_an_edge_leaves_of_a_block_may_be_all_of_it() -> None:
    assert masks.window(63, 63).blocks(64, 64).states.tolist() == [[0]]
    assert masks.causal(offset=9).blocks(10, 10).states.tolist() == [[0]]
    assert masks.causal(offset=-1).blocks(65, 65).states.tolist() == [[1, -1], [0, -1]]
    assert masks.strided(64).blocks(1, 64 + 1).states.tolist() == [[1, 0]]
    assert masks.strided(64).blocks(128, 64 + 1).states.tolist() == [[1, 1], [1, 1]]


def test_no_queries_or_no_keys() -> None:
    for S, T in ((0, 0), (0, 70), (70, 0)):
        for mask in (masks.causal(), masks.block_local(7), masks.random(1)):
            blocks = mask.blocks(S, T)
            assert blocks.states.shape == (-(-S // 64), -(-T // 64))
            assert blocks.patterns.shape == (0, 64) and blocks.to_array().shape == (S, T)


def test_the_same_blocks_are_made_once_and_cannot_be_written() -> None:
    blocks = masks.window(33).blocks(100, 100)
    assert masks.window(33).blocks(100, 100) is blocks
    assert masks.window(33).blocks(100, 101) is not blocks
    for array in (blocks.states, blocks.patterns):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


LONG = 65536
LONG_MASKS = [
    masks.causal() & masks.window(4096),
    masks.causal() & masks.strided(129),
    masks.causal() & masks.window(300) | masks.global_tokens(8),
    masks.random(3) | masks.window(64, 64),
    masks.documents(np.arange(LONG) // 1000) & masks.causal(),
]


@pytest.mark.parametrize("mask", LONG_MASKS, ids=lambda mask: repr(mask)[:50])
def test_long_sequences_take_little_memory(mask: masks.Mask) -> None:
    """A bit for each pair would be 512 MB."""
    tracemalloc.start()
    blocks = mask.blocks(LONG, LONG)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40e6
    generator = np.random.default_rng(0)
    sized = mask.sized(LONG, LONG)
    q = generator.integers(0, LONG, 20000)
    k = np.clip(q + generator.integers(-300, 50, 20000), 0, LONG - 1)  # near the diagonal too
    for keys in (k, generator.integers(0, LONG, 20000)):
        state = blocks.states[q // 64, keys // 64]
        words = np.concatenate([blocks.patterns, np.zeros((1, 64), np.uint64)])[state - 1, q % 64]
        bits = (words >> (keys % 64).astype(np.uint64) & np.uint64(1)).astype(bool)
        np.testing.assert_array_equal(np.where(state > 0, bits, state == 0), sized.allows(q, keys))


def test_documents_look_between_the_ends() -> None:
    """What lies in the middle of three blocks is neither the first nor the last."""
    mask = masks.documents(np.repeat([0, 1, 0], 64))
    assert mask.decide(0, 191, 0, 0) == mask.decide(64, 64, 0, 191) == 0
    assert mask.decide(0, 63, 128, 191) == 1 and mask.decide(0, 63, 64, 127) == -1
