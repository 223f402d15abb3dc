// Deviation: how far a row is from its target, the mean over its numbers of f(e) with e = x − t.
//
//   squared:  f = e²                              dx = 2·e/(batch·width)
//   absolute: f = |e|                             dx = sign(e)/…
//   huber:    f = e²/2, beyond δ δ·(|e| − δ/2)    dx = e kept within ±δ, /…
#pragma once

#include "loss_rows.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE void deviation(const Work& work, const Instruction& op) {
  float delta = (float)op.scale;
  double each = 1.0 / (double)buffer_of(work, op.x).width;
  over_rows(work, op, [&](const LossRow& row) {
    float share = row.share / (float)row.width;
    Vector total{};
    for (int64_t i = 0; i < padded(row.width); i += kLanes) {
      Vector e = load(row.x + i) - values_at(*work.targets, row, i);
      e = lanes_below(row.width - i) ? e : Vector{};
      Vector size = e < 0.0f ? -e : e, f, slope;
      if (op.function == Function::squared) {
        f = e * e;
        slope = e + e;
      } else if (op.function == Function::absolute) {
        f = size;
        slope = e > 0.0f ? fill(1.0f) : (e < 0.0f ? fill(-1.0f) : e);
      } else {
        Vector within = larger(-size, fill(-delta));  // −|e|, kept above −δ
        f = size <= delta ? e * e * 0.5f : (size - 0.5f * delta) * delta;
        slope = e < 0.0f ? within : -within;
        slope = e == e ? slope : e;
      }
      total += f;
      if (row.dx) store(row.dx + i, slope * share);
    }
    return (double)sum(total) * each;
  });
}

}  // namespace undivided::UNDIVIDED_SET
