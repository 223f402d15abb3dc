// Attention: y = P·V with P = softmax(Q·Kᵀ·scale), one head of one sample, whole rows of P at once.
//
// S queries, T keys, D the width of a head. P is kept, [S][T padded]; its padding is 0. In the
// forward pass each row of P was a softmax of scaled scores, so with dP = dY·Vᵀ:
//   dV = Pᵀ·dY    dS = P ∘ (dP − Σ_T dP ∘ P)·scale    dQ = dS·K    dK = dSᵀ·Q
// dS may take the place of P, which nothing needs any more then. `attention_tiles.h` is the form for rows
// too long to keep. Heads in which everything is allowed have no rules and are spared them.
#pragma once

#include "matrix.h"
#include "rules.h"

namespace undivided::UNDIVIDED_SET {

template <class T>
struct Head {
  const T *q, *k, *v;
  int64_t q_stride, k_stride, v_stride;
  int64_t queries, keys, keys_padded;
  int64_t width, value_width;
  T scale;
  int64_t stride;  // of a row of P, at least keys_padded
  T* probabilities;
  T* d_scores;            // where dS goes in backward: it may take the place of P
  T* scratch;             // transposed keys or values first, then one result or a few rows of dP
  T* lse;                 // log Σ exp of each row's scores, or null
  const Rules<T>* rules;  // null where everything is allowed
  const T* sink;          // one more score, whose weight nobody gets, or null
  int64_t first_row;      // which row of the sample q begins with: rules count from there
  bool careful;           // some input is NaN or infinite, and not everything is allowed
  bool alone;             // it has its rows for itself, with their padding up to whole vectors
};

// Keys (or values) transposed, in tiles of 64 columns that lie one behind the other.
template <class T>
struct Turned {
  const T* at;
  int64_t width, stride;
  UNDIVIDED_INLINE const T* column(int64_t key) const {
    return at + key / kTile * (width * kTile) + key % kTile;
  }
};

template <class T>
UNDIVIDED_INLINE Turned<T> turn(const T* rows, int64_t stride, int64_t count, int64_t padded_count,
                                int64_t width, T* to) {
  int64_t columns = padded_count < kTile ? padded_count : kTile;
  for (int64_t key = 0; key < count; key += kTile)
    transpose_into(rows + key * stride, stride, count - key < kTile ? count - key : kTile, width,
                   to + key * width, columns);
  return {to, width, columns};
}

// A tile of products becomes scores. Where there are rules it goes through memory, `at`; else
// only what lies at and beyond `keys` becomes −∞.
template <int R, int V, class T>
UNDIVIDED_INLINE void scores_of(VectorOf<T> (&acc)[R][V], const Head<T>& h, int64_t row,
                                int64_t column, T* at, int64_t stride) {
  constexpr int L = lanes_of<T>;
  if (h.rules) {
    uint64_t bits[R];
    for (int r = 0; r < R; ++r)
      bits[r] = allowed_bits(*h.rules, h.first_row + row + r, column / kTile);
    if (!h.rules->bias && h.rules->softcap == 0) {  // they say who sees whom, and no more
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v)
          acc[r][v] = lanes_of_bits(bits[r] >> (column % kTile + v * L), acc[r][v])
                          ? acc[r][v] * h.scale
                          : fill(T(-kInfinity));
      return;
    }
    store_tile<R, V>(acc, at, stride);
    apply_rules(*h.rules, h.scale, bits, R, h.first_row + row, column, V * L, at, stride);
    load_tile<R, V>(acc, at, stride);
    return;
  }
  // The padding is less than kPad floats, so only the last vectors can hold any of it.
  constexpr int kFirst = V > kPad / L ? V - kPad / L : 0;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      acc[r][v] *= h.scale;
      if (v >= kFirst) {
        int64_t left = h.keys - column - v * L;
        uint64_t bits = left >= L ? kAll : left > 0 ? kAll >> (64 - left) : 0;
        acc[r][v] = lanes_of_bits(bits, acc[r][v]) ? acc[r][v] : fill(T(-kInfinity));
      }
    }
}

// What a row's largest score and its sum of exponentials, a sink's included, make of it: the
// factor that turns exponentials into weights (0 where nothing is allowed), and its lse.
template <class T>
UNDIVIDED_INLINE T share_of(T total) {
  return total == 0 ? T(0) : T(1) / total;
}
UNDIVIDED_INLINE float logarithm(float x) { return __builtin_logf(x); }
UNDIVIDED_INLINE double logarithm(double x) { return __builtin_log(x); }

// Exponents are taken from the largest score; a row without any takes them from 0, and one in which
// NaN hides the largest too.
template <class T>
UNDIVIDED_INLINE T base_of(T largest_score) {
  return largest_score > T(-kInfinity) ? largest_score : T(0);
}
template <class T>
UNDIVIDED_INLINE T with_sink(const T* sink, T top) {
  return sink && *sink > top ? *sink : top;
}
template <class T>
UNDIVIDED_INLINE T plus_sink(const T* sink, T total, T base) {
  return sink ? total + exponential(fill(*sink - base))[0] : total;
}

// What is not allowed has a weight of 0 also in a row whose sum is NaN.
template <class V, class T>
UNDIVIDED_INLINE V weight_of(V exponentials, T share, bool ruled) {
  V weights = exponentials * share;
  return !ruled ? weights : exponentials == T(0) ? V{} : weights;
}

// Every step is taken for all rows before the next: the rows' chains of dependent operations
// overlap, which one row after the other would not.
template <int R, int V, class T>
UNDIVIDED_INLINE void softmax_rows(VectorOf<T> (&acc)[R][V], const T* sink, bool ruled, T* lse) {
  T base[R], total[R], share[R];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    VectorOf<T> top = acc[r][0];
#pragma GCC unroll 4
    for (int v = 1; v < V; ++v) top = larger(acc[r][v], top);
    base[r] = base_of(with_sink(sink, largest(top)));
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[r][v] = exponential(acc[r][v] - base[r]);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    VectorOf<T> sums = acc[r][0];
#pragma GCC unroll 4
    for (int v = 1; v < V; ++v) sums += acc[r][v];
    total[r] = plus_sink(sink, sum(sums), base[r]);
    share[r] = share_of(total[r]);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) acc[r][v] = weight_of(acc[r][v], share[r], ruled);
  if (lse)
    for (int r = 0; r < R; ++r) lse[r] = base[r] + logarithm(total[r]);
}

// Scores stay in registers from Q·Kᵀ through the softmax.
template <int R, int V, class T>
__attribute__((noinline)) void softmax_tile(const Head<T>& h, const Turned<T>& keys, int64_t row) {
  VectorOf<T> acc[R][V] = {};
  multiply<R, V, false>(acc, h.q + row * h.q_stride, h.q_stride, keys.at, keys.stride, h.width);
  scores_of<R, V>(acc, h, row, 0, h.probabilities + row * h.stride, h.stride);
  softmax_rows<R, V>(acc, h.sink, h.rules != nullptr, h.lse ? h.lse + row : nullptr);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      store(h.probabilities + (row + r) * h.stride + v * lanes_of<T>, acc[r][v]);
}

// dS from P; dP never leaves the registers. Where nothing was allowed P is 0, and so is dS,
// whatever dP is there.
template <int R, int V, class T>
__attribute__((noinline)) void softmax_gradient_tile(const Head<T>& h, const T* dy,
                                                     int64_t dy_stride, const Turned<T>& values,
                                                     int64_t row) {
  constexpr int L = lanes_of<T>;
  VectorOf<T> acc[R][V] = {};
  multiply<R, V, false>(acc, dy + row * dy_stride, dy_stride, values.at, values.stride,
                        h.value_width);
  const T* p = h.probabilities + row * h.stride;
  T* ds = h.d_scores + row * h.stride;
  T mean[R];
  if (h.rules) {  // NaN and infinity there are nobody's
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        acc[r][v] = load(p + r * h.stride + v * L) != T(0) ? acc[r][v] : VectorOf<T>{};
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    VectorOf<T> total{};
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      total += load(p + r * h.stride + v * L) * acc[r][v];
    mean[r] = sum(total);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      acc[r][v] = load(p + r * h.stride + v * L) * (acc[r][v] - mean[r]);
      if (h.rules) acc[r][v] = load(p + r * h.stride + v * L) != T(0) ? acc[r][v] : VectorOf<T>{};
    }
  if (h.rules && h.rules->d_bias) {
    store_tile<R, V>(acc, ds, h.stride);
    add_bias_gradient(*h.rules, R, h.first_row + row, 0, V * L, (const T*)ds, h.stride);
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(ds + r * h.stride + v * L, acc[r][v] * h.scale);
}

// Rows too long for the registers: their scores go to memory, and a second pass over each row.
template <int R, class T>
__attribute__((noinline)) void softmax_long_rows(const Head<T>& h, const Turned<T>& keys,
                                                 int64_t row) {
  constexpr int L = lanes_of<T>;
  T* p = h.probabilities + row * h.stride;
  VectorOf<T> top[R];
  for (int r = 0; r < R; ++r) top[r] = fill(T(-kInfinity));
  for (int64_t column = 0; column < h.keys_padded; column += kMostVectors * L) {
    int64_t left = (h.keys_padded - column) / L;
    with_count<kMostVectors>(left < kMostVectors ? left : kMostVectors, [&](auto vectors) {
      constexpr int V = decltype(vectors)::value;
      VectorOf<T> acc[R][V] = {};
      multiply<R, V, false>(acc, h.q + row * h.q_stride, h.q_stride, keys.column(column),
                            keys.stride, h.width);
      scores_of<R, V>(acc, h, row, column, p + column, h.stride);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
          top[r] = larger(acc[r][v], top[r]);
          store(p + r * h.stride + column + v * L, acc[r][v]);
        }
    });
  }
  for (int r = 0; r < R; ++r) {
    T* to = p + r * h.stride;
    T base = base_of(with_sink(h.sink, largest(top[r])));
    VectorOf<T> sums{};
    for (int64_t i = 0; i < h.keys_padded; i += L) {
      VectorOf<T> e = exponential(load(to + i) - base);
      store(to + i, e);
      sums += e;
    }
    T total = plus_sink(h.sink, sum(sums), base);
    T share = share_of(total);
    for (int64_t i = 0; i < h.keys_padded; i += L)
      store(to + i, weight_of(load(to + i), share, h.rules != nullptr));
    if (h.lse) h.lse[row + r] = base + logarithm(total);
  }
}

template <class T>
UNDIVIDED_INLINE void softmax_gradient_long_rows(const Head<T>& h, const T* dy, int64_t dy_stride,
                                                 const Turned<T>& values, T* rows_of_dp) {
  constexpr int L = lanes_of<T>;
  in_tiles(h.queries, most_rows(kMostVectors), [&](int64_t height, int64_t first) {
    for (int64_t column = 0; column < h.keys_padded; column += kTile) {
      Product<T> dp{};
      dp.c = rows_of_dp + column;
      dp.ldc = h.keys_padded;
      int64_t columns = h.keys_padded - column < kTile ? h.keys_padded - column : kTile;
      product<false>(dp, height, columns, dy + first * dy_stride, dy_stride,
                     values.column(column), values.stride, h.value_width);
    }
    for (int64_t r = 0; r < height; ++r) {
      const T* p = h.probabilities + (first + r) * h.stride;
      T* ds = h.d_scores + (first + r) * h.stride;
      const T* d = rows_of_dp + r * h.keys_padded;
      auto of = [&](VectorOf<T> weight, VectorOf<T> v) {
        return !h.rules ? v : weight != T(0) ? v : VectorOf<T>{};
      };
      VectorOf<T> total{};
      for (int64_t i = 0; i < h.keys_padded; i += L)
        total += load(p + i) * of(load(p + i), load(d + i));
      T mean = sum(total);
      for (int64_t i = 0; i < h.keys_padded; i += L)
        store(ds + i, of(load(p + i), load(p + i) * (load(d + i) - mean)));
      if (h.rules && h.rules->d_bias)
        add_bias_gradient(*h.rules, 1, h.first_row + first + r, 0, h.keys_padded, (const T*)ds, 0);
      for (int64_t i = 0; i < h.keys_padded; i += L) store(ds + i, load(ds + i) * h.scale);
    }
  });
}

// C = A·B for the columns of one head. A head whose width is no multiple of kPad shares vectors
// with its neighbour, so its result goes through scratch and only its own columns are copied,
// unless it is `alone`: then its padding gets what B has there, which is 0.
template <bool Turn, class T>
UNDIVIDED_INLINE void head_product(T* to, int64_t to_stride, bool accumulate, bool careful,
                                   int64_t rows, int64_t width, const T* a, int64_t lda,
                                   const T* b, int64_t ldb, int64_t depth, T* scratch,
                                   bool alone) {
  Product<T> p{};
  int64_t columns = (width + kPad - 1) / kPad * kPad;
  bool whole = alone || columns == width;
  p.c = whole ? to : scratch;
  p.ldc = whole ? to_stride : columns;
  p.accumulate = whole && accumulate;
  p.careful = careful;
  product<Turn>(p, rows, columns, a, lda, b, ldb, depth);
  if (whole) return;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      T value = scratch[r * columns + c];
      T& place = to[r * to_stride + c];
      place = accumulate ? place + value : value;
    }
}

// P of all rows of the head, from keys that are transposed already.
template <class T>
UNDIVIDED_INLINE void weights_of(const Head<T>& h, const Turned<T>& keys) {
  if (h.keys_padded <= kMostVectors * lanes_of<T>) {
    with_count<kMostVectors>(h.keys_padded / lanes_of<T>, [&](auto vectors) {
      constexpr int V = decltype(vectors)::value;
      in_tiles(h.queries, most_rows(V), [&](int64_t height, int64_t row) {
        with_count<most_rows(V)>(height, [&](auto rows) {
          softmax_tile<decltype(rows)::value, V>(h, keys, row);
        });
      });
    });
  } else {
    in_tiles(h.queries, most_rows(kMostVectors), [&](int64_t height, int64_t row) {
      with_count<most_rows(kMostVectors)>(height, [&](auto rows) {
        softmax_long_rows<decltype(rows)::value>(h, keys, row);
      });
    });
  }
}

template <class T>
UNDIVIDED_INLINE void head_forward(const Head<T>& h, T* to, int64_t to_stride) {
  weights_of(h, turn(h.k, h.k_stride, h.keys, h.keys_padded, h.width, h.scratch));
  head_product<false>(to, to_stride, false, h.careful, h.queries, h.value_width, h.probabilities,
                      h.stride, h.v, h.v_stride, h.keys, h.scratch, h.alone);
}

// Where the gradients of one head go, and whether they are added to what is there.
template <class T>
struct HeadGradients {
  const T* dy;
  int64_t dy_stride;
  T *dq, *dk, *dv;  // null where nobody asks
  int64_t dq_stride, dk_stride, dv_stride;
  bool add_q, add_k, add_v;
};

template <class T>
UNDIVIDED_INLINE void head_backward(const Head<T>& h, const HeadGradients<T>& g) {
  if (g.dv)
    head_product<true>(g.dv, g.dv_stride, g.add_v, h.careful, h.keys, h.value_width,
                       h.probabilities, h.stride, g.dy, g.dy_stride, h.queries, h.scratch,
                       h.alone);
  bool wants_bias = h.rules && h.rules->d_bias;
  if (!g.dq && !g.dk && !wants_bias) return;

  Turned<T> values = turn(h.v, h.v_stride, h.keys, h.keys_padded, h.value_width, h.scratch);
  if (h.keys_padded <= kMostVectors * lanes_of<T>) {
    with_count<kMostVectors>(h.keys_padded / lanes_of<T>, [&](auto vectors) {
      constexpr int V = decltype(vectors)::value;
      in_tiles(h.queries, most_rows(V), [&](int64_t height, int64_t row) {
        with_count<most_rows(V)>(height, [&](auto rows) {
          softmax_gradient_tile<decltype(rows)::value, V>(h, g.dy, g.dy_stride, values,
                                                                 row);
        });
      });
    });
  } else {
    int64_t tiles = (h.keys + kTile - 1) / kTile;
    softmax_gradient_long_rows(h, g.dy, g.dy_stride, values,
                                      h.scratch + h.value_width * tiles * kTile);
  }

  if (g.dq)
    head_product<false>(g.dq, g.dq_stride, g.add_q, h.careful, h.queries, h.width,
                        h.d_scores, h.stride, h.k, h.k_stride, h.keys, h.scratch, h.alone);
  if (g.dk)
    head_product<true>(g.dk, g.dk_stride, g.add_k, h.careful, h.keys, h.width, h.d_scores,
                       h.stride, h.q, h.q_stride, h.queries, h.scratch, h.alone);
}

}  // namespace undivided::UNDIVIDED_SET
