"""Results as JSON and as tables; the tables are made from the JSON and nothing else."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from comparison import Comparison, Peak, Settings
from conditions import Busy, Spread
from peers import SYSTEMS

from undivided import __version__
from undivided.engines.native import available_threads, instruction_set

__all__ = [
    "busy_json",
    "comparison_json",
    "machine_json",
    "machine_text",
    "memory_json",
    "peak_json",
    "spread_json",
    "text",
]

BUSY_BAR = 2.5
MEMORY_BAR = 200e6
QUIET = 0.05
"""Beyond this share of the cores taken by others the numbers mean little, and the page says so."""

DOCUMENTED = {"Rust, seeded from the clock": 0.3855, "Swift, seed 1": 0.2453}
"""The accuracies that the reference programs' documents print: single draws."""


def machine_json(settings: Settings) -> dict[str, Any]:
    libraries = ("numpy", "torch", "jax")
    return {
        "processor": _processor(),
        "cores": available_threads(),
        "threads": settings.threads,
        "instruction_set": instruction_set(),
        "versions": {
            "python": platform.python_version(),
            "undivided": __version__,
            **{name: found for name in libraries if (found := _version(name))},
        },
    }


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def peak_json(peak: Peak) -> dict[str, Any]:
    return {
        "multiply_adds_per_second": peak.multiply_adds,
        "instruction_set": peak.instruction_set,
        "threads": peak.threads,
        "windows": peak.windows,
    }


def comparison_json(comparison: Comparison, peak: Peak) -> dict[str, Any]:
    mine = comparison.timings.get("undivided")
    systems = {}
    for name, timing in comparison.timings.items():
        systems[name] = {
            "median_seconds": timing.median,
            "best_seconds": timing.best,
            "ready_seconds": timing.ready_seconds,
            "times_undivided": timing.median / mine.median if mine else None,
            "epoch_seconds": timing.epoch_seconds,
            "losses": timing.losses,
            "others_share": timing.others,
        }
    return {
        "title": comparison.classifier.title,
        "recipe": comparison.classifier.recipe,
        "samples": comparison.samples,
        "executed_multiply_adds_per_sample": comparison.multiply_adds,
        "executed_operations_per_epoch": comparison.operations,
        "share_of_peak": peak.share(comparison.operations, mine.median) if mine else None,
        "first_loss_apart": comparison.first_loss_apart,
        "losses_apart": comparison.losses_apart,
        "systems": systems,
        "bars": _bars(comparison, peak),
    }


def _bars(comparison: Comparison, peak: Peak) -> list[dict[str, Any]]:
    """With the widest instructions the bars of the classifier; with others, to beat JAX."""
    bars: Mapping[str, float] = comparison.classifier.bars
    if instruction_set() != peak.instruction_set:
        bars = {"jax": 1.0}
    result = []
    for library, bar in bars.items():
        if (best := comparison.best_peer(library)) is not None:
            name, times = best
            result.append({"against": name, "bar": bar, "times": times, "holds": times >= bar})
    return result


def spread_json(spread: Spread) -> dict[str, Any]:
    found = spread.accuracies
    return {
        "seeds": len(found),
        "epochs": spread.epochs,
        "min": min(found),
        "median": median(found),
        "max": max(found),
        "accuracies": found,
        "documented": DOCUMENTED,
    }


def busy_json(title: str, busy: Busy) -> dict[str, Any]:
    return {
        "title": title,
        "idle_median_seconds": median(busy.idle_seconds),
        "busy_median_seconds": median(busy.busy_seconds),
        "ratio": busy.ratio,
        "bar": BUSY_BAR,
        "holds": busy.ratio <= BUSY_BAR,
        "idle_seconds": busy.idle_seconds,
        "busy_seconds": busy.busy_seconds,
    }


def memory_json(peak_bytes: int) -> dict[str, Any]:
    return {"bytes": peak_bytes, "bar": MEMORY_BAR, "holds": peak_bytes < MEMORY_BAR}


def text(result: Mapping[str, Any]) -> str:
    """All that was measured, as a page."""
    parts = [machine_text(result)]
    parts += [_comparison_text(each, result) for each in result.get("comparisons", {}).values()]
    parts += [_busy_text(each) for each in result.get("busy", {}).values()]
    if memory := result.get("memory"):
        parts.append(
            f"Memory of `undivided train mnist-attention`: {memory['bytes'] / 1e6:.0f} MB at the "
            f"peak; bar {memory['bar'] / 1e6:.0f} MB: {_verdict(memory)}"
        )
    if spread := result.get("spread"):
        parts.append(_spread_text(spread))
    return "\n\n".join(parts)


def machine_text(result: Mapping[str, Any], between: str = "epochs") -> str:
    """On what, with what, and the peak that was measured between the `between`."""
    machine = result["machine"]
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"undivided with {machine['instruction_set']}",
        ", ".join(f"{name} {number}" for name, number in machine["versions"].items()),
    ]
    if peak := result.get("peak"):
        lines.append(
            f"Multiply-add peak: {2e-9 * peak['multiply_adds_per_second']:.0f} GFLOP/s "
            f"({peak['instruction_set']}, {peak['threads']} threads, best of {peak['windows']} "
            f"windows of 50 ms between the {between})"
        )
    if result.get("fraction", 1) < 1:
        lines.append(
            f"Only {100 * result['fraction']:g} % of each epoch was run; seconds are scaled up to "
            "a whole one."
        )
    if skipped := result.get("skipped"):
        lines.append(f"Not installed, so left out: {', '.join(skipped)}.")
    return "\n".join(lines)


def _comparison_text(comparison: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    operations = comparison["executed_operations_per_epoch"]
    lines = [
        f"{comparison['title']} — {comparison['samples']:,} images an epoch; undivided executes "
        f"{operations / 1e9:.1f} GFLOP of multiply-adds; {result['rounds']} rounds",
        f"{'system':22}{'median s':>10}{'best s':>10}{'× undivided':>13}{'ready s':>10}",
    ]
    for name, each in comparison["systems"].items():
        times = each["times_undivided"]
        lines.append(
            f"{name:22}{each['median_seconds']:10.3f}{each['best_seconds']:10.3f}"
            f"{'' if times is None else f'{times:.2f}':>13}{each['ready_seconds']:10.1f}"
        )
    if comparison["share_of_peak"] is not None:
        lines.append(f"undivided runs at {100 * comparison['share_of_peak']:.0f} % of the peak.")
    lines.append(
        f"Losses agree to {comparison['first_loss_apart']:.0e} over the first steps and to "
        f"{comparison['losses_apart']:.0e}, relatively, over every epoch."
    )
    others = max(median(each["others_share"]) for each in comparison["systems"].values())
    if others > QUIET:
        lines.append(
            f"NOT A QUIET MACHINE: other processes had up to {100 * others:.0f} % of its cores."
        )
    for bar in comparison["bars"]:
        library = SYSTEMS[bar["against"]].library
        lines.append(
            f"Bar: {bar['bar']:g}× the best of {library}; {bar['times']:.2f}× {bar['against']}: "
            f"{_verdict(bar)}"
        )
    return "\n".join(lines)


def _busy_text(busy: Mapping[str, Any]) -> str:
    return (
        f"{busy['title']} beside a process that keeps one core busy: "
        f"{busy['busy_median_seconds']:.3f} s an epoch, {busy['idle_median_seconds']:.3f} s "
        f"without it, {busy['ratio']:.2f}×; bar {busy['bar']}×: {_verdict(busy)}"
    )


def _spread_text(spread: Mapping[str, Any]) -> str:
    low, middle, high = (100 * spread[name] for name in ("min", "median", "max"))
    documented = ", ".join(
        f"{100 * accuracy:.2f} % ({source})" for source, accuracy in spread["documented"].items()
    )
    return (
        f"D16/FF32 after {spread['epochs']} epochs, seeds 1 to {spread['seeds']}: lowest "
        f"{low:.2f} %, median {middle:.2f} %, highest {high:.2f} %.\n"
        f"Single draws in the reference programs' documents: {documented}."
    )


def _verdict(bar: Mapping[str, Any]) -> str:
    return "holds" if bar["holds"] else "DOES NOT HOLD"
