"""The sentences of `agreement`: what is right is right by the grammar, and words tell nothing."""

from __future__ import annotations

import numpy as np
import pytest

from undivided.data import agreement
from undivided.data.agreement import LONGEST, TRANSITIVE, WORDS

NOUNS = {"author", "dog", "farmer", "friend", "judge", "nurse", "pilot", "singer"}
VERBS = {"laugh", "run", "sing", "sleep", "smile", "wait", *TRANSITIVE}
BEFORE_A_NOUN_PHRASE = {"near", "behind", "beside", "with"}


@pytest.fixture(scope="module")
def data():
    return agreement(count=6_000, test=200)


def words_of(ids: np.ndarray) -> list[str]:
    return [WORDS[i] for i in ids if i]


class Parser:
    """A second reading of the grammar: whether each verb has the number of its subject."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.agrees = list(words), True
        plural = self.phrase()
        verb = self.verb(plural)
        if verb in TRANSITIVE:
            self.phrase()
        assert not self.words

    def phrase(self) -> bool:
        """A noun and what is said of it; whether it is a plural."""
        assert self.words.pop(0) == "the"
        while self.words[0].removesuffix("s") not in NOUNS:
            self.words.pop(0)
        noun = self.words.pop(0)
        plural = noun not in NOUNS
        follows = self.words[0] if self.words else ""
        if follows in BEFORE_A_NOUN_PHRASE:
            self.words.pop(0)
            self.phrase()
        elif follows == "that":
            self.words.pop(0)
            if self.words[0] == "the":
                self.verb(self.phrase())
            else:
                self.verb(plural)
                self.phrase()
        return plural

    def verb(self, plural: bool) -> str:
        verb = self.words.pop(0)
        self.agrees &= (verb in VERBS) == plural
        return verb if verb in VERBS else verb.removesuffix("s")


def test_labels_are_what_the_grammar_says(data):
    for split in (data.train, data.test):
        for ids, label in zip(split.x, split.y, strict=True):
            assert Parser(words_of(ids)).agrees == bool(label)


def test_both_kinds_hold_the_same_words(data):
    """Without their order: as many of each word, up to chance."""
    right, wrong = (data.train.x[data.train.y == label] for label in (1, 0))
    assert 0.45 < len(right) / len(data.train) < 0.55
    shares = [np.bincount(x[x > 0], minlength=len(WORDS)) / (x > 0).sum() for x in (right, wrong)]
    np.testing.assert_allclose(*shares, atol=0.006)
    lengths = [(x > 0).sum(axis=1).mean() for x in (right, wrong)]
    assert abs(lengths[0] - lengths[1]) < 0.5


def test_sentences_are_filled_up_behind_their_end_and_never_twice(data):
    assert data.train.x.shape == (6_000, LONGEST) and data.train.x.dtype == np.int32
    x = np.concatenate([data.train.x, data.test.x])
    assert len(np.unique(x, axis=0)) == len(x)
    real = x > 0
    assert (real[:, :-1] >= real[:, 1:]).all()
    assert real.sum(axis=1).min() >= 5 and real[:, -1].any()


def test_they_come_from_the_seed_alone(data):
    again = agreement(count=6_000, test=200)
    np.testing.assert_array_equal(again.train.x, data.train.x)
    assert not np.array_equal(agreement(count=10, test=1, seed=2).train.x, data.train.x[:10])
    assert " ".join(words_of(data.train.x[0])) == (
        "the author that admires the farmer beside the quiet nurses helps the young dogs near the "
        "judge"
    )
    assert data.class_names == ("wrong", "right") and data.vocabulary == WORDS
