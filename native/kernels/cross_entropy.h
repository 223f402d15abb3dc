// Cross-entropy of the softmax of a row of scores against the number of the right class, or
// against a distribution t over the classes.
//
// loss = Σ t·(lse − x) with lse = top + ln Σ exp(x − top), so dx = (softmax(x)·Σt − t)/batch.
// A class number stands for t = onehot; label smoothing α makes it (1−α)·t + α/C.
#pragma once

#include "loss_rows.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE float top_of(const LossRow& row) {
  Vector top = fill(-kInfinity);
  for (int64_t i = 0; i < padded(row.width); i += kLanes)
    top = larger(lanes_below(row.width - i) ? load(row.x + i) : fill(-kInfinity), top);
  return largest(top);
}

// exp(x − top) into dx where there is one, and their sum.
UNDIVIDED_INLINE float exponentials(const LossRow& row, float highest) {
  Vector total{};
  for (int64_t i = 0; i < padded(row.width); i += kLanes) {
    Vector e = exponential(load(row.x + i) - highest);
    e = lanes_below(row.width - i) ? e : Vector{};
    total += e;
    if (row.dx) store(row.dx + i, e);
  }
  return sum(total);
}

// Against a class: the loss, and the gradient in place of the exponentials. The gradient may take
// the place of the scores.
UNDIVIDED_INLINE double against_class(const LossRow& row, int64_t target, float smoothing) {
  float highest = top_of(row), own = row.x[target];
  Vector behind{};  // Σ (top − x): what every class is behind the best
  if (smoothing != 0.0f)
    for (int64_t i = 0; i < padded(row.width); i += kLanes)
      behind += lanes_below(row.width - i) ? highest - load(row.x + i) : Vector{};
  float whole = exponentials(row, highest);
  float log_sum = __builtin_logf(whole);
  double loss = (double)(log_sum + (highest - own));
  if (smoothing != 0.0f) {
    double even = (double)log_sum + (double)sum(behind) / (double)row.width;
    loss = (1.0 - (double)smoothing) * loss + (double)smoothing * even;
  }
  if (!row.dx) return loss;
  float share = row.share / whole;
  for (int64_t i = 0; i < padded(row.width); i += kLanes)
    store(row.dx + i, load(row.dx + i) * share);
  if (smoothing != 0.0f) {
    float each = row.share * smoothing / (float)row.width;
    for (int64_t i = 0; i < padded(row.width); i += kLanes) {
      Vector d = load(row.dx + i) - each;
      store(row.dx + i, lanes_below(row.width - i) ? d : Vector{});
    }
  }
  row.dx[target] -= row.share * (1.0f - smoothing);
  return loss;
}

UNDIVIDED_INLINE double against_distribution(const LossRow& row, const Targets& targets,
                                             float smoothing) {
  float highest = top_of(row), whole = exponentials(row, highest);
  float log_sum = __builtin_logf(whole), each = smoothing / (float)row.width;
  Vector losses{}, given{};
  for (int64_t i = 0; i < padded(row.width); i += kLanes) {
    Whole own = lanes_below(row.width - i);
    Vector t = values_at(targets, row, i) * (1.0f - smoothing) + each;
    t = own ? t : Vector{};
    Vector behind = own ? log_sum + (highest - load(row.x + i)) : Vector{};
    losses += t * behind;
    given += t;
  }
  if (!row.dx) return (double)sum(losses);
  float share = row.share * sum(given) / whole;
  for (int64_t i = 0; i < padded(row.width); i += kLanes) {
    Vector t = values_at(targets, row, i) * (1.0f - smoothing) + each;
    Vector d = load(row.dx + i) * share - t * row.share;
    store(row.dx + i, lanes_below(row.width - i) ? d : Vector{});
  }
  return (double)sum(losses);
}

UNDIVIDED_INLINE void cross_entropy(const Work& work, const Instruction& op) {
  const Targets& targets = *work.targets;
  float smoothing = (float)op.scale;
  over_rows(work, op, [&](const LossRow& row) {
    if (targets.classes) return against_class(row, targets.classes[row.target], smoothing);
    return against_distribution(row, targets, smoothing);
  });
}

}  // namespace undivided::UNDIVIDED_SET
