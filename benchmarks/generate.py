"""How many tokens a language model generates in a second, with what it keeps and without.

    python benchmarks/generate.py
    python benchmarks/generate.py --windows 128 --prompts 1 --seconds 5

The network is that of the recipe char-gpt, untrained: two blocks of width 128, 256 bytes. Prompts
have 16 tokens and go on until the window is full ("filling"), then for as many tokens more, each of
which sees the window moved on by one ("sliding"). "whole" is the same without a cache: the network
is asked for the scores of the whole sequence for every token. Both say the same tokens, or the
script fails. Texts are repeated until `--seconds` have passed, at most once where that takes
longer; the best counts.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np
from arguments import at_least_one, parser_of, say

from undivided import Model, override, recipe

__all__ = ["main", "measure"]

PROMPT = 16


@dataclass(frozen=True)
class Rates:
    """Tokens a second, of all prompts together."""

    window: int
    prompts: int
    filling: float
    filling_whole: float
    sliding: float
    sliding_whole: float


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("generate.py", __doc__)
    parser.add_argument("--windows", type=at_least_one, nargs="+", default=[128, 1024])
    parser.add_argument("--prompts", type=at_least_one, nargs="+", default=[1, 16])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each of four numbers")
    parser.add_argument("--threads", type=at_least_one)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = []
    for window in options.windows:
        if window <= PROMPT:
            parser.error(f"--windows must be above {PROMPT}, the length of a prompt")
        network = override(recipe("char-gpt"), {"input": (window,)})
        model = Model(network, seed=1, threads=options.threads)
        for prompts in options.prompts:
            say(f"window {window}, {prompts} prompts …")
            found.append(measure(model, window, prompts, options.seconds))
    print(json.dumps([asdict(each) for each in found], indent=2) if options.json else text(found))
    return 0


def measure(model: Model, window: int, prompts: int, seconds: float) -> Rates:
    random = np.random.default_rng(0)
    short = random.integers(0, 256, (prompts, PROMPT))
    full = random.integers(0, 256, (prompts, window))
    rates = []
    for begun, most in ((short, window - PROMPT), (full, max(8, window // 16))):
        said = []
        for whole in (False, True):
            rate, tokens = _rate(model, begun, most, seconds, whole)
            rates.append(rate)
            # Long rows are rounded otherwise, and one day two scores are nearly the same.
            said.append(tokens[:, : 8 if window > 512 else None])
        if not (said[0] == said[1]).all():
            raise SystemExit("generate.py: what is kept changes what is said")
    return Rates(window, prompts, *rates)


def _rate(
    model: Model, begun: np.ndarray, most: int, seconds: float, whole: bool
) -> tuple[float, np.ndarray]:
    with _without_cache(model) if whole else nullcontext():
        model.generate(begun, 2)  # what is made once
        best, end = math.inf, perf_counter() + seconds
        while True:
            started = perf_counter()
            tokens = model.generate(begun, most)
            best = min(best, perf_counter() - started)
            if perf_counter() > end:
                return tokens.size / best, tokens


@contextmanager
def _without_cache(model: Model) -> Iterator[None]:
    nothing: Any = lambda *_, **__: None  # noqa: E731
    with patch.object(type(model._engine), "begin", nothing):
        yield


def text(found: Sequence[Rates]) -> str:
    lines = [
        "tokens a second    filling   whole  ratio    sliding   whole  ratio",
        *(
            f"{f'{r.window}, {r.prompts} prompt' + 's' * (r.prompts > 1):<16}"
            f"{r.filling:>10,.0f}{r.filling_whole:>8,.0f}{r.filling / r.filling_whole:>7.1f}"
            f"{r.sliding:>11,.0f}{r.sliding_whole:>8,.0f}{r.sliding / r.sliding_whole:>7.1f}"
            for r in found
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
