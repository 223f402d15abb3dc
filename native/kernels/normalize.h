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
  double variance = (double)sum(squares) / (double)width;
  return {mean, (float)(1.0 / __builtin_sqrt(variance + (double)epsilon))};
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
  constexpr int64_t kRows = 64;  // moments are kept for so many rows at a time
  const Buffer &x = buffer_of(work, op.x), &dy = buffer_of(work, op.dy);
  const float* gain = parameters_of(work, op.gain);
  float *dgain = gradients_of(work, op.gain), *dshift = gradients_of(work, op.shift);
  int64_t stride = padded(x.width), rows = rows_of(work, x.axis);
  float share = 1.0f / (float)x.width;
  for (int64_t first = 0; first < rows; first += kRows) {
    int64_t count = rows - first < kRows ? rows - first : kRows;
    const float *from = row_of(work, op.x, first), *above = row_of(work, op.dy, first);
    Moments moments[kRows];
    for (int64_t r = 0; r < count; ++r)
      moments[r] = moments_of(from + r * x.stride, x.width, stride, (float)op.offset);

    // The parameters' gradients: down the rows, in chains of their own.
    for (int64_t i = 0; i < stride; i += kLanes) {
      Vector along[4] = {}, plain[4] = {};
      for (int64_t r = 0; r < count; ++r) {
        Vector normal = (load(from + r * x.stride + i) - moments[r].mean) *
                        moments[r].inverse_deviation;
        Vector d = load(above + r * dy.stride + i);
        along[r % 4] += d * normal;
        plain[r % 4] += d;
      }
      give(dgain + i, (along[0] + along[1]) + (along[2] + along[3]), true);
      give(dshift + i, (plain[0] + plain[1]) + (plain[2] + plain[3]), true);
    }
    if (op.dx < 0) continue;

    // The gradient of x: along each row.
    for (int64_t r = 0; r < count; ++r) {
      const float *row = from + r * x.stride, *d = above + r * dy.stride;
      Moments m = moments[r];
      Vector total{}, total_along{};
      for (int64_t i = 0; i < stride; i += kLanes) {
        Vector normal = (load(row + i) - m.mean) * m.inverse_deviation;
        Vector g = rounded(load(d + i) * load(gain + i));
        total += g;  // the padding of gain is 0, so that of g is
        total_along += g * normal;
      }
      float mean = sum(total) * share, mean_along = sum(total_along) * share;
      float* dx = row_of(work, op.dx, first + r);
      for (int64_t i = 0; i < stride; i += kLanes) {
        Vector normal = (load(row + i) - m.mean) * m.inverse_deviation;
        Vector g = rounded(load(d + i) * load(gain + i));
        Vector value = (g - mean - normal * mean_along) * m.inverse_deviation;
        give(dx + i, lanes_below(x.width - i) ? value : Vector{}, op.accumulate_x);
      }
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
