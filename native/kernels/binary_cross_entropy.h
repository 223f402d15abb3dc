// Binary cross-entropy: every number of a row is the logit of a yes or no of its own.
//
// loss = mean of max(x, 0) − x·t + ln(1 + e^−|x|), so dx = (σ(x) − t)/(batch·width). Label
// smoothing α makes t (1−α)·t + α/2.
#pragma once

#include "loss_rows.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE void binary_cross_entropy(const Work& work, const Instruction& op) {
  float smoothing = (float)op.scale;
  over_rows(work, op, [&](const LossRow& row) {
    float share = row.share / (float)row.width;
    double loss = 0;
    for (int64_t i = 0; i < padded(row.width); i += kLanes) {
      Whole own = lanes_below(row.width - i);
      Vector x = load(row.x + i);
      Vector t = values_at(*work.targets, row, i) * (1.0f - smoothing) + smoothing * 0.5f;
      Vector e = exponential(x < 0.0f ? x : -x);
      for (int64_t k = 0; k < kLanes && i + k < row.width; ++k)
        loss += (double)((x[k] > 0.0f ? x[k] : 0.0f) - x[k] * t[k]) +
                (double)__builtin_log1pf(e[k]);
      if (!row.dx) continue;
      Vector sigmoid = (x < 0.0f ? e : fill(1.0f)) / (e + 1.0f);
      store(row.dx + i, own ? (sigmoid - t) * share : Vector{});
    }
    return loss / (double)row.width;
  });
}

}  // namespace undivided::UNDIVIDED_SET
