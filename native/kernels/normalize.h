// Normalize: y = x̂·gain + shift with x̂ = (x − mean)/√(variance + ε), over each row.
//
// In the forward pass mean and variance came from the row itself, so with g = dy·gain:
//   dgain += Σ dy ∘ x̂    dshift += Σ dy    dx = (g − mean(g) − x̂·mean(g ∘ x̂)) / √(variance + ε)
// Backward works x̂ out again from x: that is cheaper than keeping it.
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

struct Moments {
  float mean, inverse_deviation;
};

UNDIVIDED_INLINE Moments moments_of(const float* x, int64_t width, int64_t stride, float epsilon) {
  Vector total{};
  for (int64_t i = 0; i < stride; i += kLanes)
    total += lanes_below(width - i) ? load(x + i) : Vector{};
  float mean = sum(total) / (float)width;
  Vector squares{};
  for (int64_t i = 0; i < stride; i += kLanes) {
    Vector centred = lanes_below(width - i) ? load(x + i) - mean : Vector{};
    squares += centred * centred;
  }
  return {mean, 1.0f / __builtin_sqrtf(sum(squares) / (float)width + epsilon)};
}

UNDIVIDED_INLINE void normalize_forward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &y = buffer_of(work, op.y);
  const float *gain = parameters_of(work, op.gain), *shift = parameters_of(work, op.shift);
  int64_t stride = padded(x.width);
  for (int64_t r = 0; r < rows_of(work, x.axis); ++r) {
    const float* from = row_of(work, op.x, r);
    float* to = values_of(work, op.y) + r * y.stride;
    Moments m = moments_of(from, x.width, stride, (float)op.offset);
    for (int64_t i = 0; i < stride; i += kLanes)
      store(to + i, (load(from + i) - m.mean) * m.inverse_deviation * load(gain + i) +
                        load(shift + i));
  }
}

UNDIVIDED_INLINE void normalize_backward(const Work& work, const Instruction& op) {
  const Buffer& x = buffer_of(work, op.x);
  const float* gain = parameters_of(work, op.gain);
  float *dgain = gradients_of(work, op.gain), *dshift = gradients_of(work, op.shift);
  int64_t stride = padded(x.width);
  float share = 1.0f / (float)x.width;
  for (int64_t r = 0; r < rows_of(work, x.axis); ++r) {
    const float* from = row_of(work, op.x, r);
    const float* dy = row_of(work, op.dy, r);
    Moments m = moments_of(from, x.width, stride, (float)op.offset);
    Vector total{}, total_along{};
    for (int64_t i = 0; i < stride; i += kLanes) {
      Vector normal = (load(from + i) - m.mean) * m.inverse_deviation;
      Vector d = load(dy + i), g = d * load(gain + i);
      store(dgain + i, load(dgain + i) + d * normal);
      store(dshift + i, load(dshift + i) + d);
      total += g;  // the padding of gain is 0, so that of g is
      total_along += g * normal;
    }
    if (op.dx < 0) continue;
    float mean = sum(total) * share, mean_along = sum(total_along) * share;
    float* dx = row_of(work, op.dx, r);
    for (int64_t i = 0; i < stride; i += kLanes) {
      Vector normal = (load(from + i) - m.mean) * m.inverse_deviation;
      Vector g = load(dy + i) * load(gain + i);
      Vector d = (g - mean - normal * mean_along) * m.inverse_deviation;
      give(dx + i, lanes_below(x.width - i) ? d : Vector{}, op.accumulate_x);
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
