// Activation: y = f(x), number by number.
//
//   relu: dx = dy where y > 0, else 0
//   gelu: y = x·Φ(x), dx = dy·(Φ(x) + x·φ(x)), with φ(x) = e^(−x²/2)/√(2π)
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE Vector activate(Function function, Vector x) {
  if (function == Function::relu) return x < 0.0f ? Vector{} : x;
  Vector bell;
  return x * normal_distribution(x, &bell);
}

// dx (+)= dy ∘ f'. `kept` is y for relu and x for gelu; dx may be dy itself.
UNDIVIDED_INLINE void activation_gradient(Function function, const float* kept, const float* dy,
                                          float* dx, int64_t count, bool accumulate) {
  if (function == Function::relu) {
    for (int64_t i = 0; i < count; i += kLanes) {
      Vector gate = load(kept + i);
      give(dx + i, gate > 0.0f ? load(dy + i) : Vector{}, accumulate);
    }
    return;
  }
  for (int64_t i = 0; i < count; i += kLanes) {
    Vector x = load(kept + i), bell;
    Vector slope = normal_distribution(x, &bell);
    slope += x * bell * 0.39894228040143268f;
    give(dx + i, load(dy + i) * slope, accumulate);
  }
}

UNDIVIDED_INLINE void activate_all(Function function, const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store(y + i, activate(function, load(x + i)));
}

UNDIVIDED_INLINE void activation_forward(const Work& work, const Instruction& op) {
  const Buffer& y = buffer_of(work, op.y);
  activate_all(op.function, values_of(work, op.x), values_of(work, op.y),
               rows_of(work, y.axis) * y.stride);
}

UNDIVIDED_INLINE void activation_backward(const Work& work, const Instruction& op) {
  const Buffer& dy = buffer_of(work, op.dy);
  const float* kept = values_of(work, op.function == Function::relu ? op.y : op.x);
  activation_gradient(op.function, kept, values_of(work, op.dy), values_of(work, op.dx),
                      rows_of(work, dy.axis) * dy.stride, op.accumulate_x);
}

}  // namespace undivided::UNDIVIDED_SET
