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

// Of several heads in a row each is normalized alone, number by number: heads begin anywhere.
UNDIVIDED_INLINE float inverse_rms_of_head(const float* x, int64_t width, float epsilon) {
  double squares = 0;
  for (int64_t i = 0; i < width; ++i) squares += (double)x[i] * (double)x[i];
  return (float)(1.0 / __builtin_sqrt(squares / (double)width + (double)epsilon));
}

UNDIVIDED_INLINE void rms_normalize_heads_forward(const Work& work, const Instruction& op) {
  const Buffer& x = buffer_of(work, op.x);
  const float* gain = parameters_of(work, op.gain);
  int64_t width = x.width / op.heads;
  for (int64_t r = 0; r < rows_of(work, x.axis); ++r) {
    for (int64_t head = 0; head < op.heads; ++head) {
      const float* from = row_of(work, op.x, r) + head * width;
      float* to = row_of(work, op.y, r) + head * width;
      float inverse = inverse_rms_of_head(from, width, (float)op.offset);
      for (int64_t i = 0; i < width; ++i) to[i] = from[i] * inverse * gain[i];
    }
    for (int64_t c = x.width; c < padded(x.width); ++c) row_of(work, op.y, r)[c] = 0.0f;
  }
}

UNDIVIDED_INLINE void rms_normalize_heads_backward(const Work& work, const Instruction& op) {
  const Buffer& x = buffer_of(work, op.x);
  const float* gain = parameters_of(work, op.gain);
  float* dgain = gradients_of(work, op.gain);
  int64_t width = x.width / op.heads;
  for (int64_t r = 0; r < rows_of(work, x.axis); ++r) {
    for (int64_t head = 0; head < op.heads; ++head) {
      const float* from = row_of(work, op.x, r) + head * width;
      const float* above = row_of(work, op.dy, r) + head * width;
      float inverse = inverse_rms_of_head(from, width, (float)op.offset);
      double along = 0;
      for (int64_t i = 0; i < width; ++i) {
        float normal = from[i] * inverse;
        dgain[i] += above[i] * normal;
        along += (double)(above[i] * gain[i]) * (double)normal;
      }
      if (op.dx < 0) continue;
      float mean = (float)(along / (double)width);
      float* dx = row_of(work, op.dx, r) + head * width;
      for (int64_t i = 0; i < width; ++i) {
        float value = (above[i] * gain[i] - from[i] * inverse * mean) * inverse;
        dx[i] = op.accumulate_x ? dx[i] + value : value;
      }
    }
    if (op.dx >= 0 && !op.accumulate_x)
      for (int64_t c = x.width; c < padded(x.width); ++c) row_of(work, op.dx, r)[c] = 0.0f;
  }
}

UNDIVIDED_INLINE void rms_normalize_forward(const Work& work, const Instruction& op) {
  if (op.heads > 1) return rms_normalize_heads_forward(work, op);
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
  if (op.heads > 1) return rms_normalize_heads_backward(work, op);
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
