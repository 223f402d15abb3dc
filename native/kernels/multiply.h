// Multiply: y = x∘z, number by number. dx = dy∘z, dz = dy∘x.
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE void multiply_forward(const Work& work, const Instruction& op) {
  const Buffer& y = buffer_of(work, op.y);
  for (int64_t r = 0; r < rows_of(work, y.axis); ++r) {
    const float *x = row_of(work, op.x, r), *z = row_of(work, op.z, r);
    float* to = row_of(work, op.y, r);
    for (int64_t i = 0; i < padded(y.width); i += kLanes) store(to + i, load(x + i) * load(z + i));
  }
}

UNDIVIDED_INLINE void multiply_backward(const Work& work, const Instruction& op) {
  const Buffer& dy = buffer_of(work, op.dy);
  for (int64_t r = 0; r < rows_of(work, dy.axis); ++r) {
    const float *x = row_of(work, op.x, r), *z = row_of(work, op.z, r);
    const float* from = row_of(work, op.dy, r);
    for (int64_t i = 0; i < padded(dy.width); i += kLanes) {
      Vector d = load(from + i);
      if (op.dx >= 0) give(row_of(work, op.dx, r) + i, d * load(z + i), op.accumulate_x);
      if (op.dz >= 0) give(row_of(work, op.dz, r) + i, d * load(x + i), op.accumulate_z);
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
