// Max-pool: y = the largest of some rows of x, column by column; the gradient goes to the first of
// equals. A NaN among them is the largest.
//
// With a table, row r of y takes `down` rows of x, by number, −1 for none; without one, all rows
// of the sample.
#pragma once

#include "gather.h"

namespace undivided::UNDIVIDED_SET {

struct Pooled {
  const int32_t* rows;
  int64_t count;
  int64_t operator[](int64_t k) const { return rows ? rows[k] : k; }
};

template <class Act>
UNDIVIDED_INLINE void each_pooled(const Work& work, const Instruction& op, int64_t in, int64_t out,
                                  Act act) {
  const Buffer &x = buffer_of(work, in), &y = buffer_of(work, out);
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t first = start_of(work, x.axis, s);
    for (int64_t r = 0; r < rows_in(work, y.axis, s); ++r) {
      Pooled pooled{nullptr, rows_in(work, x.axis, s)};
      if (op.table >= 0) pooled = {table_of(work, op) + r * op.down, op.down};
      act(first, start_of(work, y.axis, s) + r, pooled);
    }
  }
}

UNDIVIDED_INLINE void max_pool_forward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &y = buffer_of(work, op.y);
  each_pooled(work, op, op.x, op.y, [&](int64_t first, int64_t r, const Pooled& pooled) {
    for (int64_t c = 0; c < y.stride; c += kLanes) {
      const float* from = row_of(work, op.x, first) + c;
      Vector top = fill(-kInfinity);
      for (int64_t k = 0; k < pooled.count; ++k) {
        if (pooled[k] < 0) continue;
        Vector value = load(from + pooled[k] * x.stride);
        top = (value > top) | (value != value) ? value : top;
      }
      store(row_of(work, op.y, r) + c, pooled.count ? top : Vector{});
    }
  });
}

UNDIVIDED_INLINE void max_pool_backward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &dx = buffer_of(work, op.dx);
  const Buffer& dy = buffer_of(work, op.dy);
  if (!op.accumulate_x) {
    float* to = values_of(work, op.dx);
    for (int64_t i = 0; i < rows_of(work, dx.axis) * dx.stride; i += kLanes) store(to + i, Vector{});
  }
  each_pooled(work, op, op.x, op.dy, [&](int64_t first, int64_t r, const Pooled& pooled) {
    for (int64_t c = 0; c < dy.stride; c += kLanes) {
      const float* from = row_of(work, op.x, first) + c;
      float* to = row_of(work, op.dx, first) + c;
      Vector top = load(row_of(work, op.y, r) + c), left = load(row_of(work, op.dy, r) + c);
      for (int64_t k = 0; k < pooled.count; ++k) {
        if (pooled[k] < 0) continue;
        Whole mine = load(from + pooled[k] * x.stride) == top;
        float* place = to + pooled[k] * dx.stride;
        store(place, load(place) + (mine ? left : Vector{}));
        left = mine ? Vector{} : left;
      }
    }
  });
}

}  // namespace undivided::UNDIVIDED_SET
