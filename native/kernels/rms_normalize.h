// RMS-normalize: y = x·r·gain with r = 1/√(mean(x²) + ε), over each row.
//
// In the forward pass r came from the row itself, so with g = dy·gain and n = x·r:
//   dgain += Σ dy ∘ n    dx = r·(g − n·mean(g ∘ n))
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE float inverse_rms(const float* x, int64_t width, float epsilon) {
  Vector squares{};
  for (int64_t i = 0; i < padded(width); i += kLanes) {
    Vector v = lanes_below(width - i) ? load(x + i) : Vector{};
    squares += v * v;
  }
  double mean = (double)sum(squares) / (double)width;
  return (float)(1.0 / __builtin_sqrt(mean + (double)epsilon));
}

UNDIVIDED_INLINE void rms_normalize_forward(const Work& work, const Instruction& op) {
  const Buffer& x = buffer_of(work, op.x);
  const float* gain = parameters_of(work, op.gain);
  for (int64_t r = 0; r < rows_of(work, x.axis); ++r) {
    const float* from = row_of(work, op.x, r);
    float *to = row_of(work, op.y, r), inverse = inverse_rms(from, x.width, (float)op.offset);
    for (int64_t i = 0; i < padded(x.width); i += kLanes)
      store(to + i, load(from + i) * inverse * load(gain + i));
  }
}

UNDIVIDED_INLINE void rms_normalize_backward(const Work& work, const Instruction& op) {
  const Buffer& x = buffer_of(work, op.x);
  const float* gain = parameters_of(work, op.gain);
  float* dgain = gradients_of(work, op.gain);
  float share = 1.0f / (float)x.width;
  for (int64_t r = 0; r < rows_of(work, x.axis); ++r) {
    const float *from = row_of(work, op.x, r), *above = row_of(work, op.dy, r);
    float inverse = inverse_rms(from, x.width, (float)op.offset);
    Vector along{};
    for (int64_t i = 0; i < padded(x.width); i += kLanes) {
      Vector normal = load(from + i) * inverse, d = load(above + i);
      give(dgain + i, d * normal, true);
      along += d * load(gain + i) * normal;
    }
    if (op.dx < 0) continue;
    float mean = sum(along) * share;
    float* dx = row_of(work, op.dx, r);
    for (int64_t i = 0; i < padded(x.width); i += kLanes) {
      Vector normal = load(from + i) * inverse;
      give(dx + i, (load(above + i) * load(gain + i) - normal * mean) * inverse, op.accumulate_x);
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
