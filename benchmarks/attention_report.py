"""Results of `attention.py` as JSON and as a page; the page is made from the JSON alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from comparison import Settings
from peers.attention import SYSTEMS, Case
from report import QUIET, machine_text, peak_json
from report import machine_json as machine_of

__all__ = [
    "bars",
    "best_peer",
    "machine_json",
    "peak_json",
    "row_text",
    "short_json",
    "text",
    "weights_json",
]

FULL_BARS = {
    (32, 1, 49, 16): 2.0,
    (32, 4, 49, 16): 3.0,
    (8, 8, 197, 64): 1.6,
    (64, 8, 64, 32): 2.0,
    (1, 12, 1024, 64): 1.4,
    (1, 8, 4096, 64): 1.4,
    (1, 8, 4096, 128): 1.4,
}
"""How many times faster than the best peer, forward and backward, everything allowed."""
SDPA_BAR = 5.0
"""Against scaled_dot_product_attention alone, at 49 rows."""
CAUSAL_BAR = 1.7
"""Against undivided's own full pass, at 4096 rows."""
WINDOW_BAR = 10.0
"""Against the best peer, at 4096 rows."""
WEIGHTS_BAR = 0.35
"""Of forward, up to WEIGHTS_ROWS rows."""
WEIGHTS_ROWS = 197
SHORT_BAR = 10e-6
"""Seconds of a short call beyond its arithmetic."""


def machine_json(threads: int) -> dict[str, Any]:
    return machine_of(Settings((), 0, 1.0, threads))


def best_peer(medians: Mapping[str, float]) -> str | None:
    """The fastest system that is not undivided."""
    peers = [name for name in medians if SYSTEMS[name].library != "undivided"]
    return min(peers, key=medians.__getitem__, default=None)


def bars(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Those that the rows can tell of, all of them forward and backward."""
    result: list[dict[str, Any]] = []

    def bar(what: str, against: str, least: float, times: float) -> None:
        holds = times >= least
        result.append(
            {"what": what, "against": against, "bar": least, "times": times, "holds": holds}
        )

    full: dict[tuple[int, ...], float] = {}
    for row in rows:
        systems, shape = row["systems"], tuple(row["shape"])
        if not row["gradient"] or "undivided" not in systems:
            continue
        mine = systems["undivided"]["median_seconds"]
        peer, title = row["best_peer"], row["title"]
        if row["variant"] == "full":
            full[shape] = mine
            if peer and shape in FULL_BARS:
                bar(title, peer, FULL_BARS[shape], systems[peer]["median_seconds"] / mine)
            if shape[2] == 49 and "torch-sdpa" in systems:
                sdpa = systems["torch-sdpa"]["median_seconds"]
                bar(title, "torch-sdpa", SDPA_BAR, sdpa / mine)
        if shape[2] == 4096 and row["variant"] == "window" and peer:
            bar(title, peer, WINDOW_BAR, systems[peer]["median_seconds"] / mine)
        if shape[2] == 4096 and row["variant"] == "causal" and shape in full:
            bar(title, "its own full pass", CAUSAL_BAR, full[shape] / mine)
    return result


def weights_json(case: Case, without: float, wanted: float, written: float) -> dict[str, Any]:
    return {
        "shape": case.shape,
        "forward_seconds": without,
        "weights_seconds": wanted,
        "written_seconds": written,
        "more": wanted / without - 1,
        "bar": WEIGHTS_BAR if case.shape[2] <= WEIGHTS_ROWS else None,
        "holds": case.shape[2] > WEIGHTS_ROWS or wanted / without - 1 <= WEIGHTS_BAR,
    }


def short_json(case: Case, call: float, arithmetic: float) -> dict[str, Any]:
    return {
        "shape": case.shape,
        "call_seconds": call,
        "arithmetic_seconds": arithmetic,
        "beyond_seconds": call - arithmetic,
        "bar": SHORT_BAR,
        "holds": call - arithmetic <= SHORT_BAR,
    }


def text(result: Mapping[str, Any]) -> str:
    """All that was measured, as a page."""
    parts = [machine_text(result, "turns")]
    if rows := result.get("rows"):
        parts.append("\n".join([_head(rows), *(row_text(row, _columns(rows)) for row in rows)]))
        others = median(each["others_share"] for row in rows for each in row["systems"].values())
        if others > QUIET:
            parts.append(
                f"NOT A QUIET MACHINE: other processes had up to {100 * others:.0f} % of its cores."
            )
        parts.append("\n".join(_bar_text(bar) for bar in result["bars"]))
    if own := result.get("own"):
        parts.append(_own_text(own))
    return "\n\n".join(part for part in parts if part)


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for name in SYSTEMS if any(name in row["systems"] for row in rows)]


def _head(rows: Sequence[Mapping[str, Any]]) -> str:
    others = (name for name in _columns(rows) if name != "undivided")
    titles = f"{'case':40}{'undivided ms':>13}" + "".join(f"{'× ' + n:>18}" for n in others)
    return f"{titles}{'× best peer':>13}{'of peak':>9}"


def row_text(row: Mapping[str, Any], columns: Sequence[str] = tuple(SYSTEMS)) -> str:
    """Undivided's milliseconds, and how many times those the others take."""
    systems = row["systems"]
    mine = systems.get("undivided")
    cells = [f"{row['title']:40}", f"{1e3 * mine['median_seconds']:13.4f}" if mine else " " * 13]
    for name in columns:
        if name == "undivided":
            continue
        each = systems.get(name)
        if each is None:
            shown = ""
        elif mine:
            shown = f"{each['times_undivided']:.2f}"
        else:
            shown = f"{1e3 * each['median_seconds']:.4f} ms"
        cells.append(f"{shown:>18}")
    peer = row["best_peer"]
    times = f"{systems[peer]['times_undivided']:.2f}" if peer and mine else ""
    share = row.get("share_of_peak")
    return "".join(cells) + f"{times:>13}" + f"{'' if share is None else f'{share:.0%}':>9}"


def _bar_text(bar: Mapping[str, Any]) -> str:
    return (
        f"Bar: {bar['what']}, {bar['bar']:g}× {bar['against']}; {bar['times']:.2f}×: "
        f"{_verdict(bar)}"
    )


def _own_text(own: Mapping[str, Any]) -> str:
    lines = [
        f"{'weights on request':24}{'forward ms':>12}{'with them':>12}{'more':>8}{'writing':>10}"
    ]
    for each in own["weights"]:
        bar = each["bar"]
        lines.append(
            f"{'×'.join(map(str, each['shape'])):24}{1e3 * each['forward_seconds']:12.4f}"
            f"{1e3 * each['weights_seconds']:12.4f}{each['more']:8.0%}"
            f"{1e3 * each['written_seconds']:10.4f}"
            + (f"  bar {bar:.0%}: {_verdict(each)}" if bar else "")
        )
    short = own["short_call"]
    lines.append(
        f"A call of {tuple(short['shape'])}: {1e6 * short['call_seconds']:.1f} µs, "
        f"{1e6 * short['beyond_seconds']:.1f} beyond its arithmetic; bar "
        f"{1e6 * short['bar']:.0f} µs: {_verdict(short)}"
    )
    return "\n".join(lines)


def _verdict(bar: Mapping[str, Any]) -> str:
    return "holds" if bar["holds"] else "DOES NOT HOLD"
