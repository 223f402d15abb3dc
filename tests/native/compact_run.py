"""A compact run of the native engine, for instruction sets that a fresh process is forced to.

`UNDIVIDED_ISA=x86-64-v2 python compact_run.py` prints as JSON which set ran, how many results
were compared, which of them do not agree with the reference, and whether bits stay the same.
"""

from __future__ import annotations

import dataclasses
import json
import sys

import kept_sequences as kept
import numpy as np
from agreement import Trio
from native_cases import compact
from padded_networks import PADDED, padding_after_training
from small_models import NETWORKS, OPTIMIZERS, engine_for, trained

__all__ = ["main"]


def main() -> None:
    compared, wrong = 0, []
    for case in compact():
        lengths = tuple(n for n in case.lengths if n <= 65)
        case = dataclasses.replace(case, lengths=lengths, count=min(case.count, 5))
        trio = Trio(case.network)
        checks = trio.check(case.batch(trio))
        compared += len(checks.results)
        wrong += [f"{case}: {name}: {r:.3g}" for name, r in checks.ratios.items() if not r <= 1]
    same = True
    for name in NETWORKS:
        first, *others = (
            trained(engine_for(name, OPTIMIZERS["AdamW"], threads=threads)) for threads in (1, 2, 3)
        )
        same &= all(
            np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True)
        )
    stained = [n for n in PADDED if padding_after_training(n, OPTIMIZERS["momentum"]).any()]
    going_on = {
        name: kept.compared(kept.model_of(kept.language(name)), 12, 40).same
        for name in ("rotary, odd heads", "window, alibi", "relative", "one head, folded")
    }
    found = {
        "set": engine_for("table").instruction_set,
        "compared": compared,
        "wrong": wrong,
        "same": same,
        "stained": stained,
        "otherwise": [name for name, same in going_on.items() if not same],
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
