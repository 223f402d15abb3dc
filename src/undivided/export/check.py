"""A `main` that runs the exported program on a few samples and compares what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from undivided.engines.reference import ReferenceEngine
from undivided.errors import DataError
from undivided.export.source import Program, columns
from undivided.samples import checked_samples

if TYPE_CHECKING:
    from undivided.model import Model

__all__ = ["TOLERANCE", "check_program", "expected_scores"]

TOLERANCE = 1e-6
"""How far a score may be from the reference engine's in float64, as a share of the largest."""


def expected_scores(model: Model, x: Any) -> np.ndarray:
    """What the definition says, in float64."""
    reference = ReferenceEngine(model.plan, np.float64)
    for name, values in model.parameters.items():
        reference.parameters[name][...] = values
    return np.asarray(reference.predict(x))


def check_program(model: Model, program: Program, x: Any) -> str:
    """The text of the file; `x` is [N, *input]."""
    samples = np.asarray(checked_samples(x, model.plan.input, np.dtype(np.float32), "check"))
    if not len(samples):
        raise DataError("check must hold at least one sample.")
    expected = expected_scores(model, samples)
    name, upper, count = program.name, program.name.upper(), len(samples)
    scale = max(float(np.finfo(np.float32).tiny), float(np.abs(expected).max()))
    return f"""\
/* Does {name}_predict answer {count} samples as the definition does? Prints a sum over all bits
 * of the answers, which is the same wherever the answers are, and how far the worst score is off,
 * as a share of the largest one. Ends with 0 if that is at most {TOLERANCE:g}. */
#include "{name}.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SAMPLES {count}

static const float inputs[SAMPLES][{upper}_INPUTS];
static const float expected[SAMPLES][{upper}_LOGITS];

int main(void)
{{
    double largest = 0.0;
    uint32_t sum = 2166136261u;
    for (int sample = 0; sample < SAMPLES; sample++) {{
        float logits[{upper}_LOGITS];
        {name}_predict(inputs[sample], logits);
        for (int i = 0; i < {upper}_LOGITS; i++) {{
            const double off = (double)logits[i] - (double)expected[sample][i];
            if (!(off <= largest && -off <= largest))
                largest = off < 0.0 ? -off : off;
            uint32_t bits;
            memcpy(&bits, &logits[i], sizeof bits);
            for (int byte = 0; byte < 4; byte++)
                sum = (sum ^ (bits >> 8 * byte & 255u)) * 16777619u;
        }}
    }}
    const double share = largest / {scale!r};
    const int same = share <= {TOLERANCE:g};
    printf("%d samples, bits %08lx, off by %.2g of the largest score: %s\\n", SAMPLES,
           (unsigned long)sum, share, same ? "the same" : "NOT the same");
    return same ? 0 : 1;
}}

static const float inputs[SAMPLES][{upper}_INPUTS] = {{
{_rows(samples)}
}};

static const float expected[SAMPLES][{upper}_LOGITS] = {{
{_rows(expected)}
}};
"""


def _rows(samples: np.ndarray) -> str:
    rows = (np.asarray(sample, np.float32).reshape(-1) for sample in samples)
    return "\n".join(f"    {{\n{columns(row)}\n    }}," for row in rows)
