// What losses share: they go over the rows of the output, each with its target and its weight.
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

// A row of the output, and where its gradient goes (null where nothing above it learns).
struct LossRow {
  const float* x;
  float* dx;
  int64_t width;
  int64_t target;  // which of the caller's target rows
  float share;     // weight / what the batch counts: the factor of the row's gradient
};

// each(row) gives the loss of a row; the sum of these, each times its weight, is added to the
// group's. Rows of weight 0 have neither loss nor gradient, whatever their numbers are.
template <class Each>
UNDIVIDED_INLINE void over_rows(const Work& work, const Instruction& op, Each each) {
  const Buffer& x = buffer_of(work, op.x);
  const Targets& targets = *work.targets;
  double loss = *work.loss;
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t member = work.members[s], first = start_of(work, x.axis, s);
    int64_t rows = rows_in(work, x.axis, s);
    int64_t target = targets.start ? targets.start[member] : member * targets.rows;
    for (int64_t r = 0; r < rows; ++r, ++target) {
      float weight = targets.weights ? targets.weights[target] : 1.0f;
      float* dx = op.dx >= 0 ? row_of(work, op.dx, first + r) : nullptr;
      if (weight == 0.0f) {
        if (dx)
          for (int64_t i = 0; i < padded(x.width); i += kLanes) store(dx + i, Vector{});
        continue;
      }
      const LossRow row{row_of(work, op.x, first + r), dx, x.width, target,
                        work.inverse_batch * weight};
      loss += (double)weight * each(row);
    }
  }
  *work.loss = loss;
}

// A vector of a row's targets, 0 beyond the row. The caller keeps rows without padding: whole
// vectors are read where the rows behind have room for them.
UNDIVIDED_INLINE Vector values_at(const Targets& targets, const LossRow& row, int64_t at) {
  int64_t first = row.target * row.width + at, own = row.width - at;
  if (first + kLanes <= targets.value_count) {
    Vector v = load(targets.values + first);
    return lanes_below(own) ? v : Vector{};
  }
  Vector v{};
  for (int64_t i = 0; i < kLanes && i < own; ++i) v[i] = targets.values[first + i];
  return v;
}

}  // namespace undivided::UNDIVIDED_SET
