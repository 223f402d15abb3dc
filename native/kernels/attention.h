// Attention: y = P·V with P = softmax(Q·Kᵀ·scale), for each sample and head.
//
// S queries, T keys, D the width of a head. P is kept, [sample][head][S][T padded]; its padding
// is 0. In the forward pass each row of P was a softmax of scaled scores, so with dP = dY·Vᵀ:
//   dV = Pᵀ·dY    dS = P ∘ (dP − Σ_T dP ∘ P)·scale    dQ = dS·K    dK = dSᵀ·Q
// dS takes the place of P, which nothing needs any more.
#pragma once

#include "matrix.h"
#include "rows.h"

namespace undivided::UNDIVIDED_SET {

// One head of one sample.
struct Head {
  const float *q, *k, *v;
  int64_t q_stride, k_stride, v_stride;
  int64_t queries, keys, keys_padded;
  int64_t width, value_width;
  float* probabilities;
  float* scratch;  // a transposed operand first, then one result or a few rows of dP
};

UNDIVIDED_INLINE Head head_of(const Work& work, const Instruction& op, int64_t sample,
                              int64_t head) {
  const Buffer &q = buffer_of(work, op.x), &k = buffer_of(work, op.z), &v = buffer_of(work, op.v);
  const Buffer& kept = buffer_of(work, op.probabilities);
  int64_t most_keys = padded(work.program->axes[k.axis].most);
  int64_t most_queries = work.program->axes[q.axis].most;
  Head h;
  h.width = q.width / op.heads;
  h.value_width = v.width / op.heads;
  h.q = row_of(work, op.x, start_of(work, q.axis, sample)) + head * h.width;
  h.k = row_of(work, op.z, start_of(work, k.axis, sample)) + head * h.width;
  h.v = row_of(work, op.v, start_of(work, v.axis, sample)) + head * h.value_width;
  h.q_stride = q.stride;
  h.k_stride = k.stride;
  h.v_stride = v.stride;
  h.queries = start_of(work, q.axis, sample + 1) - start_of(work, q.axis, sample);
  h.keys = start_of(work, k.axis, sample + 1) - start_of(work, k.axis, sample);
  h.keys_padded = padded(h.keys);
  // A program that does not keep probabilities has room for one head.
  bool keeps = kept.width > 1;
  int64_t place = keeps ? sample * op.heads + head : 0;
  h.probabilities = values_of(work, op.probabilities) + place * most_queries * most_keys;
  h.scratch = values_of(work, op.scratch);
  return h;
}

// A tile of products becomes the softmax of its rows; lanes at and beyond `keys` become 0.
// Every step is taken for all rows before the next: the rows' chains of dependent operations
// overlap, which one row after the other would not.
template <int R, int V>
UNDIVIDED_INLINE void softmax_rows(Vector (&acc)[R][V], float scale, int64_t keys) {
  // The padding is less than kPad floats, so only the last vectors can hold any of it.
  constexpr int kFirst = V > kPad / kLanes ? V - kPad / kLanes : 0;
  float highest[R], share[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    Vector top = fill(-kInfinity);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      acc[r][v] *= scale;
      if (v >= kFirst)
        acc[r][v] = lanes_below(keys - v * kLanes) ? acc[r][v] : fill(-kInfinity);
      top = larger(acc[r][v], top);
    }
    highest[r] = largest(top);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[r][v] = exponential(acc[r][v] - highest[r]);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    Vector total = acc[r][0];
#pragma GCC unroll 4
    for (int v = 1; v < V; ++v) total += acc[r][v];
    share[r] = 1.0f / sum(total);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[r][v] *= share[r];
}

// Scores stay in registers from Q·Kᵀ through the softmax.
template <int R, int V>
__attribute__((noinline)) void softmax_tile(const Head& h, const float* keys_turned, float scale,
                                            int64_t row) {
  Vector acc[R][V] = {};
  multiply<R, V, false>(acc, h.q + row * h.q_stride, h.q_stride, keys_turned, h.keys_padded,
                        h.width);
  softmax_rows<R, V>(acc, scale, h.keys);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      store(h.probabilities + (row + r) * h.keys_padded + v * kLanes, acc[r][v]);
}

// P holds P on entry and dS on return; dP never leaves the registers.
template <int R, int V>
__attribute__((noinline)) void softmax_gradient_tile(const Head& h, const float* dy,
                                                     int64_t dy_stride, const float* values_turned,
                                                     float scale, int64_t row) {
  Vector acc[R][V] = {};
  multiply<R, V, false>(acc, dy + row * dy_stride, dy_stride, values_turned, h.keys_padded,
                        h.value_width);
  float* p = h.probabilities + row * h.keys_padded;
  float mean[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    Vector total{};
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) total += load(p + r * h.keys_padded + v * kLanes) * acc[r][v];
    mean[r] = sum(total);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* at = p + r * h.keys_padded + v * kLanes;
      store(at, load(at) * (acc[r][v] - mean[r]) * scale);
    }
}

// Rows too long for the registers: scores go to memory, and a second pass over each row.
UNDIVIDED_INLINE void softmax_wide(const Head& h, const float* turned, float scale) {
  Product scores{};
  scores.c = h.probabilities;
  scores.ldc = h.keys_padded;
  product<false>(scores, h.queries, h.keys_padded, h.q, h.q_stride, turned, h.keys_padded,
                 h.width);
  for (int64_t row = 0; row < h.queries; ++row) {
    float* p = h.probabilities + row * h.keys_padded;
    Vector top = fill(-kInfinity);
    for (int64_t i = 0; i < h.keys_padded; i += kLanes) {
      Vector score = load(p + i) * scale;
      score = lanes_below(h.keys - i) ? score : fill(-kInfinity);
      store(p + i, score);
      top = larger(score, top);
    }
    float highest = largest(top);
    Vector total{};
    for (int64_t i = 0; i < h.keys_padded; i += kLanes) {
      Vector e = exponential(load(p + i) - highest);
      store(p + i, e);
      total += e;
    }
    float share = 1.0f / sum(total);
    for (int64_t i = 0; i < h.keys_padded; i += kLanes) store(p + i, load(p + i) * share);
  }
}

UNDIVIDED_INLINE void softmax_gradient_wide(const Head& h, const float* dy, int64_t dy_stride,
                                            const float* turned, float scale, float* rows_of_dp) {
  in_tiles(h.queries, most_rows(kMostVectors), [&](int64_t height, int64_t first) {
    Product dp{};
    dp.c = rows_of_dp;
    dp.ldc = h.keys_padded;
    product<false>(dp, height, h.keys_padded, dy + first * dy_stride, dy_stride, turned,
                   h.keys_padded, h.value_width);
    for (int64_t r = 0; r < height; ++r) {
      float* p = h.probabilities + (first + r) * h.keys_padded;
      const float* d = rows_of_dp + r * h.keys_padded;
      Vector total{};
      for (int64_t i = 0; i < h.keys_padded; i += kLanes) total += load(p + i) * load(d + i);
      float mean = sum(total);
      for (int64_t i = 0; i < h.keys_padded; i += kLanes)
        store(p + i, load(p + i) * (load(d + i) - mean) * scale);
    }
  });
}

// C = A·B for the columns of one head. A head whose width is no multiple of kPad shares vectors
// with its neighbour, so its result goes through scratch and only its own columns are copied.
template <bool Turned>
UNDIVIDED_INLINE void head_product(float* to, int64_t to_stride, bool accumulate, int64_t rows,
                                   int64_t width, const float* a, int64_t lda, const float* b,
                                   int64_t ldb, int64_t depth, float* scratch) {
  Product p{};
  int64_t columns = padded(width);
  bool whole = columns == width;
  p.c = whole ? to : scratch;
  p.ldc = whole ? to_stride : columns;
  p.accumulate = whole && accumulate;
  product<Turned>(p, rows, columns, a, lda, b, ldb, depth);
  if (whole) return;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      float value = scratch[r * columns + c];
      float& place = to[r * to_stride + c];
      place = accumulate ? place + value : value;
    }
}

UNDIVIDED_INLINE void attention_forward(const Work& work, const Instruction& op) {
  const Buffer& y = buffer_of(work, op.y);
  float scale = (float)op.scale;
  for (int64_t s = 0; s < work.count; ++s) {
    clear_padding(row_of(work, op.y, start_of(work, y.axis, s)), y, rows_in(work, y.axis, s));
    for (int64_t i = 0; i < op.heads; ++i) {
      Head h = head_of(work, op, s, i);
      float* turned = h.scratch;
      transpose_into(h.k, h.k_stride, h.keys, h.width, turned, h.keys_padded);
      if (h.keys_padded <= kMostVectors * kLanes) {
        with_count<kMostVectors>(h.keys_padded / kLanes, [&](auto vectors) {
          constexpr int V = decltype(vectors)::value;
          in_tiles(h.queries, most_rows(V), [&](int64_t height, int64_t row) {
            with_count<most_rows(V)>(height, [&](auto rows) {
              softmax_tile<decltype(rows)::value, V>(h, turned, scale, row);
            });
          });
        });
      } else {
        softmax_wide(h, turned, scale);
      }
      float* to = row_of(work, op.y, start_of(work, y.axis, s)) + i * h.value_width;
      head_product<false>(to, y.stride, false, h.queries, h.value_width, h.probabilities,
                          h.keys_padded, h.v, h.v_stride, h.keys, turned);
    }
  }
}

UNDIVIDED_INLINE void attention_backward(const Work& work, const Instruction& op) {
  const Buffer& dy = buffer_of(work, op.dy);
  float scale = (float)op.scale;
  auto begin_sample = [&](int64_t buffer, int64_t sample, bool accumulate) {
    if (buffer < 0 || accumulate) return;
    const Buffer& b = buffer_of(work, buffer);
    clear_padding(row_of(work, buffer, start_of(work, b.axis, sample)), b,
                  rows_in(work, b.axis, sample));
  };
  for (int64_t s = 0; s < work.count; ++s) {
    begin_sample(op.dx, s, op.accumulate_x);
    begin_sample(op.dz, s, op.accumulate_z);
    begin_sample(op.dv, s, op.accumulate_v);
    for (int64_t i = 0; i < op.heads; ++i) {
      Head h = head_of(work, op, s, i);
      const float* d = row_of(work, op.dy, start_of(work, dy.axis, s)) + i * h.value_width;
      // The columns of this head in the gradient of one input, from the sample's first row.
      auto rows_for = [&](int64_t buffer, int64_t width) {
        int64_t first = start_of(work, buffer_of(work, buffer).axis, s);
        return row_of(work, buffer, first) + i * width;
      };
      if (op.dv >= 0)
        head_product<true>(rows_for(op.dv, h.value_width), buffer_of(work, op.dv).stride,
                           op.accumulate_v, h.keys, h.value_width, h.probabilities,
                           h.keys_padded, d, dy.stride, h.queries, h.scratch);
      if (op.dx < 0 && op.dz < 0) continue;

      float* turned = h.scratch;
      transpose_into(h.v, h.v_stride, h.keys, h.value_width, turned, h.keys_padded);
      if (h.keys_padded <= kMostVectors * kLanes) {
        with_count<kMostVectors>(h.keys_padded / kLanes, [&](auto vectors) {
          constexpr int V = decltype(vectors)::value;
          in_tiles(h.queries, most_rows(V), [&](int64_t height, int64_t row) {
            with_count<most_rows(V)>(height, [&](auto rows) {
              softmax_gradient_tile<decltype(rows)::value, V>(h, d, dy.stride, turned, scale, row);
            });
          });
        });
      } else {
        softmax_gradient_wide(h, d, dy.stride, turned, scale,
                              turned + h.value_width * h.keys_padded);
      }

      if (op.dx >= 0)
        head_product<false>(rows_for(op.dx, h.width), buffer_of(work, op.dx).stride,
                            op.accumulate_x, h.queries, h.width, h.probabilities, h.keys_padded,
                            h.k, h.k_stride, h.keys, h.scratch);
      if (op.dz >= 0)
        head_product<true>(rows_for(op.dz, h.width), buffer_of(work, op.dz).stride,
                           op.accumulate_z, h.keys, h.width, h.probabilities, h.keys_padded, h.q,
                           h.q_stride, h.queries, h.scratch);
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
