// Learned rows, two sequences end to end, and the last row of one.
//
//   last:         y = x[S − 1]                    (of sequences that go on: nothing is learned)
//   learned:      y[t] = table[t]                 dtable[t] += dy[t], over all samples
//   concatenate:  y = the rows of x, then of z    dx, dz = their parts of dy
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE void learned_forward(const Work& work, const Instruction& op) {
  const Buffer& y = buffer_of(work, op.y);
  const float* table = parameters_of(work, op.table);
  for (int64_t s = 0; s < work.count; ++s) {
    float* to = row_of(work, op.y, start_of(work, y.axis, s));
    for (int64_t i = 0; i < rows_in(work, y.axis, s) * y.stride; i += kLanes)
      store(to + i, load(table + i));
  }
}

UNDIVIDED_INLINE void learned_backward(const Work& work, const Instruction& op) {
  const Buffer& dy = buffer_of(work, op.dy);
  float* table = gradients_of(work, op.table);
  for (int64_t s = 0; s < work.count; ++s) {
    const float* from = row_of(work, op.dy, start_of(work, dy.axis, s));
    for (int64_t i = 0; i < rows_in(work, dy.axis, s) * dy.stride; i += kLanes)
      give(table + i, load(from + i), true);
  }
}

UNDIVIDED_INLINE void last_forward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &y = buffer_of(work, op.y);
  for (int64_t s = 0; s < work.count; ++s) {
    const float* from = row_of(work, op.x, start_of(work, x.axis, s + 1) - 1);
    float* to = row_of(work, op.y, start_of(work, y.axis, s));
    for (int64_t i = 0; i < y.stride; i += kLanes) store(to + i, load(from + i));
  }
}

UNDIVIDED_INLINE void concatenate_forward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &z = buffer_of(work, op.z), &y = buffer_of(work, op.y);
  for (int64_t s = 0; s < work.count; ++s) {
    float* to = row_of(work, op.y, start_of(work, y.axis, s));
    const Buffer* parts[2] = {&x, &z};
    for (const Buffer* part : parts) {
      const float* from = work.arena + part->offset + start_of(work, part->axis, s) * part->stride;
      int64_t floats = rows_in(work, part->axis, s) * y.stride;
      for (int64_t i = 0; i < floats; i += kLanes) store(to + i, load(from + i));
      to += floats;
    }
  }
}

UNDIVIDED_INLINE void concatenate_backward(const Work& work, const Instruction& op) {
  const Buffer& dy = buffer_of(work, op.dy);
  int64_t parts[2] = {op.dx, op.dz}, adds[2] = {op.accumulate_x, op.accumulate_z};
  int64_t axes[2] = {buffer_of(work, op.x).axis, buffer_of(work, op.z).axis};
  for (int64_t s = 0; s < work.count; ++s) {
    const float* from = row_of(work, op.dy, start_of(work, dy.axis, s));
    for (int part = 0; part < 2; ++part) {
      int64_t floats = rows_in(work, axes[part], s) * dy.stride;
      if (parts[part] >= 0) {
        float* to = row_of(work, parts[part], start_of(work, axes[part], s));
        for (int64_t i = 0; i < floats; i += kLanes) give(to + i, load(from + i), adds[part]);
      }
      from += floats;
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
