// Gather: numbers of a sample go where a table says, in runs that stay together.
//
// The table names, for each run of `depth` numbers of y, where in the sample's rows of x it begins,
// or −1 for zeros (the padding around a picture). It serves windows, permutations and picks of
// rows alike; backward adds each gradient to where its number came from.
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE const int32_t* table_of(const Work& work, const Instruction& op) {
  return (const int32_t*)parameters_of(work, op.table);
}

// Runs longer than one number are rows of x, which are padded to whole vectors: so they are copied
// by vectors where the row of y still has room for what a vector brings along.
UNDIVIDED_INLINE void gather_forward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &y = buffer_of(work, op.y);
  int64_t run = op.depth, runs = y.width / run;
  for (int64_t s = 0; s < work.count; ++s) {
    const float* from = row_of(work, op.x, start_of(work, x.axis, s));
    float* to = row_of(work, op.y, start_of(work, y.axis, s));
    const int32_t* place = table_of(work, op);
    for (int64_t r = 0; r < rows_in(work, y.axis, s); ++r, to += y.stride) {
      if (run == 1) {
        for (int64_t k = 0; k < runs; ++k) to[k] = place[k] < 0 ? 0.0f : from[place[k]];
        place += runs;
      } else {
        float* at = to;
        for (int64_t k = 0; k < runs; ++k, ++place, at += run) {
          bool roomy = at + padded(run) <= to + y.stride;
          if (*place >= 0 && roomy)
            for (int64_t i = 0; i < run; i += kLanes) store(at + i, load(from + *place + i));
          else
            for (int64_t i = 0; i < run; ++i) at[i] = *place < 0 ? 0.0f : from[*place + i];
        }
      }
      for (int64_t c = y.width; c < y.stride; ++c) to[c] = 0.0f;
    }
  }
}

UNDIVIDED_INLINE void gather_backward(const Work& work, const Instruction& op) {
  const Buffer &dx = buffer_of(work, op.dx), &dy = buffer_of(work, op.dy);
  int64_t run = op.depth, runs = dy.width / run;
  for (int64_t s = 0; s < work.count; ++s) {
    float* to = row_of(work, op.dx, start_of(work, dx.axis, s));
    const float* from = row_of(work, op.dy, start_of(work, dy.axis, s));
    const int32_t* place = table_of(work, op);
    if (!op.accumulate_x)
      for (int64_t i = 0; i < rows_in(work, dx.axis, s) * dx.stride; i += kLanes)
        store(to + i, Vector{});
    for (int64_t r = 0; r < rows_in(work, dy.axis, s); ++r, from += dy.stride) {
      const float* at = from;
      for (int64_t k = 0; k < runs; ++k, ++place, at += run) {
        if (*place < 0) continue;
        if (run == 1) {
          to[*place] += *at;
          continue;
        }
        for (int64_t i = 0; i < run; i += kLanes) {
          Vector part = lanes_below(run - i) ? load(at + i) : Vector{};
          give(to + *place + i, part, true);
        }
      }
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
