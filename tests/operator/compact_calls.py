"""A compact run of the operator, for instruction sets that a fresh process is forced to.

With UNDIVIDED_ISA set, and the folders of what these tests share to import from, it prints as JSON
which set ran, how many calls were compared with the reference, which do not agree, and whether
threads, masks and NaN change bits that they may not.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import test_attention_poison
from attention_calls import PATHS, Call
from hypothesis import HealthCheck, Phase, given, settings
from random_calls import calls
from test_attention_agreement import FAMILIES, LONG

from undivided.engines.native.machine import instruction_set

__all__ = ["main"]

OF_EACH = 60


def main() -> None:
    wrong: list[str] = []
    met: set[Call] = set()

    def compare(call: Call) -> None:
        met.add(call)
        try:
            call.check()
        except AssertionError as error:
            wrong.append(f"{call}: {error}")

    for dtype, path in FAMILIES:
        once = settings(
            max_examples=OF_EACH,
            phases=[Phase.generate],
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        once(given(calls(dtype, path))(compare))()
    for sizes, more in LONG[1::3]:
        compare(Call(sizes, **more))

    same = True
    call = next(each for each in met if each.sizes.S * each.sizes.T > 1000)
    for path in PATHS:
        one, *others = (call.on(path).by_operator(call.inputs(), threads) for threads in (1, 2, 3))
        same &= all(np.array_equal(one[name], x[name]) for x in others for name in one)

    test_attention_poison.COUNT = 300
    stained = []
    for path in PATHS:
        try:
            test_attention_poison.test_nothing_behind_a_mask_is_seen(path)
            test_attention_poison.test_padding_is_never_read(path)
        except AssertionError as error:
            stained.append(f"{path}: {error}")
    found = {
        "set": instruction_set(),
        "compared": len(met),
        "wrong": wrong,
        "same": same,
        "stained": stained,
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
