// Dropout: y = x/(1 − rate) where a coin says so, else 0. dx = dy/(1 − rate) at the same places.
//
// The coins are Philox of (seed; row and column, place in the batch, step, operation). Nothing is
// kept from the way forward: backward throws the same again. Without a step nothing is dropped.
#pragma once

#include "philox.h"
#include "rows.h"
#include "rules.h"

namespace undivided::UNDIVIDED_SET {

constexpr uint32_t kDropout = 0x64726F70;  // "drop": what the words are drawn for

UNDIVIDED_INLINE void drop(const Work& work, const Instruction& op, int64_t source, int64_t target,
                           bool accumulate) {
  const Buffer &from = buffer_of(work, source), &to = buffer_of(work, target);
  Vector scale = fill(work.step < 0 ? 1.0f : (float)(1.0 / (1.0 - op.rate)));
  uint32_t drop_below = (uint32_t)(op.rate * 4294967296.0);
  int64_t width = padded(to.width), tiles = (to.width + 63) / 64;
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t first = start_of(work, to.axis, s), rows = rows_in(work, to.axis, s);
    for (int64_t r = 0; r < rows; ++r) {
      const float* x = values_of(work, source) + (first + r) * from.stride;
      float* y = values_of(work, target) + (first + r) * to.stride;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        uint64_t bits = ~0ull;
        if (work.step >= 0)
          bits = kept_of_tile(work.seed, (uint32_t)(r * tiles + tile), (uint32_t)(work.place + s),
                              (uint32_t)work.step, kDropout + (uint32_t)op.slot, drop_below);
        int64_t end = width < (tile + 1) * 64 ? width : (tile + 1) * 64;
        for (int64_t i = tile * 64; i < end; i += kLanes) {
          Whole kept = lanes_of_bits(bits >> (i % 64), Vector{});
          give(y + i, kept ? load(x + i) * scale : Vector{}, accumulate);
        }
      }
    }
  }
}

UNDIVIDED_INLINE void dropout_forward(const Work& work, const Instruction& op) {
  drop(work, op, op.x, op.y, false);
}

UNDIVIDED_INLINE void dropout_backward(const Work& work, const Instruction& op) {
  drop(work, op, op.dy, op.dx, op.accumulate_x);
}

}  // namespace undivided::UNDIVIDED_SET
