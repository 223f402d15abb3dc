"""Train the two MNIST attention classifiers in undivided, PyTorch and JAX, side by side.

    pip install 'undivided[bench]'           # torch and jax; what is missing is left out
    UNDIVIDED_DATA=FOLDER python benchmarks/train_mnist.py

FOLDER holds MNIST's four IDX files. Each system trains in a process of its own, from the same
parameters through the same order of the same images: batch 32, loss, gradients and SGD update of
every parameter. First it is checked that all get the same losses. Then their epochs take turns,
and between them the machine's multiply-add peak is measured. The table gives the median and best
seconds of an epoch, how many times undivided's median that is, and how long a system took to get
ready (imports, data, compilation), which the seconds leave out. Names ending in -pooled have the
rewrite that undivided makes by itself, done by hand.

    --models d16,d64       which classifiers
    --systems A,B          which systems (all: see peers/registry.py)
    --rounds 5             epochs of each
    --fraction 0.1         of an epoch; seconds are scaled up to a whole one, and the page says so
    --threads N            threads, and cores to run them on; else what may be used
    --isa x86-64-v3        undivided with narrower instructions (sets UNDIVIDED_ISA)
    --json                 everything as JSON, in place of the page

These measure undivided alone and take the place of the comparison; several may be given:

    --busy                 epochs beside a process that keeps one core busy
    --memory               the peak of `undivided train mnist-attention`
    --spread 20            accuracy of the narrow classifier over seeds 1 to 20

A run with everything takes about six minutes on two cores. Nothing else should run meanwhile:
the peers suffer from it more than undivided does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import report
from arguments import at_least_one, parser_of, say, some_of
from comparison import MODELS, Peak, Settings, compare
from conditions import beside_a_busy_core, spread_over_seeds, training_memory
from peers import SYSTEMS

from undivided import UndividedError, _native
from undivided.engines.native import available_threads

__all__ = ["main", "measure", "parse"]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    if options.isa:
        os.environ["UNDIVIDED_ISA"] = options.isa  # the systems' processes inherit it
    try:
        result = measure(options)
    except (UndividedError, RuntimeError) as error:
        print(f"train_mnist.py: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=2) if options.json else report.text(result))
    return 0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = parser_of("train_mnist.py", __doc__)
    parser.add_argument("--models", type=some_of(MODELS), default=list(MODELS), metavar="A,B")
    parser.add_argument("--systems", type=some_of(SYSTEMS), default=list(SYSTEMS), metavar="A,B")
    parser.add_argument("--rounds", type=at_least_one, default=5, metavar="N")
    parser.add_argument("--fraction", type=_fraction, default=1.0, metavar="PART")
    parser.add_argument("--threads", type=at_least_one, default=available_threads(), metavar="N")
    parser.add_argument("--isa", choices=_native.instruction_sets())
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--spread", type=at_least_one, metavar="SEEDS")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Whatever the options ask for, as plain data."""
    systems = [name for name in options.systems if SYSTEMS[name].installed]
    settings = Settings(systems, options.rounds, options.fraction, options.threads)
    result: dict[str, Any] = {
        "machine": report.machine_json(settings),
        "rounds": options.rounds,
        "fraction": options.fraction,
    }
    if not (options.busy or options.memory or options.spread):
        result["skipped"] = [name for name in options.systems if name not in systems]
        peak = Peak(options.threads)
        peak.watch()
        done = {name: compare(MODELS[name], settings, peak, say) for name in options.models}
        result["peak"] = report.peak_json(peak)
        result["comparisons"] = {
            name: report.comparison_json(each, peak) for name, each in done.items()
        }
    if options.busy:
        result["busy"] = {
            name: report.busy_json(
                MODELS[name].title, beside_a_busy_core(MODELS[name], settings, say)
            )
            for name in options.models
        }
    if options.memory:
        result["memory"] = report.memory_json(training_memory())
    if options.spread:
        result["spread"] = report.spread_json(spread_over_seeds(options.spread, settings, say))
    return result


def _fraction(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, at most 1, got {given!r}")
    return value


if __name__ == "__main__":
    sys.exit(main())
