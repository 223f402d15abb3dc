// The end of a step: slices' gradients added in a fixed binary tree, the update rule, and the
// transposed copy of what changed.
#pragma once

#include "rows.h"

namespace undivided::UNDIVIDED_SET {

// ((s0 + s1) + (s2 + s3)) + …: neighbours first, whatever thread computed which slice.
UNDIVIDED_INLINE Vector tree_sum(const float* const* parts, int64_t count, int64_t at) {
  Vector sums[kMostSlices];
  for (int64_t i = 0; i < count; ++i) sums[i] = load(parts[i] + at);
  for (int64_t step = 1; step < count; step *= 2)
    for (int64_t i = 0; i + step < count; i += 2 * step) sums[i] += sums[i + step];
  return sums[0];
}

template <int N>
UNDIVIDED_INLINE Vector tree_sum_of(const float* const* parts, int64_t at) {
  if constexpr (N == 1) {
    return load(parts[0] + at);
  } else {
    return tree_sum_of<N / 2>(parts, at) + tree_sum_of<N / 2>(parts + N / 2, at);
  }
}

template <class Each>
UNDIVIDED_INLINE void with_tree_sum(const float* const* parts, int64_t count, Each each) {
  switch (count) {
    case 1: return each([&](int64_t at) { return tree_sum_of<1>(parts, at); });
    case 2: return each([&](int64_t at) { return tree_sum_of<2>(parts, at); });
    case 4: return each([&](int64_t at) { return tree_sum_of<4>(parts, at); });
    case 8: return each([&](int64_t at) { return tree_sum_of<8>(parts, at); });
    default: return each([&](int64_t at) { return tree_sum(parts, count, at); });
  }
}

UNDIVIDED_INLINE Vector square_root(Vector v) {
  for (int i = 0; i < kLanes; ++i) v[i] = __builtin_sqrtf(v[i]);
  return v;
}

// Numbers kept within ±limit; NaN stays NaN, so that it shows.
UNDIVIDED_INLINE Vector kept_within(Vector v, float limit) {
  v = v > limit ? fill(limit) : v;
  return v < -limit ? fill(-limit) : v;
}

// The sum of squares of what the update will see, in a fixed order.
UNDIVIDED_INLINE double square_sum_of(const Update& u, const float* const* parts, int64_t slices,
                                      int64_t from, int64_t floats) {
  double total = 0;
  with_tree_sum(parts, slices, [&](auto gradient_at) {
    for (int64_t i = 0; i < floats; i += kLanes) {
      Vector g = kept_within(gradient_at(from + i), u.clip_value);
      for (int k = 0; k < kLanes; ++k) total += (double)g[k] * (double)g[k];
    }
  });
  return total;
}

template <bool kClipped>
UNDIVIDED_INLINE void update_floats(const Update& u, const Block& block, int64_t begin,
                                    int64_t end) {
  const double rate = u.learning_rate * block.rate;
  const float learning_rate = (float)rate, decay = (float)(1.0 - rate * u.weight_decay);
  const bool decays = block.decays;
  with_tree_sum(u.gradients, u.slices, [&](auto gradient_at) {
    for (int64_t i = begin; i < end; i += kLanes) {
      Vector g = gradient_at(i + u.shift), p = load(u.parameters + i);
      if constexpr (kClipped) g = kept_within(g, u.clip_value) * u.factor;
      if (u.rule == Rule::kSgd) {
        p = p - g * learning_rate;
      } else if (u.rule == Rule::kMomentum) {
        Vector velocity = load(u.slots[0] + i) * u.momentum + g;
        store(u.slots[0] + i, velocity);
        if (u.nesterov) velocity = g + velocity * u.momentum;
        p = p - velocity * learning_rate;
      } else {
        if (decays) p = p * decay;
        Vector mean = load(u.slots[0] + i), square = load(u.slots[1] + i);
        mean = mean + (g - mean) * u.fresh_1;
        square = square + (g * g - square) * u.fresh_2;
        store(u.slots[0] + i, mean);
        store(u.slots[1] + i, square);
        Vector hat = square * u.correction_2;
        Vector root = u.epsilon_inside_root ? square_root(hat + u.epsilon)
                                            : square_root(hat) + u.epsilon;
        p = p - (mean * u.correction_1) * learning_rate / root;
      }
      store(u.parameters + i, p);
    }
  });
}

UNDIVIDED_INLINE void transpose_rows(const Block& block, const float* parameters, float* derived,
                                     int64_t first, int64_t last) {
  if (block.transposed < 0 || first >= last) return;
  const float* from = block.trained ? parameters : derived;
  transpose_into(from + block.offset + first * block.stride, block.stride, last - first,
                 block.width, derived + block.transposed + first, block.transposed_stride);
}

UNDIVIDED_INLINE void update_rows(const Update& u, const Block& block, int64_t first,
                                  int64_t last) {
  int64_t begin = block.offset + first * block.stride, end = block.offset + last * block.stride;
  bool clipped = u.clip_value != kInfinity || u.factor != 1.0f;
  clipped ? update_floats<true>(u, block, begin, end)
          : update_floats<false>(u, block, begin, end);
  transpose_rows(block, u.parameters, u.derived, first, last);
}

}  // namespace undivided::UNDIVIDED_SET
