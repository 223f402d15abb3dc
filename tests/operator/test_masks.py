"""The rules of `undivided.masks`: what they allow, how they compose, print, compare and refuse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from undivided import masks
from undivided.errors import ArgumentError

Q, K = np.arange(20)[:, None], np.arange(20)[None, :]
IDS = np.array([5, 5, 5, 2, 2, 9, 9, 9, 9, 5, 5, 1, 1, 1, 1, 1, 1, 1, 0, 0])
SOME = np.isin(np.arange(20), [3, 7, 19])

RULES: list[tuple[masks.Mask, np.ndarray]] = [
    (masks.full(), np.full((20, 20), True)),
    (masks.causal(), K <= Q),
    (masks.causal(offset=3), K <= Q + 3),
    (masks.causal(-4), K <= Q - 4),
    (masks.window(2), (Q - 2 <= K) & (K <= Q)),
    (masks.window(2, 1), (Q - 2 <= K) & (K <= Q + 1)),
    (masks.window(0, 0, offset=-5), Q - 5 == K),
    (masks.window(None, 4), K <= Q + 4),
    (masks.window(3, None), K >= Q - 3),
    (masks.window(-1, -1), np.full((20, 20), True)),
    (masks.strided(1), np.full((20, 20), True)),
    (masks.strided(3), (Q - K) % 3 == 0),
    (masks.block_local(6), Q // 6 == K // 6),
    (masks.global_tokens(0), np.full((20, 20), False)),
    (masks.global_tokens(3), (Q < 3) | (K < 3)),
    (masks.global_tokens([7, 3, 19, 3]), SOME[:, None] | SOME[None, :]),
    (masks.documents(IDS), IDS[:, None] == IDS),
    (masks.documents(list(IDS), list(IDS[::-1])), IDS[:, None] == IDS[::-1]),
    (
        masks.causal() & masks.window(9) & masks.strided(2),
        (K <= Q) & (Q - K < 10) & (K % 2 == Q % 2),
    ),
    (masks.block_local(4) | masks.global_tokens(1), (Q // 4 == K // 4) | (Q < 1) | (K < 1)),
    (~(masks.causal() | masks.strided(2)), (K > Q) & ((Q - K) % 2 == 1)),
    (~~masks.causal(), K <= Q),
]


@pytest.mark.parametrize(("mask", "wanted"), RULES, ids=lambda x: repr(x)[:40])
def test_every_rule_as_it_reads(mask: masks.Mask, wanted: np.ndarray) -> None:
    found = mask.to_array(20, 20)
    assert found.dtype == np.bool_ and found.shape == (20, 20)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(mask.allows(Q, K), wanted)
    assert [bool(mask.allows(q, k)) for q, k in ((0, 19), (7, 3))] == [wanted[0, 19], wanted[7, 3]]


def test_more_queries_than_keys_and_none_at_all() -> None:
    np.testing.assert_array_equal(masks.causal().to_array(5, 3), np.tri(5, 3, dtype=bool))
    assert masks.causal().to_array(0, 3).shape == (0, 3)
    assert masks.full().to_array(3, 0).shape == (3, 0)
    assert masks.documents([], [1, 2]).to_array(0, 2).shape == (0, 2)


def test_equal_masks_are_equal_and_hash_alike() -> None:
    def make() -> list[masks.Mask]:
        return [
            masks.full(),
            masks.causal(),
            masks.window(4),
            masks.window(4, None),
            masks.strided(4),
            masks.block_local(4),
            masks.global_tokens(4),
            masks.global_tokens([1, 3]),
            masks.random(2),
            masks.random(2, seed=1),
            masks.documents([0, 1]),
            masks.documents([0, 1], [0, 1, 1]),
            masks.causal() & masks.strided(2),
            masks.causal() | masks.strided(2),
            ~masks.causal(),
        ]

    assert make() == make()
    assert len({*make(), *make()}) == len(make())
    assert masks.window(None) == masks.window(-1, 0) == masks.causal()
    assert masks.global_tokens([2, 0, 1]) == masks.global_tokens(3)
    assert masks.documents([0, 1]) == masks.documents(np.array([0, 1], np.int32), [0, 1])
    a, b, c = masks.causal(), masks.strided(2), masks.window(9)
    assert (a & b) & c == a & (b & c)
    assert ~~a is a
    with pytest.raises(AttributeError):
        masks.strided(2).stride = 3  # type: ignore[attr-defined]


def test_what_a_mask_is_called_makes_it_again() -> None:
    made = [
        masks.full(),
        masks.causal(),
        masks.causal(-2),
        masks.window(4),
        masks.window(4, 1),
        masks.window(None, None, 3),
        masks.window(4, None),
        masks.strided(4) & masks.causal(),
        masks.block_local(4) | masks.strided(2) & ~masks.window(0),
        ~(masks.full() | masks.strided(2)) & (masks.causal() | masks.window(3, 3)),
        masks.global_tokens(4),
        masks.global_tokens([1, 3]),
        masks.random(2, block=16, seed=7),
        masks.documents([0, 0, 1]),
        masks.documents([0, 0, 1], [1, 0]),
    ]
    names = {name: getattr(masks, name) for name in masks.__all__}
    for mask in made:
        assert eval(repr(mask), names) == mask
    assert repr(made[1]) == "causal()"
    assert repr(made[9]) == "~(full() | strided(2)) & (causal() | window(3, 3))"
    assert repr(masks.documents(range(100))) == (
        "documents([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, … 100 in all])"
    )


def test_only_distance() -> None:
    assert masks.full().relative and masks.window(3).relative and masks.strided(3).relative
    assert (~(masks.causal() & masks.strided(3)) | masks.window(2)).relative
    for mask in (
        masks.block_local(3),
        masks.global_tokens(1),
        masks.random(1),
        masks.documents([0]),
    ):
        assert not mask.relative
        assert not (masks.causal() & ~mask).relative


# Random blocks.


def test_random_draws_so_many_blocks_a_row() -> None:
    array = masks.random(3, block=8, seed=5).to_array(64, 100)
    blocks = array[::8, ::8]
    np.testing.assert_array_equal(array, blocks.repeat(8, axis=0).repeat(8, axis=1)[:, :100])
    assert (blocks.sum(axis=1) == 3).all()
    assert masks.random(9, block=8).to_array(20, 20).all()
    assert not masks.random(0, block=8).to_array(20, 20).any()


def test_random_is_the_same_everywhere_and_another_with_another_seed() -> None:
    blocks = masks.random(2, block=1, seed=2**64 - 1).to_array(6, 12)
    assert [np.flatnonzero(row).tolist() for row in blocks] == [
        *([5, 8], [2, 10], [5, 11]),
        *([5, 11], [0, 9], [4, 7]),
    ]
    assert (masks.random(2, block=1, seed=1).to_array(6, 12) != blocks).any()


def test_random_does_not_depend_on_queries_and_little_on_keys() -> None:
    mask = masks.random(4, block=2, seed=3)
    long = mask.to_array(200, 300)
    np.testing.assert_array_equal(mask.to_array(80, 300), long[:80])
    # Where there are fewer keys, what was drawn among more and is there is drawn as well.
    assert mask.to_array(200, 120)[long[:, :120]].all()


def test_random_is_even() -> None:
    drawn = masks.random(8, block=1, seed=11).to_array(2000, 40)
    share = drawn.mean(axis=0)
    assert abs(share - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 2000)
    assert len({row.tobytes() for row in drawn}) == 2000


def test_random_wants_to_know_how_many_keys_there_are() -> None:
    mask = masks.causal() & masks.random(2)
    with pytest.raises(ArgumentError) as error:
        mask.allows(0, 0)
    assert str(error.value) == (
        "random(2, block=64, seed=0) draws among the keys that there are. Say how many queries "
        "and keys: mask.sized(queries, keys)."
    )
    sized = mask.sized(200, 300)
    at = np.arange(200)[:, None], np.arange(300)
    np.testing.assert_array_equal(sized.allows(*at), mask.to_array(200, 300))


# Pictures.


def test_a_picture() -> None:
    mask = masks.causal() & masks.window(2) | masks.global_tokens(1)
    assert mask.draw(5, 6) == (
        "causal() & window(2) | global_tokens(1)\n"
        "   0       4\n"
        "0  # # # # # #\n"
        "1  # # . . . .\n"
        "2  # # # . . .\n"
        "3  # # # # . .\n"
        "4  # . # # # .\n"
        "queries down, keys across: # may attend, . may not"
    )


def test_print_shows_a_corner() -> None:
    lines = str(masks.strided(5)).splitlines()
    assert len(lines) == 1 + 1 + 16 + 1
    assert lines[1] == "    0       4       8       12"
    assert lines[2] == " 0  # . . . . # . . . . # . . . . #"
    assert lines[17] == "15  # . . . . # . . . . # . . . . #"
    assert masks.strided(5).draw(16, 16) == str(masks.strided(5))
    assert "may attend" in masks.causal().draw(0, 0)


def test_documents_are_drawn_as_far_as_they_go() -> None:
    assert str(masks.causal() & masks.documents([0, 0, 1])) == (
        "causal() & documents([0, 0, 1])\n"
        "   0\n"
        "0  # . .\n"
        "1  # # .\n"
        "2  . . #\n"
        "queries down, keys across: # may attend, . may not"
    )
    assert len(str(masks.documents(range(100))).splitlines()) == 19


# What cannot be.

WRONG: list[tuple[Callable[[], object], str | None, str]] = [
    (
        lambda: masks.strided(0),
        "stride",
        "The 'stride' of strided must be a whole number ≥ 1. Got 0.",
    ),
    (
        lambda: masks.block_local(2.0),
        "size",
        "The 'size' of block_local must be a whole number ≥ 1. Got 2.0.",
    ),
    (
        lambda: masks.window(-2),
        "left",
        "The 'left' of window must be a whole number ≥ -1. Got -2. None or −1 is no bound.",
    ),
    (
        lambda: masks.window(2, "3"),  # type: ignore[arg-type]
        "right",
        "The 'right' of window must be a whole number ≥ -1. Got '3'. None or −1 is no bound.",
    ),
    (
        lambda: masks.causal(True),
        "offset",
        "The 'offset' of causal must be a whole number. Got True.",
    ),
    (
        lambda: masks.random(1, seed=2**64),
        "seed",
        "The 'seed' of random must be a whole number ≥ 0 and ≤ 18446744073709551615. "
        "Got 18446744073709551616.",
    ),
    (
        lambda: masks.global_tokens([2, -1]),
        "tokens",
        "The 'tokens' of global_tokens must be positions from 0. Got -1.",
    ),
    (
        lambda: masks.global_tokens(np.array([True, False])),
        "tokens",
        "The 'tokens' of global_tokens must be one row of whole numbers. Got bool of shape [2].",
    ),
    (
        lambda: masks.documents([[0, 1], [0, 0]]),
        "query_ids",
        "The 'query_ids' of documents must be one row of whole numbers. Got int64 of shape [2, 2].",
    ),
    (
        lambda: masks.documents([0, 1], [0.5]),
        "key_ids",
        "The 'key_ids' of documents must be one row of whole numbers. Got float64 of shape [1].",
    ),
    (
        lambda: masks.documents([0, 1, 1]).blocks(3, 4),
        "mask",
        "The mask documents([0, 1, 1]) is for 3 queries and 3 keys. Got 3 queries and 4 keys. "
        "Give it an id for each query and each key.",
    ),
    (
        lambda: (masks.causal() | ~masks.documents([0, 1, 1])).to_array(2, 3),
        "mask",
        "The mask documents([0, 1, 1]) is for 3 queries and 3 keys. Got 2 queries and 3 keys. "
        "Give it an id for each query and each key.",
    ),
    (
        lambda: masks.documents([0, 1]).allows(2, 0),
        None,
        "documents([0, 1]) is for 2 queries and 2 keys. Got a position beyond them.",
    ),
    (
        lambda: masks.causal().allows(0.5, 0),
        None,
        "Positions must be whole numbers. Got float64.",
    ),
    (
        lambda: masks.causal().blocks(-1, 4),
        "queries",
        "The 'queries' of blocks must be a whole number ≥ 0. Got -1.",
    ),
    (
        lambda: masks.causal().to_array(4, None),  # type: ignore[arg-type]
        "keys",
        "The 'keys' of to_array must be a whole number ≥ 0. Got None.",
    ),
    (
        lambda: masks.causal() & np.ones((2, 2), bool),
        None,
        "A mask composes with a mask of undivided.masks. Got ndarray beside `&`. Compose arrays "
        "with arrays: mask.to_array(S, T).",
    ),
    (
        lambda: np.ones((2, 2), bool) | masks.causal(),
        None,
        "A mask composes with a mask of undivided.masks. Got ndarray beside `|`. Compose arrays "
        "with arrays: mask.to_array(S, T).",
    ),
    (
        lambda: masks.causal() and masks.window(3),
        None,
        "A mask is neither true nor false. Compose with &, | and ~ instead of `and`, `or` and "
        "`not`; ask `mask is None`.",
    ),
]


@pytest.mark.parametrize(("wrong", "argument", "text"), WRONG, ids=[w[2][:40] for w in WRONG])
def test_what_cannot_be(wrong: Callable[[], object], argument: str | None, text: str) -> None:
    with pytest.raises(ArgumentError) as error:
        wrong()
    assert str(error.value) == text
    assert error.value.argument == argument
