// Activation: y = f(x), number by number, and softmax along rows.
//
//   relu        max(x, 0)                          f' = 1 where y > 0, else 0
//   leaky_relu  x where x > 0, else x/100          f' = 1 where y > 0, else 1/100
//   gelu        x·Φ(x)                             f' = Φ(x) + x·φ(x), φ(x) = e^(−x²/2)/√(2π)
//   gelu_tanh   ½x·(1 + t), t = tanh(u)            f' = ½(1 + t) + ½x·(1 − t²)·u'
//               u = √(2/π)·(x + 0.044715·x³)
//   silu        x·σ(x)                             f' = σ(x)·(1 + x·(1 − σ(x)))
//   sigmoid     σ(x) = 1/(1 + e^(−x))              f' = y·(1 − y)
//   tanh                                           f' = 1 − y²
//   softmax     e^x / Σ e^x                        dx = y ∘ (dy − Σ dy∘y)
//
// `kept` is y where f' can be told from y, else x: keeps_result below, and KEEP_RESULT in Python.
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

constexpr float kLeak = 0.01f;

UNDIVIDED_INLINE bool keeps_result(Function f) {
  return f == Function::relu || f == Function::leaky_relu || f == Function::sigmoid ||
         f == Function::tanh;
}

// e^(−|x|) never overflows; which of the two fractions it goes into is told by the sign.
UNDIVIDED_INLINE Vector logistic(Vector x) {
  Vector e = exponential(x < 0.0f ? x : -x);
  return (x < 0.0f ? e : fill(1.0f)) / (1.0f + e);
}

UNDIVIDED_INLINE Vector gelu_angle(Vector x) {
  return 0.79788456080286536f * (x + 0.044715f * (x * x * x));
}

template <Function F>
UNDIVIDED_INLINE Vector activate(Vector x) {
  if constexpr (F == Function::relu) return x < 0.0f ? Vector{} : x;
  if constexpr (F == Function::leaky_relu) return x < 0.0f ? x * kLeak : x;
  if constexpr (F == Function::sigmoid) return logistic(x);
  if constexpr (F == Function::silu) return x * logistic(x);
  if constexpr (F == Function::tanh) return hyperbolic_tangent(x);
  if constexpr (F == Function::gelu_tanh)
    return 0.5f * x * (1.0f + hyperbolic_tangent(gelu_angle(x)));
  Vector bell;
  return x * normal_distribution(x, &bell);
}

// dy ∘ f'(kept).
template <Function F>
UNDIVIDED_INLINE Vector activation_slope(Vector kept, Vector dy) {
  if constexpr (F == Function::relu) return kept > 0.0f ? dy : Vector{};
  if constexpr (F == Function::leaky_relu) return kept > 0.0f ? dy : dy * kLeak;
  if constexpr (F == Function::sigmoid) return dy * (kept * (1.0f - kept));
  if constexpr (F == Function::tanh) return dy * (1.0f - kept * kept);
  if constexpr (F == Function::silu) {
    Vector s = logistic(kept);
    return dy * (s * (1.0f + kept * (1.0f - s)));
  }
  if constexpr (F == Function::gelu_tanh) {
    Vector t = hyperbolic_tangent(gelu_angle(kept));
    Vector bend = 0.79788456080286536f * (1.0f + 0.134145f * (kept * kept));
    return dy * (0.5f * (1.0f + t) + 0.5f * kept * (1.0f - t * t) * bend);
  }
  Vector bell;
  Vector slope = normal_distribution(kept, &bell);
  slope += kept * bell * 0.39894228040143268f;
  return dy * slope;
}

template <Function F>
struct Chosen {
  static constexpr Function value = F;
};

// act(Chosen<f>) for a function that is known only now.
template <class Act>
UNDIVIDED_INLINE void with_function(Function f, Act act) {
  switch (f) {
    case Function::relu: return act(Chosen<Function::relu>{});
    case Function::leaky_relu: return act(Chosen<Function::leaky_relu>{});
    case Function::gelu: return act(Chosen<Function::gelu>{});
    case Function::gelu_tanh: return act(Chosen<Function::gelu_tanh>{});
    case Function::silu: return act(Chosen<Function::silu>{});
    case Function::sigmoid: return act(Chosen<Function::sigmoid>{});
    case Function::tanh: return act(Chosen<Function::tanh>{});
    default: return;
  }
}

// Of rows that lie end to end. dx may be dy itself, and y may be x.
UNDIVIDED_INLINE void activation_gradient(Function function, const float* kept, const float* dy,
                                          float* dx, int64_t count, bool accumulate) {
  with_function(function, [&](auto f) {
    for (int64_t i = 0; i < count; i += kLanes)
      give(dx + i, activation_slope<f.value>(load(kept + i), load(dy + i)), accumulate);
  });
}

UNDIVIDED_INLINE void activate_all(Function function, const float* x, float* y, int64_t count) {
  with_function(function, [&](auto f) {
    for (int64_t i = 0; i < count; i += kLanes) store(y + i, activate<f.value>(load(x + i)));
  });
}

UNDIVIDED_INLINE void activation_forward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &y = buffer_of(work, op.y);
  const float* from = values_of(work, op.x);
  float* to = values_of(work, op.y);
  int64_t rows = rows_of(work, y.axis);
  if (x.stride == y.stride) {
    activate_all(op.function, from, to, rows * y.stride);
  } else {
    for (int64_t r = 0; r < rows; ++r)
      activate_all(op.function, from + r * x.stride, to + r * y.stride, padded(y.width));
  }
  if (op.function == Function::sigmoid) clear_padding(to, y, rows);  // σ(0) is not 0
}

UNDIVIDED_INLINE void activation_backward(const Work& work, const Instruction& op) {
  int64_t source = keeps_result(op.function) ? op.y : op.x;
  const Buffer &kept = buffer_of(work, source), &dy = buffer_of(work, op.dy);
  const Buffer& dx = buffer_of(work, op.dx);
  const float *values = values_of(work, source), *from = values_of(work, op.dy);
  float* to = values_of(work, op.dx);
  int64_t rows = rows_of(work, dy.axis);
  if (kept.stride == dy.stride && dx.stride == dy.stride)
    return activation_gradient(op.function, values, from, to, rows * dy.stride, op.accumulate_x);
  for (int64_t r = 0; r < rows; ++r)
    activation_gradient(op.function, values + r * kept.stride, from + r * dy.stride,
                        to + r * dx.stride, padded(dy.width), op.accumulate_x);
}

UNDIVIDED_INLINE void softmax_forward(const Work& work, const Instruction& op) {
  const Buffer& x = buffer_of(work, op.x);
  int64_t stride = padded(x.width);
  for (int64_t r = 0; r < rows_of(work, x.axis); ++r) {
    const float* from = row_of(work, op.x, r);
    float* to = row_of(work, op.y, r);
    Vector top = fill(-kInfinity);
    for (int64_t i = 0; i < stride; i += kLanes)
      top = larger(lanes_below(x.width - i) ? load(from + i) : fill(-kInfinity), top);
    float highest = largest(top);
    Vector total{};
    for (int64_t i = 0; i < stride; i += kLanes) {
      Vector e = lanes_below(x.width - i) ? exponential(load(from + i) - highest) : Vector{};
      total += e;
      store(to + i, e);
    }
    float share = 1.0f / sum(total);
    for (int64_t i = 0; i < stride; i += kLanes) store(to + i, load(to + i) * share);
  }
}

UNDIVIDED_INLINE void softmax_backward(const Work& work, const Instruction& op) {
  const Buffer &y = buffer_of(work, op.y), &dy = buffer_of(work, op.dy);
  int64_t stride = padded(y.width);
  for (int64_t r = 0; r < rows_of(work, dy.axis); ++r) {
    const float *result = row_of(work, op.y, r), *from = row_of(work, op.dy, r);
    float* to = row_of(work, op.dx, r);
    Vector total{};
    for (int64_t i = 0; i < stride; i += kLanes) total += load(from + i) * load(result + i);
    float mean = sum(total);
    for (int64_t i = 0; i < stride; i += kLanes)
      give(to + i, load(result + i) * (load(from + i) - mean), op.accumulate_x);
  }
}

}  // namespace undivided::UNDIVIDED_SET
