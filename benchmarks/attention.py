"""Compute attention in undivided, PyTorch and JAX, side by side, forward and with all gradients.

    pip install 'undivided[bench]'           # torch and jax; what is missing is left out
    python benchmarks/attention.py

Each system has a process of its own, restricted to the same cores, and the same float32 inputs. It
tries its ways to compute a case and is timed with the fastest; before that its results have to
agree with those of the others. Then the systems take turns of many calls each, and between the
turns the machine's multiply-add peak is measured. A row gives the median seconds of undivided's
call with PyTorch's own tensors in and out, how many times that every other system takes, and the
share of the peak that the products of the definition make.

    --shapes 49,197        which shapes: 49, 49x4, 197, 64, 1024, 4096, 4096x128
    --variants full,bias   which variants: full, causal, padding, window, bias
    --passes both          forward, both (forward and backward)
    --systems A,B          which systems (all: see peers/attention/registry.py)
    --rounds 3             turns of each
    --seconds 0.2          how long a turn lasts, at least one call
    --threads N            threads, and cores to run them on; else what may be used
    --isa x86-64-v3        undivided with narrower instructions (sets UNDIVIDED_ISA)
    --quick                short sequences, three variants, short turns
    --own                  in place of the comparison: what weights on request and a short call
                           cost undivided alone
    --json                 everything as JSON, in place of the page

A run with everything takes about twenty minutes on two cores, --quick less than one. Nothing else
should run meanwhile: the peers suffer from it more than undivided does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

import attention_report
import numpy as np
from arguments import at_least_one, parser_of, say, some_of
from comparison import Peak
from peers.apart import Process
from peers.attention import SYSTEMS, VARIANTS, Case, make, operations

from undivided import UndividedError, _native
from undivided.engines.native import available_threads

__all__ = ["SHAPES", "main", "measure", "parse"]

SHAPES = {
    "49": (32, 1, 49, 16),
    "49x4": (32, 4, 49, 16),
    "197": (8, 8, 197, 64),
    "64": (64, 8, 64, 32),
    "1024": (1, 12, 1024, 64),
    "4096": (1, 8, 4096, 64),
    "4096x128": (1, 8, 4096, 128),
}
"""Batch, heads, queries and keys, width of a head."""

PASSES = {"forward": False, "both": True}
SHORT = (1, 4, 16, 16)
TOLERANCE = 1e-4
"""How far two systems' results may lie apart, of the largest number; rounding gives about 1e-6."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.isa:
        os.environ["UNDIVIDED_ISA"] = options.isa  # the systems' processes inherit it
    try:
        result = measure(options)
    except (UndividedError, RuntimeError) as error:
        print(f"attention.py: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=2) if options.json else attention_report.text(result))
    return 0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = parser_of("attention.py", __doc__)
    parser.add_argument("--shapes", type=some_of(SHAPES), metavar="A,B")
    parser.add_argument("--variants", type=some_of(VARIANTS), metavar="A,B")
    parser.add_argument("--passes", type=some_of(PASSES), metavar="A,B")
    parser.add_argument("--systems", type=some_of(SYSTEMS), default=list(SYSTEMS), metavar="A,B")
    parser.add_argument("--rounds", type=at_least_one, default=3, metavar="N")
    parser.add_argument("--seconds", type=_seconds, metavar="S")
    parser.add_argument("--threads", type=at_least_one, default=available_threads(), metavar="N")
    parser.add_argument("--isa", choices=_native.instruction_sets())
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    quick = options.quick
    options.shapes = options.shapes or (["49", "49x4", "64"] if quick else list(SHAPES))
    options.variants = options.variants or (["full", "causal", "bias"] if quick else list(VARIANTS))
    options.passes = options.passes or (["both"] if quick else list(PASSES))
    options.seconds = options.seconds or (0.05 if quick else 0.2)
    return options


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Whatever the options ask for, as plain data."""
    systems = [name for name in options.systems if SYSTEMS[name].installed]
    result: dict[str, Any] = {
        "machine": attention_report.machine_json(options.threads),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "skipped": [name for name in options.systems if name not in systems],
    }
    if options.own:
        result["own"] = _own(options)
        return result
    peak = Peak(options.threads)
    peak.watch()
    rows = []
    with ExitStack() as running:
        open_systems = {
            name: running.enter_context(Process(name, make, name, options.threads))
            for name in systems
        }
        for shape in options.shapes:
            for variant in options.variants:
                for which in options.passes:
                    case = Case(SHAPES[shape], variant, PASSES[which], options.threads)
                    rows.append(_compare(case, open_systems, options, peak))
                    say(attention_report.row_text(rows[-1]))
    result["peak"] = attention_report.peak_json(peak)
    for row in rows:
        if mine := row["systems"].get("undivided"):
            row["share_of_peak"] = peak.share(row["operations"], mine["median_seconds"])
    result["rows"] = rows
    result["bars"] = attention_report.bars(rows)
    return result


def _compare(
    case: Case, systems: Mapping[str, Process], options: argparse.Namespace, peak: Peak
) -> dict[str, Any]:
    """Every system that has a way to compute the case: agreement first, then turns."""
    ways, results = {}, {}
    for name, system in systems.items():
        if (prepared := system.ask("prepare", case)) is not None:
            ways[name], results[name] = prepared
    apart = _apart(case, results)
    times: dict[str, list[float]] = {name: [] for name in ways}
    others: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(options.rounds):
        first = number % max(1, len(names))
        for name in names[first:] + names[:first]:
            seconds, share = systems[name].ask("time", options.seconds)
            times[name] += seconds
            others[name].append(share)
        peak.watch(windows=1)
    mine = median(times["undivided"]) if "undivided" in times else None
    return {
        "title": case.title,
        "shape": case.shape,
        "variant": case.variant,
        "gradient": case.gradient,
        "operations": operations(case),
        "apart": apart,
        "systems": {
            name: {
                "way": ways[name],
                "calls": len(times[name]),
                "median_seconds": median(times[name]),
                "best_seconds": min(times[name]),
                "times_undivided": median(times[name]) / mine if mine else None,
                "others_share": max(others[name]),
            }
            for name in names
        },
        "best_peer": attention_report.best_peer(
            {name: median(each) for name, each in times.items()}
        ),
    }


def _apart(case: Case, results: Mapping[str, Sequence[np.ndarray]]) -> float:
    """How far the systems' results lie apart, of the largest number of each."""
    worst = 0.0
    for arrays in zip(*results.values(), strict=True):
        largest = max(float(np.abs(x).max()) for x in arrays)
        for x in arrays[1:]:
            difference = float(np.abs(x - arrays[0]).max()) / largest
            worst = max(worst, difference) if difference == difference else np.inf
    if not worst <= TOLERANCE:
        raise RuntimeError(
            f"The systems do not compute the same thing: {', '.join(results)} differ by "
            f"{worst:.1e} of the largest number in {case.title}."
        )
    return worst


def _own(options: argparse.Namespace) -> dict[str, Any]:
    """Weights on request and short calls, of undivided with NumPy's arrays alone."""
    found: dict[str, Any] = {"weights": []}
    with Process("undivided-numpy", _library, options.threads) as mine:
        for name in options.shapes:
            case = Case(SHAPES[name], "full", False, options.threads)
            without, wanted, written = mine.ask("weights", case, 3 * options.seconds)
            found["weights"].append(attention_report.weights_json(case, without, wanted, written))
        case = Case(SHORT, "full", False, 1)
        found["short_call"] = attention_report.short_json(
            case, *mine.ask("short_call", case, 3 * options.seconds)
        )
    return found


def _library(threads: int) -> Any:
    return make("undivided-numpy", threads).library


def _seconds(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 0 < value < 3600:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {given!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
