// Linear attention: y = A·V / n for each head, with the weights A = φ(Q)·φ(K)ᵀ, their sums n, and
// φ(x) = elu(x) + 1. A is never there: a state holds what keys give, and every query reads it.
//
// S queries, T keys, D the width of queries and keys in a head, F that of values. Ones stand beside
// the values, V' = [V, 1], and the divisor's gradient beside that of the mean, G' = [dY/n, −δ] with
// δ = rowsum(dY/n ∘ Y), so that numerator and divisor go through the same products:
//   state = V'ᵀ·φ(K)    [Y∘n, n] = φ(Q)·stateᵀ    dφ(Q) = G'·state
//   given = G'ᵀ·φ(Q)    dφ(K) = V'·given          dV = φ(K)·givenᵀ, without its last column
//
// Causal, the state grows with every chunk of rows, which see each other through a triangle of
// weights; `given` grows from the last chunk to the first. Heads that share keys and values share
// their state. Of the way forward n alone is kept.
#pragma once

#include "attention_layer.h"

namespace undivided::UNDIVIDED_SET {

// Rows that go together. More cost work in the triangle, fewer cost passes over the state.
constexpr int64_t kChunk = 64;

// Room for a state and a chunk of rows. `width` and `value_width` are padded: the rows of what is
// as wide as queries, and as values with their ones.
struct LinearRoom {
  int64_t width, value_width;
  float *state, *turned;  // [F + 1][width]; its transpose [D][value_width]; or those of `given`
  float *q, *k;           // features [rows][width]
  float *v, *g;           // V' and G', [rows][value_width]
  float* cells;           // a triangle of A or dA, [rows][rows padded]
  float* columns;         // an operand transposed, [D or F + 1][rows padded]
  float *wide, *values;   // results [rows][width] and [rows][F padded]
};

UNDIVIDED_INLINE LinearRoom room_of(const Head<float>& h) {
  LinearRoom room{};
  float* at = h.scratch;
  auto take = [&](int64_t floats) { return at += floats, at - floats; };
  room.width = padded(h.width);
  room.value_width = padded(h.value_width + 1);
  room.state = take((h.value_width + 1) * room.width);
  room.turned = take(h.width * room.value_width);
  room.q = take(kChunk * room.width);
  room.k = take(kChunk * room.width);
  room.v = take(kChunk * room.value_width);
  room.g = take(kChunk * room.value_width);
  room.cells = take(kChunk * kChunk);
  room.columns = take(kChunk * (h.width > h.value_width ? h.width : h.value_width + 1));
  room.wide = take(kChunk * room.width);
  room.values = take(kChunk * room.value_width);
  return room;
}

UNDIVIDED_INLINE int64_t rows_from(int64_t row, int64_t rows) {
  return rows - row < kChunk ? rows - row : kChunk;
}

// φ and its slope, which is min(φ, 1): 1 above 0 and exp(x) below. NaN stays NaN.
UNDIVIDED_INLINE Vector feature(Vector x) { return x > 0.0f ? x + 1.0f : exponential(x); }
UNDIVIDED_INLINE Vector feature_slope(Vector phi) { return phi > 1.0f ? fill(1.0f) : phi; }

template <bool Turned>
__attribute__((noinline)) void times(float* to, int64_t to_stride, bool accumulate, int64_t rows,
                                     int64_t columns, const float* a, int64_t lda, const float* b,
                                     int64_t ldb, int64_t depth) {
  Product<float> p{};
  p.c = to;
  p.ldc = to_stride;
  p.accumulate = accumulate;
  product<Turned>(p, rows, columns, a, lda, b, ldb, depth);
}

// The features of a chunk of rows, the columns of one head.
UNDIVIDED_INLINE void take_features(const float* from, int64_t stride, int64_t count,
                                    int64_t width, float* to) {
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < padded(width); c += kLanes)
      store(to + r * padded(width) + c,
            lanes_below(width - c) ? feature(load(from + r * stride + c)) : Vector{});
}
UNDIVIDED_INLINE void take_queries(const Head<float>& h, const LinearRoom& room, int64_t row,
                                   int64_t count) {
  take_features(h.q + row * h.q_stride, h.q_stride, count, h.width, room.q);
}
// φ(K) and V'.
UNDIVIDED_INLINE void take_keys(const Head<float>& h, const LinearRoom& room, int64_t row,
                                int64_t count) {
  take_features(h.k + row * h.k_stride, h.k_stride, count, h.width, room.k);
  for (int64_t r = 0; r < count; ++r) {
    const float* from = h.v + (row + r) * h.v_stride;
    float* to = room.v + r * room.value_width;
    for (int64_t c = 0; c < room.value_width; c += kLanes)
      store(to + c, lanes_below(h.value_width - c) ? load(from + c) : Vector{});
    to[h.value_width] = 1;
  }
}
// G', from what came back to a head and what it gave.
UNDIVIDED_INLINE void take_gradients(const Head<float>& h, const LinearRoom& room,
                                     const float* dy, int64_t dy_stride, const float* y,
                                     int64_t y_stride, int64_t row, int64_t count) {
  for (int64_t r = 0; r < count; ++r) {
    const float *above = dy + (row + r) * dy_stride, *given = y + (row + r) * y_stride;
    float *to = room.g + r * room.value_width, n = h.probabilities[row + r];
    Vector delta{};
    for (int64_t c = 0; c < room.value_width; c += kLanes) {
      Whole counts = lanes_below(n == 0 ? 0 : h.value_width - c);  // no weights, no gradient
      Vector mean = counts ? load(above + c) / n : Vector{};
      delta += counts ? mean * load(given + c) : Vector{};
      store(to + c, mean);
    }
    to[h.value_width] = -sum(delta);
  }
}

UNDIVIDED_INLINE void clear_state(const Head<float>& h, const LinearRoom& room) {
  for (int64_t i = 0; i < (h.value_width + 1) * room.width; i += kLanes)
    store(room.state + i, Vector{});
}
UNDIVIDED_INLINE void turn_state(const Head<float>& h, const LinearRoom& room) {
  transpose_into(room.state, room.width, h.value_width + 1, h.width, room.turned,
                 room.value_width);
}
// state += V'ᵀ·φ(K), or given += G'ᵀ·φ(Q).
UNDIVIDED_INLINE void add_to_state(const Head<float>& h, const LinearRoom& room,
                                   const float* values, const float* features, int64_t count) {
  times<true>(room.state, room.width, true, h.value_width + 1, room.width, values,
              room.value_width, features, room.width, count);
}
UNDIVIDED_INLINE void add_all_keys(const Head<float>& h, const LinearRoom& room) {
  for (int64_t row = 0; row < h.keys; row += kChunk) {
    int64_t count = rows_from(row, h.keys);
    take_keys(h, room, row, count);
    add_to_state(h, room, room.v, room.k, count);
  }
}

// cells = left·rightᵀ, of rows that have the same stride.
UNDIVIDED_INLINE void meet(const LinearRoom& room, const float* left, int64_t rows,
                           const float* right, int64_t count, int64_t stride, int64_t depth) {
  transpose_into(right, stride, count, depth, room.columns, padded(count));
  times<false>(room.cells, padded(count), false, rows, padded(count), left, stride,
               room.columns, padded(count), depth);
}
// The same within a chunk: nobody meets what comes later.
UNDIVIDED_INLINE void meet_earlier(const LinearRoom& room, const float* left, const float* right,
                                   int64_t count, int64_t stride, int64_t depth) {
  meet(room, left, count, right, count, stride, depth);
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = (r + 1) / kLanes * kLanes; c < padded(count); c += kLanes) {
      float* at = room.cells + r * padded(count) + c;
      store(at, lanes_below(r + 1 - c) ? load(at) : Vector{});
    }
}
// to += cells·rows, or cellsᵀ·rows. What is not finite is passed over where it comes later.
template <bool Turned>
UNDIVIDED_INLINE void add_from_cells(const LinearRoom& room, float* to, int64_t to_stride,
                                     int64_t columns, const float* rows, int64_t stride,
                                     int64_t count) {
  if (all_finite(rows, stride, count, stride))
    return times<Turned>(to, to_stride, true, count, columns, room.cells, padded(count), rows,
                         stride, count);
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < columns; c += kLanes) {
      Vector total{};
      for (int64_t t = Turned ? r : 0; t < (Turned ? count : r + 1); ++t)
        total += room.cells[Turned ? t * padded(count) + r : r * padded(count) + t] *
                 load(rows + t * stride + c);
      give(to + r * to_stride + c, total, true);
    }
}

// A chunk of queries reads the state, and causally its own rows.
UNDIVIDED_INLINE void read_state(const Head<float>& h, const LinearRoom& room, bool causal,
                                 int64_t row, int64_t count, float* to, int64_t to_stride) {
  const float* sums = room.state + h.value_width * room.width;
  int64_t columns = padded(h.value_width);
  take_queries(h, room, row, count);
  times<false>(room.values, columns, false, count, columns, room.q, room.width,
               room.turned, room.value_width, h.width);
  if (causal) {
    meet_earlier(room, room.q, room.k, count, room.width, h.width);
    add_from_cells<false>(room, room.values, columns, columns, room.v, room.value_width, count);
  }
  for (int64_t r = 0; r < count; ++r) {
    Vector total{};
    for (int64_t c = 0; c < room.width; c += kLanes)
      total += load(room.q + r * room.width + c) * load(sums + c);
    for (int64_t t = 0; causal && t < padded(count); t += kLanes)
      total += load(room.cells + r * padded(count) + t);
    float n = h.probabilities[row + r] = sum(total);
    for (int64_t c = 0; c < columns; c += kLanes) {
      float* at = room.values + r * columns + c;
      store(at, n == 0 ? Vector{} : load(at) / n);
    }
  }
  add_columns(to + row * to_stride, to_stride, false, room.values, count, h.value_width);
}

UNDIVIDED_INLINE void linear_attention_forward(const Work& work, const Instruction& op) {
  const Buffer& y = buffer_of(work, op.y);
  int64_t together = op.heads / heads_of_keys(op);  // heads that share keys and values
  for (int64_t s = 0; s < work.count; ++s) {
    float* to = row_of(work, op.y, start_of(work, y.axis, s));
    clear_padding(to, y, rows_in(work, y.axis, s));
    for (int64_t first = 0; first < op.heads; first += together) {
      Head<float> h = head_of(work, op, s, first);
      LinearRoom room = room_of(h);
      clear_state(h, room);
      if (!op.causal) add_all_keys(h, room);
      for (int64_t row = 0; row < h.queries; row += kChunk) {
        int64_t count = rows_from(row, h.queries);
        if (op.causal) take_keys(h, room, row, count);
        if (op.causal || row == 0) turn_state(h, room);
        for (int64_t i = first; i < first + together; ++i)
          read_state(head_of(work, op, s, i), room, op.causal, row, count,
                     to + i * h.value_width, y.stride);
        if (op.causal) add_to_state(h, room, room.v, room.k, count);
      }
    }
  }
}

// rows ∘= slope, and 0 where a row took no part.
UNDIVIDED_INLINE void through_features(const LinearRoom& room, const float* features,
                                       int64_t row, bool took_part) {
  for (int64_t c = 0; c < room.width; c += kLanes) {
    float* at = room.wide + row * room.width + c;
    Vector slope = feature_slope(load(features + row * room.width + c));
    store(at, took_part ? load(at) * slope : Vector{});
  }
}

// Where the gradients of the heads of one sample go, and what they come from.
struct LinearGradients {
  const float *dy, *y;
  int64_t dy_stride, y_stride;
  float *dq, *dk, *dv;  // null where nobody asks
  int64_t dq_stride, dk_stride, dv_stride;
};

// Reads a chunk of queries of head i again, and what comes back to it.
UNDIVIDED_INLINE void take_back(const Head<float>& h, const LinearRoom& room,
                                const LinearGradients& g, int64_t i, int64_t row, int64_t count) {
  take_queries(h, room, row, count);
  take_gradients(h, room, g.dy + i * h.value_width, g.dy_stride, g.y + i * h.value_width,
                 g.y_stride, row, count);
}

// dQ: the state grows as it did on the way forward.
UNDIVIDED_INLINE void back_to_queries(const Work& work, const Instruction& op, int64_t s,
                                      int64_t first, int64_t together, const LinearGradients& g) {
  Head<float> h = head_of(work, op, s, first);
  LinearRoom room = room_of(h);
  clear_state(h, room);
  if (!op.causal) add_all_keys(h, room);
  for (int64_t row = 0; row < h.queries; row += kChunk) {
    int64_t count = rows_from(row, h.queries);
    if (op.causal) take_keys(h, room, row, count);
    for (int64_t i = first; i < first + together; ++i) {
      Head<float> head = head_of(work, op, s, i);
      take_back(head, room, g, i, row, count);
      times<false>(room.wide, room.width, false, count, room.width, room.g,
                   room.value_width, room.state, room.width, h.value_width + 1);
      if (op.causal) {
        meet_earlier(room, room.g, room.v, count, room.value_width, h.value_width + 1);
        add_from_cells<false>(room, room.wide, room.width, room.width, room.k, room.width, count);
      }
      for (int64_t r = 0; r < count; ++r)
        through_features(room, room.q, r, head.probabilities[row + r] != 0);
      add_columns(g.dq + row * g.dq_stride + i * h.width, g.dq_stride, op.accumulate_x, room.wide,
                  count, h.width);
    }
    if (op.causal) add_to_state(h, room, room.v, room.k, count);
  }
}

// dK and dV: what queries give back is gathered from the last to the first.
UNDIVIDED_INLINE void back_to_keys(const Work& work, const Instruction& op, int64_t s,
                                   int64_t first, int64_t together, const LinearGradients& g) {
  Head<float> h = head_of(work, op, s, first);
  LinearRoom room = room_of(h);
  int64_t key_head = first / together, columns = padded(h.value_width);
  int64_t live = 0;  // behind the last query that has weights
  for (int64_t i = first; i < first + together; ++i) {
    const float* n = head_of(work, op, s, i).probabilities;
    for (int64_t row = h.queries; row > live; --row)
      if (n[row - 1] != 0) live = row;
  }
  clear_state(h, room);
  for (int64_t i = first; i < first + together && !op.causal; ++i)
    for (int64_t row = 0; row < h.queries; row += kChunk) {
      int64_t count = rows_from(row, h.queries);
      take_back(head_of(work, op, s, i), room, g, i, row, count);
      add_to_state(h, room, room.g, room.q, count);
    }
  int64_t reached = op.causal ? live : live > 0 ? h.keys : 0;
  int64_t chunks = (h.keys + kChunk - 1) / kChunk;
  for (int64_t row = (chunks - 1) * kChunk; row >= 0; row -= kChunk) {
    int64_t count = rows_from(row, h.keys);
    take_keys(h, room, row, count);
    if (op.causal || row == (chunks - 1) * kChunk) turn_state(h, room);
    times<false>(room.wide, room.width, false, count, room.width, room.v, room.value_width,
                 room.state, room.width, h.value_width + 1);
    times<false>(room.values, columns, false, count, columns, room.k, room.width,
                 room.turned, room.value_width, h.width);
    for (int64_t i = first; i < first + together && op.causal; ++i) {
      take_back(head_of(work, op, s, i), room, g, i, row, count);
      meet_earlier(room, room.g, room.v, count, room.value_width, h.value_width + 1);
      add_from_cells<true>(room, room.wide, room.width, room.width, room.q, room.width, count);
      meet_earlier(room, room.q, room.k, count, room.width, h.width);
      add_from_cells<true>(room, room.values, columns, columns, room.g, room.value_width, count);
      add_to_state(h, room, room.g, room.q, count);
    }
    for (int64_t r = 0; r < count; ++r) {
      through_features(room, room.k, r, row + r < reached);
      for (int64_t c = 0; c < columns && row + r >= reached; c += kLanes)
        store(room.values + r * columns + c, Vector{});
    }
    if (g.dk)
      add_columns(g.dk + row * g.dk_stride + key_head * h.width, g.dk_stride, op.accumulate_z,
                  room.wide, count, h.width);
    if (g.dv)
      add_columns(g.dv + row * g.dv_stride + key_head * h.value_width, g.dv_stride,
                  op.accumulate_v, room.values, count, h.value_width);
  }
}

UNDIVIDED_INLINE void linear_attention_backward(const Work& work, const Instruction& op) {
  int64_t together = op.heads / heads_of_keys(op);
  for (int64_t s = 0; s < work.count; ++s) {
    LinearGradients g{};
    // The rows of a sample in the gradient of one input, their padding cleared.
    auto rows_at = [&](int64_t buffer, bool accumulate, float*& at, int64_t& stride) {
      if (buffer < 0) return;
      const Buffer& b = buffer_of(work, buffer);
      at = row_of(work, buffer, start_of(work, b.axis, s));
      stride = b.stride;
      if (!accumulate) clear_padding(at, b, rows_in(work, b.axis, s));
    };
    const Buffer &dy = buffer_of(work, op.dy), &y = buffer_of(work, op.y);
    g.dy = row_of(work, op.dy, start_of(work, dy.axis, s));
    g.y = row_of(work, op.y, start_of(work, y.axis, s));
    g.dy_stride = dy.stride;
    g.y_stride = y.stride;
    rows_at(op.dx, op.accumulate_x, g.dq, g.dq_stride);
    rows_at(op.dz, op.accumulate_z, g.dk, g.dk_stride);
    rows_at(op.dv, op.accumulate_v, g.dv, g.dv_stride);
    for (int64_t first = 0; first < op.heads; first += together) {
      if (g.dq) back_to_queries(work, op, s, first, together, g);
      if (g.dk || g.dv) back_to_keys(work, op, s, first, together, g);
    }
  }
}

// A/n [heads][queries][keys] of each sample, for those who ask.
UNDIVIDED_INLINE void store_linear_weights(const Work& work, const Instruction& op) {
  for (int64_t s = 0; s < work.count; ++s) {
    float* to = output_of(work, op.slot, work.members[s]);
    for (int64_t i = 0; i < op.heads; ++i) {
      Head<float> h = head_of(work, op, s, i);
      LinearRoom room = room_of(h);
      for (int64_t row = 0; row < h.queries; row += kChunk)
        for (int64_t key = 0; key < h.keys; key += kChunk) {
          int64_t rows = rows_from(row, h.queries), count = rows_from(key, h.keys);
          take_queries(h, room, row, rows);
          take_features(h.k + key * h.k_stride, h.k_stride, count, h.width, room.k);
          meet(room, room.q, rows, room.k, count, room.width, h.width);
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t t = 0; t < count; ++t) {
              float n = h.probabilities[row + r];
              bool sees = n != 0 && (!op.causal || key + t <= row + r);
              to[(row + r) * h.keys + key + t] = sees ? room.cells[r * padded(count) + t] / n : 0;
            }
        }
      to += h.queries * h.keys;
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
