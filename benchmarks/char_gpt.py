"""Train the recipe char-gpt on the machine's own Python library, in undivided and in PyTorch.

    pip install 'undivided[bench]'           # torch
    python benchmarks/char_gpt.py

5 MB of source, of which the last tenth is held out. Both start from the same weights and take the
same batches with the same rates, in turns of some steps, each in a process of its own, so that
both see the same machine. PyTorch computes its attention by `scaled_dot_product_attention` and
updates by its fused AdamW. The page says how many bits each needs for a character that is held
out, how long a step took, and what the model writes.

    --megabytes 5      so much text
    --steps N          so many steps; else all of the text once
    --turn 40          steps of a turn
    --threads N        threads, and cores to run them on; else what may be used
    --json             everything as JSON, in place of the page

Nothing else should run meanwhile. The whole takes about three minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from arguments import at_least_one, parser_of, say
from comparison import Orders
from corpus import text_file
from peers.apart import Process
from peers.language import Language, network_of, shape_of, windows_of
from peers.language_undivided import Undivided

from undivided.engines.native import available_threads

__all__ = ["main", "measure"]

RECIPE = "char-gpt"
BITS_APART = 0.01
"""How far, relatively, the bits per character of both may lie apart."""
TIMES_AS_FAST = 2.0
"""What undivided has to reach."""
PROMPT = "def "
SAMPLE, TEMPERATURE = 400, 0.7


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("char_gpt.py", __doc__)
    parser.add_argument("--megabytes", type=float, default=5.0, metavar="X")
    parser.add_argument("--steps", type=at_least_one, metavar="N")
    parser.add_argument("--turn", type=at_least_one, default=40, metavar="N")
    parser.add_argument("--threads", type=at_least_one, default=available_threads(), metavar="N")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    result = measure(options)
    print(json.dumps(result, indent=2) if options.json else text(result))
    return 0 if result["holds"] else 1


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Both trainings, turn by turn, as plain data."""
    with tempfile.TemporaryDirectory() as folder:
        file = text_file(Path(folder), int(options.megabytes * 1e6))
        task = Language(RECIPE, str(file), options.steps or 1, options.threads)
        data, batch = windows_of(task), shape_of(task).B
        steps = options.steps or len(data.train) // batch
        task = Language(RECIPE, str(file), steps, options.threads)
        orders = Orders(network_of(task), task.seed)
        with Process("undivided", Undivided) as mine, Process("torch", _torch) as theirs:
            both = {"undivided": mine, "torch": theirs}
            for each in both.values():
                each.ask("prepare", task, orders.parameters)
            turns = _turns(both, orders, len(data.train), batch, steps, options.turn)
            bits = {name: each.ask("bits") for name, each in both.items()}
            sample = mine.ask("sample", PROMPT, SAMPLE, TEMPERATURE)
    seconds = {name: [turn["seconds"][name] for turn in turns] for name in both}
    a_step = {
        name: median(s / t["steps"] for s, t in zip(each, turns, strict=True))
        for name, each in seconds.items()
    }
    apart = abs(bits["undivided"] / bits["torch"] - 1)
    ratio = a_step["torch"] / a_step["undivided"]
    return {
        "megabytes": options.megabytes,
        "windows": {"train": len(data.train), "held_out": len(data.test)},
        "steps": steps,
        "threads": options.threads,
        "bits_per_character": bits,
        "bits_apart": apart,
        "seconds": {name: sum(each) for name, each in seconds.items()},
        "milliseconds_a_step": {name: 1e3 * each for name, each in a_step.items()},
        "ratio": ratio,
        "holds": apart <= BITS_APART and ratio >= TIMES_AS_FAST,
        "others": max(turn["others"] for turn in turns),
        "sample": PROMPT + sample,
        "turns": turns,
    }


def _torch() -> Any:
    from peers.language_torch import Torch

    return Torch()


def _turns(
    both: dict[str, Process], orders: Orders, windows: int, batch: int, steps: int, turn: int
) -> list[dict[str, Any]]:
    """Some steps of each, again and again; who begins changes."""
    turns: list[dict[str, Any]] = []
    done = 0
    while done < steps:
        now = min(turn, steps - done)
        rows = (done * batch + np.arange(now * batch)) % windows
        order = orders.next(len(rows)).astype(np.int64)
        names = list(both) if len(turns) % 2 == 0 else list(both)[::-1]
        found = {name: both[name].ask("learn", rows, order) for name in names}
        done += now
        turns.append(
            {
                "steps": now,
                "seconds": {name: each[0] for name, each in found.items()},
                "loss": {name: each[1] for name, each in found.items()},
                "others": max(each[2] for each in found.values()),
            }
        )
        losses = " and ".join(f"{each[1]:.4f}" for _, each in sorted(found.items(), reverse=True))
        say(f"step {done} of {steps}: loss {losses}")
    return turns


def text(result: dict[str, Any]) -> str:
    """The page."""
    bits, a_step = result["bits_per_character"], result["milliseconds_a_step"]
    lines = [
        f"{RECIPE} on {result['megabytes']:g} MB of the Python library: {result['steps']:,} steps, "
        f"{result['threads']} threads",
        f"{'':12}{'bits per character':>20}{'ms a step':>12}{'seconds':>10}",
    ]
    for name in bits:
        lines.append(
            f"{name:12}{bits[name]:20.4f}{a_step[name]:12.1f}{result['seconds'][name]:10.1f}"
        )
    lines += [
        f"Bits apart {100 * result['bits_apart']:.2f} % (bar {100 * BITS_APART:g} %), "
        f"{result['ratio']:.2f} times as fast (bar {TIMES_AS_FAST:g}): "
        f"{'both hold' if result['holds'] else 'MISSED'}",
    ]
    if result["others"] > 0.05:
        lines.append(
            f"Other processes had up to {100 * result['others']:.0f} % of the cores in a turn."
        )
    return "\n".join([*lines, "", result["sample"]])


if __name__ == "__main__":
    sys.exit(main())
