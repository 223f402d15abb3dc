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

// Rows of a loss: where they lie, and where their gradients go.
struct LossRows {
  int64_t axis, width;
  const float* x;  // of the first row
  float* dx;
  int64_t x_stride, dx_stride;
  int64_t first, last;  // which rows of the group
};

// each(row) gives the loss of a row; the sum of these, each times its weight, is added to the
// group's. Rows of weight 0 have neither loss nor gradient, whatever their numbers are.
template <class Each>
UNDIVIDED_INLINE void over_rows(const Work& work, const LossRows& rows, Each each) {
  const Targets& targets = *work.targets;
  double loss = *work.loss;
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t member = work.members[s], start = start_of(work, rows.axis, s);
    int64_t first = start > rows.first ? start : rows.first;
    int64_t end = start_of(work, rows.axis, s + 1);
    int64_t target = targets.start ? targets.start[member] : member * targets.rows;
    target += first - start;
    for (int64_t r = first; r < end && r < rows.last; ++r, ++target) {
      float weight = targets.weights ? targets.weights[target] : 1.0f;
      float* dx = rows.dx ? rows.dx + (r - rows.first) * rows.dx_stride : nullptr;
      if (weight == 0.0f) {
        if (dx)
          for (int64_t i = 0; i < padded(rows.width); i += kLanes) store(dx + i, Vector{});
        continue;
      }
      const LossRow row{rows.x + (r - rows.first) * rows.x_stride, dx, rows.width, target,
                        work.inverse_batch * weight};
      loss += (double)weight * each(row);
    }
  }
  *work.loss = loss;
}

// All rows of the output.
template <class Each>
UNDIVIDED_INLINE void over_rows(const Work& work, const Instruction& op, Each each) {
  const Buffer& x = buffer_of(work, op.x);
  LossRows rows{};
  rows.axis = x.axis;
  rows.width = x.width;
  rows.x = values_of(work, op.x);
  rows.x_stride = x.stride;
  rows.last = rows_of(work, x.axis);
  if (op.dx >= 0) {
    rows.dx = values_of(work, op.dx);
    rows.dx_stride = buffer_of(work, op.dx).stride;
  }
  over_rows(work, rows, each);
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
