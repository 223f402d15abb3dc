// Rotary: pairs of numbers of each head turned by an angle θ of their token's position.
//
//   (a, b) → (a·cos θ − b·sin θ, a·sin θ + b·cos θ)        backward turns by −θ
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

// Rows of the table: cos of every pair of a head, then sin.
UNDIVIDED_INLINE void turn_rows(const Work& work, const Instruction& op, int64_t from_index,
                                int64_t to_index, float way, bool accumulate) {
  const Buffer &x = buffer_of(work, from_index), &y = buffer_of(work, to_index);
  const Block& table = block_of(work, op.table);
  int64_t width = x.width / op.heads, pairs = table.width / 2;
  for (int64_t s = 0; s < work.count; ++s)
    for (int64_t t = 0; t < rows_in(work, x.axis, s); ++t) {
      int64_t row = start_of(work, x.axis, s) + t;
      int64_t position = position_of(work, x.axis, s) + t;
      const float* cos = parameters_of(work, op.table) + position * table.stride;
      const float *from = row_of(work, from_index, row), *sin = cos + pairs;
      float* to = row_of(work, to_index, row);
      auto put = [&](int64_t column, float value) {
        to[column] = accumulate ? to[column] + value : value;
      };
      for (int64_t head = 0; head < op.heads; ++head) {
        int64_t first = head * width;
        for (int64_t i = 0; i < pairs; ++i) {
          float a = from[first + 2 * i], b = from[first + 2 * i + 1];
          put(first + 2 * i, a * cos[i] - way * b * sin[i]);
          put(first + 2 * i + 1, way * a * sin[i] + b * cos[i]);
        }
        if (width % 2) put(first + width - 1, from[first + width - 1]);
      }
      if (!accumulate)
        for (int64_t c = x.width; c < padded(x.width); ++c) to[c] = 0.0f;
    }
}

UNDIVIDED_INLINE void rotary_forward(const Work& work, const Instruction& op) {
  turn_rows(work, op, op.x, op.y, 1.0f, false);
}

UNDIVIDED_INLINE void rotary_backward(const Work& work, const Instruction& op) {
  turn_rows(work, op, op.dy, op.dx, -1.0f, op.accumulate_x);
}

}  // namespace undivided::UNDIVIDED_SET
