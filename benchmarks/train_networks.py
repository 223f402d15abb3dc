"""Train transformers of several sizes in undivided, PyTorch and JAX, side by side.

    pip install 'undivided[bench]'           # torch and jax; what is missing is left out
    python benchmarks/train_networks.py

Pre-norm blocks with AdamW (peers/encoder.py), on numbers drawn at random. Each system trains in a
process of its own, from the same parameters through the same order of the same samples. First it
is checked that all get the same losses; then their turns of some steps alternate, and between
them the machine's multiply-add peak is measured. A line gives the median milliseconds of a step,
how many times undivided's that is, and the share of the peak that undivided reaches in operations
that it executes.

    --cases small,causal   which of small, causal, large, and each with -dropout or -ragged; and,
                           not unless named, long (1,024 tokens) and longest (4,096), each with
                           -linear for linear attention and -causal
    --systems A,B          which of undivided, torch, torch-compile, jax
    --rounds 5             turns of each
    --map                  in place of the cases: the ratio to the best peer over D, S and B
    --threads N            threads, and cores to run them on; else what may be used
    --json                 everything as JSON, in place of the page

Nothing else should run meanwhile. The whole takes about ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import report
from arguments import at_least_one, parser_of, say, some_of
from comparison import Orders, Peak, Settings
from peers import ENCODERS, Apart
from peers.encoder import Encoder, network_of

from undivided import UndividedError
from undivided.engines.native import available_threads
from undivided.plan.costs import scheduled_costs
from undivided.plan.schedule import schedule

__all__ = ["CASES", "Case", "main", "measure"]

LOSS_TOLERANCE = 2e-3
"""How far, relatively, losses of the first turn may lie apart: AdamW makes much of rounding."""


@dataclass(frozen=True)
class Case:
    """A network, and how many times faster than the best peer undivided has to be."""

    task: Encoder
    bar: float | None = None


SMALL = Encoder(D=64, H=4, L=2, S=49, B=32, steps=24)
CAUSAL = Encoder(D=128, H=4, L=4, S=128, B=16, causal=True, steps=6)
LARGE = Encoder(D=256, H=8, L=6, S=196, B=8, steps=3)
CASES = {
    "small": Case(SMALL, 2.5),
    "small-dropout": Case(replace(SMALL, dropout=0.1), 2.5),
    "small-ragged": Case(replace(SMALL, ragged=True)),
    "causal": Case(CAUSAL, 1.8),
    "causal-dropout": Case(replace(CAUSAL, dropout=0.1), 1.8),
    "large": Case(LARGE, 1.2),
    "large-dropout": Case(replace(LARGE, dropout=0.1), 1.2),
    "large-ragged": Case(replace(LARGE, ragged=True)),
}
LONG = Encoder(D=64, H=4, L=2, S=1024, B=8, steps=2)
LONGEST = replace(LONG, S=4096, B=4)
USUAL = list(CASES)
for name, task in {"long": LONG, "longest": LONGEST}.items():
    CASES[name] = Case(task)
    CASES[f"{name}-linear"] = Case(replace(task, linear=True))
    CASES[f"{name}-causal"] = Case(replace(task, causal=True))
    CASES[f"{name}-linear-causal"] = Case(replace(task, linear=True, causal=True))
RAGGED_GAIN = 1.5
"""A ragged ratio must be so many times the padded one: peers compute padding."""

MAP_WIDTHS, MAP_LENGTHS, MAP_BATCHES = (16, 64, 256), (16, 64, 256), (1, 8, 64)
MAP_MULTIPLY_ADDS = 2e9
"""About so many make a turn of the map, so that small networks take many steps."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    try:
        result = measure(options)
    except (UndividedError, RuntimeError) as error:
        print(f"train_networks.py: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=2) if options.json else text(result))
    return 0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = parser_of("train_networks.py", __doc__)
    parser.add_argument("--cases", type=some_of(CASES), default=USUAL, metavar="A,B")
    parser.add_argument("--systems", type=some_of(ENCODERS), default=list(ENCODERS), metavar="A,B")
    parser.add_argument("--rounds", type=at_least_one, default=5, metavar="N")
    parser.add_argument("--threads", type=at_least_one, default=available_threads(), metavar="N")
    parser.add_argument("--map", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Whatever the options ask for, as plain data."""
    systems = [name for name in options.systems if ENCODERS[name].installed]
    result: dict[str, Any] = {
        "machine": report.machine_json(Settings(systems, options.rounds, 1.0, options.threads)),
        "rounds": options.rounds,
        "fraction": 1.0,
        "skipped": [name for name in options.systems if name not in systems],
    }
    peak = Peak(options.threads)
    peak.watch()
    cases = map_cases() if options.map else {name: CASES[name] for name in options.cases}
    result["map" if options.map else "cases"] = {
        name: compared(case, systems, options, peak) for name, case in cases.items()
    }
    result["peak"] = report.peak_json(peak)
    return result


def map_cases() -> dict[str, Case]:
    """One block with heads of 16 or 32, over widths, lengths and batches."""
    cases = {}
    for D in MAP_WIDTHS:
        for S in MAP_LENGTHS:
            for B in MAP_BATCHES:
                work = 3 * B * S * (12 * D * D + 2 * S * D)
                steps = max(2, min(200, int(MAP_MULTIPLY_ADDS / work)))
                task = Encoder(D=D, H=max(1, D // 32), L=1, S=S, B=B, steps=steps)
                cases[task.title] = Case(task)
    return cases


def compared(
    case: Case, systems: Sequence[str], options: argparse.Namespace, peak: Peak
) -> dict[str, Any]:
    """All systems on one network, turns interleaved."""
    task = replace(case.task, threads=options.threads)
    network = network_of(task)
    orders = Orders(network, task.seed)
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    with ExitStack() as running:
        parts = [running.enter_context(Apart(name, ENCODERS)) for name in systems]
        for part in parts:
            part.prepare(task, orders.parameters)
            say(f"{task.title}: {part.name} ready in {part.ready_seconds:.1f} s")
        apart = _check(task, parts, orders)
        for number in range(options.rounds):
            order = orders.next(task.samples)
            first = number % len(parts)
            for part in parts[first:] + parts[:first]:
                seconds[part.name].append(part.epoch(order))
                peak.watch(1)
    found = {name: median(each) / task.steps for name, each in seconds.items()}
    mine = found.get("undivided")
    peers = {name: each for name, each in found.items() if name != "undivided"}
    cost = scheduled_costs(schedule(network.plan()), task.S)
    operations = 2.0 * (cost.forward + cost.backward) * task.B
    best = min(peers, key=lambda name: peers[name]) if peers else None
    ratio = peers[best] / mine if best and mine else None
    return {
        "title": task.title,
        "milliseconds_a_step": {name: 1e3 * each for name, each in found.items()},
        "turns": seconds,
        "steps": task.steps,
        "losses_apart": apart,
        "best_peer": best,
        "ratio": ratio,
        "bar": case.bar,
        "holds": None if ratio is None or case.bar is None else ratio >= case.bar,
        "share_of_peak": peak.share(operations, mine) if mine and not task.ragged else None,
    }


def _check(task: Encoder, parts: Sequence[Apart], orders: Orders) -> float | None:
    """A first turn, which warms up: how far the losses lie apart, where dropout lets them agree."""
    order = orders.next(task.samples)
    for part in parts:
        part.epoch(order)
    losses = {part.name: part.loss for part in parts}
    if not all(map(math.isfinite, losses.values())):
        raise RuntimeError(f"{task.title}: a loss is not finite: {losses}.")
    if task.dropout:
        return None
    apart = (max(losses.values()) - min(losses.values())) / max(losses.values())
    if apart > LOSS_TOLERANCE:
        raise RuntimeError(f"{task.title}: the systems' losses differ by {apart:.1e}: {losses}.")
    return apart


def text(result: dict[str, Any]) -> str:
    parts = [report.machine_text(result)]
    parts += [_case_text(each) for each in result.get("cases", {}).values()]
    parts += _ragged_text(result.get("cases", {}))
    if "map" in result:
        parts.append(_map_text(result["map"]))
    return "\n\n".join(parts)


def _case_text(case: dict[str, Any]) -> str:
    mine = case["milliseconds_a_step"].get("undivided")
    lines = [case["title"], f"{'system':16}{'ms a step':>12}{'× undivided':>13}"]
    for name, each in case["milliseconds_a_step"].items():
        lines.append(f"{name:16}{each:12.2f}{'' if mine is None else f'{each / mine:.2f}':>13}")
    if case["share_of_peak"] is not None:
        lines.append(f"undivided runs at {100 * case['share_of_peak']:.0f} % of the peak.")
    if case["losses_apart"] is not None:
        lines.append(f"Losses agree to {case['losses_apart']:.0e}, relatively.")
    if case["holds"] is not None:
        verdict = "holds" if case["holds"] else "DOES NOT HOLD"
        lines.append(
            f"Bar: {case['bar']:g}× the best peer; {case['ratio']:.2f}× {case['best_peer']}: "
            f"{verdict}"
        )
    return "\n".join(lines)


def _ragged_text(cases: dict[str, Any]) -> list[str]:
    lines = []
    for name, case in cases.items():
        padded = cases.get(name.removesuffix("-ragged"))
        if (
            not name.endswith("-ragged")
            or padded is None
            or not (case["ratio"] and padded["ratio"])
        ):
            continue
        gain = case["ratio"] / padded["ratio"]
        lines.append(
            f"{name}: {case['ratio']:.2f}× the best peer, {gain:.2f} times the padded ratio; bar "
            f"{RAGGED_GAIN}: {'holds' if gain >= RAGGED_GAIN else 'DOES NOT HOLD'}"
        )
    return lines


def _map_text(cases: dict[str, Any]) -> str:
    """Rows are batches, columns lengths, a table for each width."""
    ratios = {name: case["ratio"] or float("nan") for name, case in cases.items()}
    lines = ["Times as fast as the best peer, one block, by batch (down) and length (across):"]
    for D in MAP_WIDTHS:
        lines.append(f"\n{f'D={D}':8}" + "".join(f"{f'S={S}':>10}" for S in MAP_LENGTHS))
        for B in MAP_BATCHES:
            row = (
                ratios[Encoder(D=D, H=max(1, D // 32), L=1, S=S, B=B).title] for S in MAP_LENGTHS
            )
            lines.append(f"{f'B={B}':8}" + "".join(f"{ratio:10.2f}" for ratio in row))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
