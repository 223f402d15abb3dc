"""Sequences that a network goes on with: its targets shifted for training, and tokens generated.

A decoder learns each token from those before it, so in training it is given the targets shifted
right by one. Once trained it is given what it said itself: token by token, the most likely one or
one drawn by its probability.
"""

# N samples, V ids

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from undivided.engines.engine import Packed, Samples, Sequences
from undivided.errors import ArgumentError, DataError
from undivided.plan.plan import Input

__all__ = ["Choice", "Scores", "continued", "going_on", "shifted", "up_to_their_ends"]

AT_ONCE = 256
"""Sequences that go on together where nothing is drawn."""

Scores = Callable[[list[int], list[np.ndarray]], Iterable[np.ndarray]]
"""What a network says of some sequences, given by number and as it sees them: [tokens, V] for each,
of which the last row tells the next token."""


def up_to_their_ends(y: Any, entry: Input, where: str) -> Any:
    """Targets without their padding, but for one: it tells where a sequence ends."""
    if entry.padding_id is None:
        return y
    try:
        rows = [np.asarray(row) for row in y]
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} cannot be read as sequences of ids: {error}") from error
    ends = [np.flatnonzero(row == entry.padding_id) for row in rows if row.ndim == 1]
    if len(ends) != len(rows):
        raise DataError(f"{where} must hold a sequence of ids for each sample.")
    return [row[: end[0] + 1] if len(end) else row for row, end in zip(rows, ends, strict=True)]


def shifted(y: Any, target: Input) -> Samples:
    """What a decoder is given: each target after the one before it, the first after an id.

    A target that does not count and is no id either stands as that id too.
    """
    begins_with, vocabulary = target.begins_with, target.vocabulary
    assert begins_with is not None and vocabulary is not None
    if isinstance(y, np.ndarray) and y.dtype != object:
        before = np.full((len(y), 1), begins_with, np.int32)
        ids = np.concatenate([before, y[:, :-1].astype(np.int32)], axis=1)
        return np.where((ids < 0) | (ids >= vocabulary), begins_with, ids)
    rows = [np.concatenate([[begins_with], row[:-1]]).astype(np.int32) for row in y]
    return Packed([np.where((r < 0) | (r >= vocabulary), begins_with, r) for r in rows])


class Choice:
    """How the next token is chosen from scores [V].

    With a temperature of 0 the most likely; else drawn by softmax(scores / temperature), from the
    `top_k` most likely and from as few as have `top_p` of the probability together.
    """

    def __init__(
        self,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
    ) -> None:
        from undivided.training.generators import GENERATORS

        _check("temperature", temperature, Real, "a number ≥ 0", lambda t: t >= 0)
        if top_k is not None:
            _check("top_k", top_k, Integral, "a whole number ≥ 1", lambda k: k >= 1)
        if top_p is not None:
            _check("top_p", top_p, Real, "above 0 and at most 1", lambda p: 0 < p <= 1)
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self._generator = GENERATORS["philox"](seed)

    def __call__(self, scores: np.ndarray) -> int:
        if self.temperature == 0:
            return int(scores.argmax())
        ids = np.argsort(-scores, kind="stable")[: self.top_k]
        ranked = scores[ids].astype(np.float64) / self.temperature
        chance = np.exp(ranked - ranked[0])
        chance /= chance.sum()
        if self.top_p is not None:
            enough = int(np.searchsorted(chance.cumsum(), self.top_p)) + 1
            ids, chance = ids[:enough], chance[:enough] / chance[:enough].sum()
        drawn = float(self._generator.uniform(1, 0.0, 1.0)[0])
        return int(ids[min(int(np.searchsorted(chance.cumsum(), drawn)), len(ids) - 1)])


def _check(name: str, value: Any, kind: type, expected: str, fits: Callable[[Any], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not fits(value):
        raise ArgumentError(
            f"The {name!r} of generate must be {expected}. Got {value!r}.", argument=name
        )


def going_on(sequences: Sequences) -> Scores:
    """The scores of sequences of which an engine keeps what it has seen.

    A sequence that grew is continued. One that did not has slid: it lost its first token, so that
    every other stands elsewhere and nothing that was kept is true any more. It begins again.
    """

    def scores(which: list[int], seen: list[np.ndarray]) -> Any:
        known = sequences.lengths(which)
        slid = [i for i, n, ids in zip(which, known, seen, strict=True) if len(ids) <= n]
        sequences.forget(slid)
        new = [ids if len(ids) <= n else ids[n:] for n, ids in zip(known, seen, strict=True)]
        return sequences.scores(which, new)[:, None]

    return scores


def continued(
    begin: Callable[[range], Scores],
    begun: list[np.ndarray],
    limits: Sequence[int],
    choice: Choice,
    *,
    end: int | None = None,
    window: int | None = None,
    on_token: Callable[[int, int], object] | None = None,
) -> list[np.ndarray]:
    """Sequences with up to `limits` more tokens each, without what they began with.

    `begin(numbers)` gives the scores of some of them, which count from 0 there. A sequence is over
    behind the id `end`; `window` is the most that a network sees. `on_token` is called with the
    number of a sequence and its next token.

    All go on together, a token of each in turn; where nothing is drawn, so that nobody can tell, a
    few hundred at a time: what is kept of them takes memory.
    """
    sequences = [np.asarray(each, np.int64) for each in begun]
    together = AT_ONCE if choice.temperature == 0 else max(len(begun), 1)
    for first in range(0, len(begun), together):
        numbers = range(first, min(first + together, len(begun)))
        scores = begin(numbers)
        alive = [i for i in numbers if limits[i] > 0]
        while alive:
            seen = [sequences[i] if window is None else sequences[i][-window:] for i in alive]
            said = scores([i - first for i in alive], seen)
            for i, rows in zip(list(alive), said, strict=True):
                token = choice(rows[-1])
                if token != end:
                    sequences[i] = np.append(sequences[i], token)
                    if on_token is not None:
                        on_token(i, token)
                if token == end or len(sequences[i]) - len(begun[i]) >= limits[i]:
                    alive.remove(i)
    return [each[len(start) :] for each, start in zip(sequences, begun, strict=True)]
