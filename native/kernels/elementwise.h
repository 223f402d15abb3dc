// Operations that touch each number, or each row, once: rescale, add, position, pool.
//
//   rescale:  y = x·scale + offset         dx = dy·scale
//   add:      y = x + z                    dx = dy, dz = dy
//   position: y[t] = x[t] + table[t]       dx = dy, dtable[t] += dy[t]
//   pool:     y = Σ_t x[t] / S             dx[t] = dy / S
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE int64_t floats_of(const Work& work, int64_t index) {
  return rows_of(work, buffer_of(work, index).axis) * buffer_of(work, index).stride;
}

UNDIVIDED_INLINE void rescale_forward(const Work& work, const Instruction& op) {
  const float* x = values_of(work, op.x);
  float *y = values_of(work, op.y), scale = (float)op.scale, offset = (float)op.offset;
  for (int64_t i = 0; i < floats_of(work, op.y); i += kLanes)
    store(y + i, load(x + i) * scale + offset);
}

UNDIVIDED_INLINE void rescale_backward(const Work& work, const Instruction& op) {
  const float* dy = values_of(work, op.dy);
  float *dx = values_of(work, op.dx), scale = (float)op.scale;
  for (int64_t i = 0; i < floats_of(work, op.dy); i += kLanes)
    give(dx + i, load(dy + i) * scale, op.accumulate_x);
}

// Values may be columns of wider ones: their rows then lie further apart than those of others.
UNDIVIDED_INLINE bool end_to_end(const Work& work, int64_t a, int64_t b) {
  return buffer_of(work, a).stride == buffer_of(work, b).stride;
}

UNDIVIDED_INLINE void add_forward(const Work& work, const Instruction& op) {
  const Buffer& y = buffer_of(work, op.y);
  bool whole = end_to_end(work, op.x, op.y) && end_to_end(work, op.z, op.y);
  int64_t rows = whole ? 1 : rows_of(work, y.axis);
  int64_t floats = whole ? floats_of(work, op.y) : padded(y.width);
  for (int64_t r = 0; r < rows; ++r) {
    const float *x = row_of(work, op.x, r), *z = row_of(work, op.z, r);
    float* to = row_of(work, op.y, r);
    for (int64_t i = 0; i < floats; i += kLanes) store(to + i, load(x + i) + load(z + i));
  }
}

// dx (+)= dy: what passes a gradient on unchanged, for add, position and shared values.
UNDIVIDED_INLINE void copy_backward(const Work& work, const Instruction& op) {
  const Buffer& dy = buffer_of(work, op.dy);
  bool whole = end_to_end(work, op.dx, op.dy);
  int64_t rows = whole ? 1 : rows_of(work, dy.axis);
  int64_t floats = whole ? floats_of(work, op.dy) : padded(dy.width);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = row_of(work, op.dy, r);
    float* to = row_of(work, op.dx, r);
    for (int64_t i = 0; i < floats; i += kLanes) give(to + i, load(from + i), op.accumulate_x);
  }
}

UNDIVIDED_INLINE void position_forward(const Work& work, const Instruction& op) {
  const Buffer& y = buffer_of(work, op.y);
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t first = start_of(work, y.axis, s), rows = start_of(work, y.axis, s + 1) - first;
    const float* table = parameters_of(work, op.table) + position_of(work, y.axis, s) * y.stride;
    const float* from = row_of(work, op.x, first);
    float* to = row_of(work, op.y, first);
    for (int64_t i = 0; i < rows * y.stride; i += kLanes)
      store(to + i, load(from + i) + load(table + i));
  }
}

UNDIVIDED_INLINE void position_backward(const Work& work, const Instruction& op) {
  const Buffer& dy = buffer_of(work, op.dy);
  float* table = gradients_of(work, op.table);
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t first = start_of(work, dy.axis, s), rows = start_of(work, dy.axis, s + 1) - first;
    const float* from = row_of(work, op.dy, first);
    for (int64_t i = 0; i < rows * dy.stride; i += kLanes)
      store(table + i, load(table + i) + load(from + i));
  }
}

UNDIVIDED_INLINE void pool_forward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &y = buffer_of(work, op.y);
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t first = start_of(work, x.axis, s), rows = start_of(work, x.axis, s + 1) - first;
    const float* from = row_of(work, op.x, first);
    float* to = row_of(work, op.y, start_of(work, y.axis, s));
    float share = rows ? 1.0f / (float)rows : 0.0f;
    for (int64_t c = 0; c < y.stride; c += kLanes) {
      Vector sums[4] = {};
      int64_t r = 0;
      for (; r + 4 <= rows; r += 4)
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) sums[i] += load(from + (r + i) * x.stride + c);
      for (; r < rows; ++r) sums[0] += load(from + r * x.stride + c);
      store(to + c, ((sums[0] + sums[1]) + (sums[2] + sums[3])) * share);
    }
  }
}

UNDIVIDED_INLINE void pool_backward(const Work& work, const Instruction& op) {
  const Buffer &dx = buffer_of(work, op.dx), &dy = buffer_of(work, op.dy);
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t first = start_of(work, dx.axis, s), last = start_of(work, dx.axis, s + 1);
    const float* from = row_of(work, op.dy, start_of(work, dy.axis, s));
    float share = 1.0f / (float)(last - first);
    for (int64_t c = 0; c < dx.stride; c += kLanes) {
      Vector each = load(from + c) * share;
      float* to = row_of(work, op.dx, first) + c;
      if (op.mask >= 0) {
        const Buffer& mask = buffer_of(work, op.mask);
        const float* gate = row_of(work, op.mask, first) + c;
        for (int64_t r = first; r < last; ++r, to += dx.stride, gate += mask.stride) {
          give(to, each, op.accumulate_x);
          store(to, load(gate) > 0.0f ? load(to) : Vector{});
        }
      } else {
        for (int64_t r = first; r < last; ++r, to += dx.stride) give(to, each, op.accumulate_x);
      }
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
