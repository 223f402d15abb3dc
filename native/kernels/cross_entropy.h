// Cross-entropy of the softmax of a row of scores against the number of the right class.
//
// loss = lse − x[target] with lse = top + ln Σ exp(x − top), so dx = (softmax(x) − onehot)/batch.
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE void cross_entropy(const Work& work, const Instruction& op) {
  const Buffer& x = buffer_of(work, op.x);
  double loss = *work.loss;
  for (int64_t s = 0; s < work.count; ++s) {
    const float* scores = row_of(work, op.x, start_of(work, x.axis, s));
    Vector top = fill(-kInfinity);
    for (int64_t i = 0; i < padded(x.width); i += kLanes)
      top = larger(lanes_below(x.width - i) ? load(scores + i) : fill(-kInfinity), top);
    float highest = largest(top);
    float* dx = op.dx >= 0 ? row_of(work, op.dx, start_of(work, x.axis, s)) : nullptr;
    Vector total{};
    for (int64_t i = 0; i < padded(x.width); i += kLanes) {
      Vector e = exponential(load(scores + i) - highest);
      e = lanes_below(x.width - i) ? e : Vector{};
      total += e;
      if (dx) store(dx + i, e);
    }
    float whole = sum(total);
    int64_t target = work.samples->y[work.members[s]];
    loss += (double)(__builtin_logf(whole) + (highest - scores[target]));
    if (!dx) continue;
    float share = work.inverse_batch / whole;
    for (int64_t i = 0; i < padded(x.width); i += kLanes) store(dx + i, load(dx + i) * share);
    dx[target] -= work.inverse_batch;
  }
  *work.loss = loss;
}

}  // namespace undivided::UNDIVIDED_SET
