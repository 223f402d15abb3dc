"""Sentences of a small English grammar, in some of which a verb does not agree with its subject.

    the old pilots near the judge that the dogs help sleep        right
    the old pilots near the dogs that the judge help sleep        wrong: the judge help

A wrong sentence is a right one in which two nouns, one singular and one plural, have changed
places. So both kinds hold the same words, and counting them tells nothing. Which noun a verb
belongs to is told by the order alone: what follows a noun is said of that noun, `that` too.
"""

# N sentences, S words of the longest; id 0 fills up

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from undivided.data.dataset import Dataset, Split

__all__ = ["agreement"]

PREPOSITIONS = ("near", "behind", "beside", "with")
NOUNS = ("author", "dog", "farmer", "friend", "judge", "nurse", "pilot", "singer")
ADJECTIVES = ("happy", "old", "quiet", "tall", "tired", "young")
INTRANSITIVE = ("laugh", "run", "sing", "sleep", "smile", "wait")
TRANSITIVE = ("admire", "find", "follow", "help", "know", "like")
WORDS = (
    "",
    "the",
    "that",
    *PREPOSITIONS,
    *ADJECTIVES,
    *(form for noun in NOUNS for form in (noun, f"{noun}s")),
    *(form for verb in INTRANSITIVE + TRANSITIVE for form in (f"{verb}s", verb)),
)
"""What ids are called; a word that has two forms has its plural after its singular."""

LONGEST = 27
"""Words of the longest sentence: phrases within phrases go two deep, with two adjectives each."""

_DEPTH = 2


def agreement(count: int = 32_768, test: int = 2_048, seed: int = 1) -> Dataset:
    """Tell whether all verbs of a sentence agree with their subjects: y [N] is 1 where they do.

    x [N, S] are ids of words, filled up by 0 at the end. No sentence is there twice.
    """
    draws = _numbers(seed)
    known: set[tuple[int, ...]] = set()
    x = np.zeros((count + test, LONGEST), np.int32)
    y = np.empty(count + test, np.int32)
    for row in range(len(x)):
        ids, is_right = _labelled(draws)
        while ids in known:
            ids, is_right = _labelled(draws)
        known.add(ids)
        x[row, : len(ids)], y[row] = ids, is_right
    parts = Split(x[:count], y[:count]), Split(x[count:], y[count:])
    return Dataset(*parts, "agreement", class_names=("wrong", "right"), vocabulary=WORDS)


def _labelled(draws: Iterator[float]) -> tuple[tuple[int, ...], bool]:
    """The ids of a sentence, and whether it is right."""
    sentence = _Sentence(draws)
    while len(set(sentence.nouns.values())) < 2:  # none that could change places
        sentence = _Sentence(draws)
    is_right = sentence.pick(2) == 1
    if not is_right:
        sentence.spoil()
    return tuple(sentence.ids), is_right


class _Sentence:
    """A right sentence, word by word."""

    def __init__(self, draws: Iterator[float]) -> None:
        self.draws = draws
        self.ids: list[int] = []
        self.nouns: dict[int, int] = {}
        """Place of a noun → 1 if it is a plural."""
        self.subjects: list[int] = []
        """The place of each verb's subject."""
        subject = self.noun_phrase(_DEPTH)
        if self.pick(2):
            self.verb(INTRANSITIVE, subject)
        else:
            self.verb(TRANSITIVE, subject)
            self.noun_phrase(_DEPTH - 1)

    def noun_phrase(self, depth: int) -> int:
        """`the old dog`, perhaps with a phrase or a clause behind it; the place of the noun."""
        self.word("the")
        for _ in range(self.pick(3)):
            self.word(ADJECTIVES[self.pick(len(ADJECTIVES))])
        noun = len(self.ids)
        self.nouns[noun] = self.pick(2)
        self.word(NOUNS[self.pick(len(NOUNS))], plus=self.nouns[noun])
        kind = self.pick(4) if depth else 3
        if kind == 0:  # near the pilots
            self.word(PREPOSITIONS[self.pick(len(PREPOSITIONS))])
            self.noun_phrase(depth - 1)
        elif kind == 1:  # that helps the pilots
            self.word("that")
            self.verb(TRANSITIVE, noun)
            self.noun_phrase(depth - 1)
        elif kind == 2:  # that the pilots help
            self.word("that")
            self.verb(TRANSITIVE, self.noun_phrase(depth - 1))
        return noun

    def verb(self, verbs: tuple[str, ...], subject: int) -> None:
        self.subjects.append(subject)
        self.word(f"{verbs[self.pick(len(verbs))]}s", plus=self.nouns[subject])

    def spoil(self) -> None:
        """Let a verb's subject change places with a noun of the other number."""
        wrong = [s for s in self.subjects if any(self.nouns[s] != n for n in self.nouns.values())]
        subject = wrong[self.pick(len(wrong))]
        others = [place for place, number in self.nouns.items() if number != self.nouns[subject]]
        other = others[self.pick(len(others))]
        self.ids[subject], self.ids[other] = self.ids[other], self.ids[subject]

    def word(self, text: str, plus: int = 0) -> None:
        self.ids.append(_NUMBER[text] + plus)

    def pick(self, count: int) -> int:
        return int(next(self.draws) * count)


def _numbers(seed: int) -> Iterator[float]:
    """Uniform numbers from 0 to 1 without end, the same on every machine."""
    random = np.random.Generator(np.random.Philox(key=seed))
    while True:
        yield from random.random(1 << 16).tolist()


_NUMBER = {word: number for number, word in enumerate(WORDS)}
