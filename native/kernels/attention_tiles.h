// Attention over long rows: keys in tiles of 64, the softmax as it goes, memory linear in S.
//
// Forward keeps for each row its largest score m so far, the sum l of exp(score − m), and the
// values weighted by the same: a tile with a larger score multiplies what is there by
// exp(m − m'). At the end y = values/l and lse = m + log l. Backward finds P = exp(score − lse)
// again, tile by tile, with Δ = rowsum(dO ∘ O):
//   dV += P̃ᵀ·dO    dS = P ∘ (dP − Δ)    dQ += dS·K·scale    dK += dSᵀ·Q·scale
// where P̃ is P after dropout. A tile in which nothing is allowed is passed over.
#pragma once

#include "attention.h"

namespace undivided::UNDIVIDED_SET {

// Rows that go through a tile together, and rows that share a transposed tile of keys.
constexpr int64_t kBlock = 64;
constexpr int64_t kQueries = 256;

template <class T>
constexpr int vectors_in_tile = kTile / lanes_of<T>;

// Queries of one head of one sample, and what tiles need to know of it.
template <class T>
struct Stream {
  const T *q, *k, *v;
  int64_t q_stride, k_stride, v_stride;
  int64_t queries, keys, width, value_width;
  T scale;
  const Rules<T>* rules;
  bool careful;
};

// Scores of R rows against the 64 keys of a tile. Returns whether anything is allowed.
// `at` is room for R rows of 64, where tiles with rules pass through memory.
template <int R, class T>
UNDIVIDED_INLINE bool tile_scores(VectorOf<T> (&s)[R][vectors_in_tile<T>], const Stream<T>& h,
                                  const T* keys_turned, int64_t row, int64_t tile, T* at) {
  uint64_t bits[R], any = 0, all = kAll;
  for (int r = 0; r < R; ++r) {
    bits[r] = allowed_bits(*h.rules, row + r, tile);
    any |= bits[r];
    all &= bits[r];
  }
  if (!any) return false;
  bool plain = all == kAll && !h.rules->bias && h.rules->softcap == 0;
  constexpr int V = kMostVectors, L = lanes_of<T>;
UNDIVIDED_UNROLL
  for (int panel = 0; panel < vectors_in_tile<T>; panel += V) {
    VectorOf<T> acc[R][V] = {};
    multiply<R, V, false>(acc, h.q + row * h.q_stride, h.q_stride, keys_turned + panel * L, kTile,
                          h.width);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) s[r][panel + v] = plain ? acc[r][v] * h.scale : acc[r][v];
  }
  if (plain) return true;
  store_tile<R, vectors_in_tile<T>>(s, at, kTile);
  apply_rules(*h.rules, h.scale, bits, R, row, tile * kTile, kTile, at, kTile);
  load_tile<R, vectors_in_tile<T>>(s, at, kTile);
  return true;
}

// Dropped weights become 0, kept ones make up for them.
template <int R, class T>
UNDIVIDED_INLINE void drop(VectorOf<T> (&p)[R][vectors_in_tile<T>], const Rules<T>& rules,
                           int64_t row, int64_t tile) {
  for (int r = 0; r < R; ++r) {
    uint64_t kept = kept_bits(rules, row + r, tile);
    for (int v = 0; v < vectors_in_tile<T>; ++v)
      p[r][v] = lanes_of_bits(kept >> (v * lanes_of<T>), p[r][v]) ? p[r][v] * rules.kept_factor
                                                                  : VectorOf<T>{};
  }
}

// The running softmax of some rows.
template <class T>
struct Running {
  T* largest;  // score so far
  T* total;    // of exp(score − largest)
  T* decay;    // what this tile multiplies everything before it by
};

// Weights of R rows over a tile, as exponentials from each row's largest score so far.
template <int R, class T>
__attribute__((noinline)) void exponentials_of_tile(const Stream<T>& h, const T* keys_turned,
                                                    int64_t row, int64_t tile, Running<T> run,
                                                    T* p) {
  constexpr int N = vectors_in_tile<T>, L = lanes_of<T>;
  VectorOf<T> s[R][N];
  if (!tile_scores<R>(s, h, keys_turned, row, tile, p)) {
    for (int r = 0; r < R; ++r) {
      run.decay[r] = 1;
      for (int v = 0; v < N; ++v) store(p + r * kTile + v * L, VectorOf<T>{});
    }
    return;
  }
  T base[R];
  constexpr int kRows = (R + L - 1) / L * L;
  T change[kRows] = {};
UNDIVIDED_UNROLL
  for (int r = 0; r < R; ++r) {
    VectorOf<T> top = s[r][0];
UNDIVIDED_UNROLL
    for (int v = 1; v < N; ++v) top = larger(s[r][v], top);
    T before = run.largest[r], most = largest(top);
    most = most > before ? most : before;
    run.largest[r] = most;
    base[r] = base_of(most);
    change[r] = before - base[r];
  }
  for (int r = 0; r < R; r += L) store(change + r, exponential(load(change + r)));
UNDIVIDED_UNROLL
  for (int r = 0; r < R; ++r)
UNDIVIDED_UNROLL
    for (int v = 0; v < N; ++v) s[r][v] = exponential(s[r][v] - base[r]);
UNDIVIDED_UNROLL
  for (int r = 0; r < R; ++r) {
    VectorOf<T> sums = s[r][0];
UNDIVIDED_UNROLL
    for (int v = 1; v < N; ++v) sums += s[r][v];
    run.total[r] = run.total[r] * change[r] + sum(sums);
    run.decay[r] = change[r];
  }
  if (h.rules->drop_below) drop<R>(s, *h.rules, row, tile);
UNDIVIDED_UNROLL
  for (int r = 0; r < R; ++r)
UNDIVIDED_UNROLL
    for (int v = 0; v < N; ++v) store(p + r * kTile + v * L, s[r][v]);
}

// The rows of a block that may attend to anything between two keys, as far as their ranges say:
// they only move on with the row.
template <class T>
UNDIVIDED_INLINE void rows_reaching(const Rules<T>& rules, int64_t key, int64_t& first,
                                    int64_t& end) {
  while (first < end && end_key(rules, first) <= key) ++first;
  while (first < end && first_key(rules, end - 1) >= key + kTile) --end;
}

template <class T>
UNDIVIDED_INLINE int64_t first_tile(const Rules<T>& rules, int64_t first) {
  return first_key(rules, first) / kTile;
}
template <class T>
UNDIVIDED_INLINE int64_t end_tile(const Rules<T>& rules, int64_t end) {
  int64_t key = end_key(rules, end - 1);
  return key <= 0 ? 0 : (key + kTile - 1) / kTile;
}

// Whether block masks forbid a whole tile to rows first … end − 1.
template <class T>
UNDIVIDED_INLINE bool blocked(const Rules<T>& rules, int64_t first, int64_t end, int64_t tile) {
  if (!rules.states) return false;
  for (int64_t block = first / kTile; block * kTile < end; ++block)
    if (rules.states[block * rules.blocks_across + tile] >= 0) return false;
  return true;
}

// Some keys (or values) transposed into a whole tile, what is missing filled with zeros.
template <class T>
UNDIVIDED_INLINE void turn_tile(const T* rows, int64_t stride, int64_t count, int64_t width,
                                T* to) {
  if (count < kTile)
    for (int64_t i = 0; i < width * kTile; i += lanes_of<T>) store(to + i, VectorOf<T>{});
  transpose_into(rows, stride, count, width, to, kTile);
}

// A · B added to rows of C that are decayed first.
template <bool Turn, class T>
UNDIVIDED_INLINE void add_product(T* c, int64_t ldc, const T* decay, bool careful, int64_t rows,
                                  int64_t columns, const T* a, int64_t lda, const T* b,
                                  int64_t ldb, int64_t depth) {
  Product<T> product_of{};
  product_of.c = c;
  product_of.ldc = ldc;
  product_of.accumulate = true;
  product_of.decay = decay;
  product_of.careful = careful;
  product<Turn>(product_of, rows, columns, a, lda, b, ldb, depth);
}

constexpr int64_t stream_forward_scratch(int64_t width, int64_t value_width) {
  return width * kTile + kQueries * value_width + kBlock * kTile + 3 * kQueries;
}

// Rows first … end − 1 (at most kQueries) of the output and their log-sum-exp.
template <class T>
UNDIVIDED_INLINE void stream_forward(const Stream<T>& h, int64_t first, int64_t end, T* out,
                                     int64_t out_stride, T* lse, T* scratch) {
  constexpr int L = lanes_of<T>;
  const Rules<T>& rules = *h.rules;
  int64_t F = h.value_width, count = end - first;
  T* turned = scratch;
  T* values = turned + h.width * kTile;
  T* p = values + kQueries * F;
  Running<T> all{p + kBlock * kTile, p + kBlock * kTile + kQueries,
                 p + kBlock * kTile + 2 * kQueries};
  for (int64_t i = 0; i < count; ++i) {
    all.largest[i] = rules.sink ? *rules.sink : T(-kInfinity);
    all.total[i] = rules.sink ? 1 : 0;
  }
  for (int64_t i = 0; i < count * F; i += L) store(values + i, VectorOf<T>{});

  for (int64_t tile = first_tile(rules, first); tile < end_tile(rules, end); ++tile) {
    int64_t key = tile * kTile, keys = h.keys - key < kTile ? h.keys - key : kTile;
    if (blocked(rules, first, end, tile)) continue;
    turn_tile(h.k + key * h.k_stride, h.k_stride, keys, h.width, turned);
    for (int64_t block = first; block < end; block += kBlock) {
      int64_t a = block, b = block + kBlock < end ? block + kBlock : end;
      rows_reaching(rules, key, a, b);
      if (a >= b || blocked(rules, a, b, tile)) continue;
      in_tiles(b - a, most_rows(kMostVectors), [&](int64_t height, int64_t row) {
        int64_t at = a - first + row;
        Running<T> run{all.largest + at, all.total + at, all.decay + at};
        with_count<most_rows(kMostVectors)>(height, [&](auto rows) {
          exponentials_of_tile<decltype(rows)::value>(h, turned, a + row, tile, run,
                                                      p + row * kTile);
        });
      });
      add_product<false>(values + (a - first) * F, F, all.decay + (a - first), h.careful, b - a, F,
                         p, kTile, h.v + key * h.v_stride, h.v_stride, keys);
    }
  }

  for (int64_t i = 0; i < count; ++i) {
    T share = share_of(all.total[i]);
    for (int64_t c = 0; c < F; c += L)
      store(out + (first + i) * out_stride + c, load(values + i * F + c) * share);
    if (lse) lse[first + i] = base_of(all.largest[i]) + logarithm(all.total[i]);
  }
}

// Weights of R rows over a tile, from their log-sum-exp. Rows that lie in one tile are worked out as
// in the forward pass, which is closer than a rounded log-sum-exp comes to it.
template <int R, class T>
UNDIVIDED_INLINE bool weights_of_tile(VectorOf<T> (&p)[R][vectors_in_tile<T>], const Stream<T>& h,
                                      const T* keys_turned, const T* lse, int64_t row,
                                      int64_t tile, T* at) {
  if (!tile_scores<R>(p, h, keys_turned, row, tile, at)) return false;
  if (h.keys <= kTile) {
    softmax_rows(p, h.rules->sink, true, (T*)nullptr);
    return true;
  }
UNDIVIDED_UNROLL
  for (int r = 0; r < R; ++r) {
    T base = base_of(lse[row + r]), share = lse[row + r] == lse[row + r] ? T(1) : lse[row + r];
UNDIVIDED_UNROLL
    for (int v = 0; v < vectors_in_tile<T>; ++v)
      p[r][v] = exponential(p[r][v] - base);
    if (share != share)  // NaN, which is of what is allowed alone
      for (int v = 0; v < vectors_in_tile<T>; ++v) p[r][v] = weight_of(p[r][v], share, true);
  }
  return true;
}

// dP of R rows over one panel of a tile: dO·Vᵀ, 0 where a weight was dropped.
template <int R, class T>
UNDIVIDED_INLINE void panel_of_dp(VectorOf<T> (&dp)[R][kMostVectors], const Stream<T>& h,
                                  const T* values_turned, const T* d_out, int64_t d_out_stride,
                                  int64_t row, int panel, const uint64_t* kept) {
  constexpr int L = lanes_of<T>, V = kMostVectors;
  multiply<R, V, false>(dp, d_out + row * d_out_stride, d_out_stride, values_turned + panel * L,
                        kTile, h.value_width);
  if (!h.rules->drop_below) return;
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      dp[r][v] = lanes_of_bits(kept[r] >> ((panel + v) * L), dp[r][v])
                     ? dp[r][v] * h.rules->kept_factor
                     : VectorOf<T>{};
}

// P̃ and dS·scale of R rows over a tile, each a row of 64; dS is added to the bias' gradient.
template <int R, class T>
__attribute__((noinline)) void gradients_of_tile(const Stream<T>& h, const T* keys_turned,
                                                 const T* values_turned, const T* d_out,
                                                 int64_t d_out_stride, const T* lse,
                                                 const T* delta, int64_t row, int64_t tile, T* p,
                                                 T* ds) {
  constexpr int N = vectors_in_tile<T>, L = lanes_of<T>, V = kMostVectors;
  const Rules<T>& rules = *h.rules;
  VectorOf<T> weight[R][N];
  if (!weights_of_tile<R>(weight, h, keys_turned, lse, row, tile, p)) {
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < N; ++v) {
        store(p + r * kTile + v * L, VectorOf<T>{});
        store(ds + r * kTile + v * L, VectorOf<T>{});
      }
    return;
  }
UNDIVIDED_UNROLL
  for (int r = 0; r < R; ++r)
UNDIVIDED_UNROLL
    for (int v = 0; v < N; ++v) store(p + r * kTile + v * L, weight[r][v]);
  uint64_t kept[R] = {};
  if (rules.drop_below)
    for (int r = 0; r < R; ++r) {
      kept[r] = kept_bits(rules, row + r, tile);
      for (int v = 0; v < N; ++v) {
        auto lanes = lanes_of_bits(kept[r] >> (v * L), weight[r][v]);
        store(p + r * kTile + v * L,
              lanes ? weight[r][v] * rules.kept_factor : VectorOf<T>{});
      }
    }
  T mean[R];
  for (int r = 0; r < R; ++r) mean[r] = delta[row + r];
  // A row that lies in one tile has its mean of dP here, closer than dO ∘ O comes to it.
  if (h.keys <= kTile) {
    VectorOf<T> sums[R] = {};
    for (int panel = 0; panel < N; panel += V) {
      VectorOf<T> dp[R][V] = {};
      panel_of_dp<R>(dp, h, values_turned, d_out, d_out_stride, row, panel, kept);
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) {
          VectorOf<T> w = weight[r][panel + v];
          sums[r] += w != T(0) ? w * dp[r][v] : VectorOf<T>{};
        }
    }
    for (int r = 0; r < R; ++r) mean[r] = sum(sums[r]);
  }
UNDIVIDED_UNROLL
  for (int panel = 0; panel < N; panel += V) {
    VectorOf<T> acc[R][V] = {};
    panel_of_dp<R>(acc, h, values_turned, d_out, d_out_stride, row, panel, kept);
UNDIVIDED_UNROLL
    for (int r = 0; r < R; ++r) {
UNDIVIDED_UNROLL
      for (int v = 0; v < V; ++v) {
        VectorOf<T> w = weight[r][panel + v];
        acc[r][v] = w * (acc[r][v] - mean[r]);
        acc[r][v] = w != T(0) ? acc[r][v] : VectorOf<T>{};
      }
    }
    if (rules.d_bias) {
      store_tile<R, V>(acc, ds + panel * L, kTile);
      add_bias_gradient(rules, R, row, tile * kTile + panel * L, V * L, (const T*)ds + panel * L,
                        kTile);
    }
    if (rules.softcap != 0) {  // in the forward pass the score was softcap·tanh(z/softcap)
      VectorOf<T> z[R][V] = {};
      multiply<R, V, false>(z, h.q + row * h.q_stride, h.q_stride, keys_turned + panel * L, kTile,
                            h.width);
      for (int r = 0; r < R; ++r)
        for (int v = 0; v < V; ++v) {
          VectorOf<T> slope = hyperbolic_tangent_slope(z[r][v] * h.scale / rules.softcap);
          acc[r][v] = acc[r][v] != T(0) ? acc[r][v] * slope : VectorOf<T>{};
        }
    }
UNDIVIDED_UNROLL
    for (int r = 0; r < R; ++r)
UNDIVIDED_UNROLL
      for (int v = 0; v < V; ++v)
        store(ds + r * kTile + (panel + v) * L, acc[r][v] * h.scale);
  }
}

constexpr int64_t stream_backward_scratch(int64_t width, int64_t value_width) {
  return (2 * width + 2 * value_width) * kTile + 2 * kBlock * kTile;
}

// Backward over one tile of keys. Its own gradients are `d_keys` and `d_values`, 64 rows each.
template <class T>
struct StreamGradients {
  const T *d_out, *lse, *delta;
  int64_t d_out_stride;
  T* dq;  // or null
  int64_t dq_stride;
  T *d_keys, *d_values;
};

template <class T>
UNDIVIDED_INLINE void stream_backward(const Stream<T>& h, const StreamGradients<T>& g,
                                      const T* keys_turned, const T* values_turned, int64_t tile,
                                      T* scratch) {
  const Rules<T>& rules = *h.rules;
  int64_t key = tile * kTile, keys = h.keys - key < kTile ? h.keys - key : kTile;
  T *p = scratch, *ds = p + kBlock * kTile;
  for (int64_t block = 0; block < h.queries; block += kBlock) {
    int64_t a = block, b = block + kBlock < h.queries ? block + kBlock : h.queries;
    rows_reaching(rules, key, a, b);
    if (a >= b || blocked(rules, a, b, tile)) continue;
    in_tiles(b - a, most_rows(kMostVectors), [&](int64_t height, int64_t row) {
      with_count<most_rows(kMostVectors)>(height, [&](auto rows) {
        gradients_of_tile<decltype(rows)::value>(h, keys_turned, values_turned, g.d_out,
                                                 g.d_out_stride, g.lse, g.delta, a + row, tile,
                                                 p + row * kTile, ds + row * kTile);
      });
    });
    if (g.d_values)
      add_product<true>(g.d_values, h.value_width, (const T*)nullptr, h.careful, keys,
                        h.value_width, p, kTile, g.d_out + a * g.d_out_stride, g.d_out_stride,
                        b - a);
    if (g.dq)
      add_product<false>(g.dq + a * g.dq_stride, g.dq_stride, (const T*)nullptr, h.careful, b - a,
                         h.width, ds, kTile, h.k + key * h.k_stride, h.k_stride, keys);
    if (g.d_keys)
      add_product<true>(g.d_keys, h.width, (const T*)nullptr, h.careful, keys, h.width, ds, kTile,
                        h.q + a * h.q_stride, h.q_stride, b - a);
  }
}

// Weights of some rows over all keys, written where they were asked for.
template <class T>
UNDIVIDED_INLINE void stream_weights(const Stream<T>& h, const T* lse, const int64_t* rows,
                                     int64_t count, T* to, int64_t to_stride, T* scratch) {
  T *turned = scratch, *p = turned + h.width * kTile;
  for (int64_t tile = 0; tile * kTile < h.keys; ++tile) {
    int64_t key = tile * kTile, keys = h.keys - key < kTile ? h.keys - key : kTile;
    turn_tile(h.k + key * h.k_stride, h.k_stride, keys, h.width, turned);
    for (int64_t i = 0; i < count;) {
      // Rows that follow one another go through together.
      int64_t run = 1;
      bool real = rows[i] < h.queries;
      while (run < most_rows(kMostVectors) && i + run < count &&
             rows[i + run] == rows[i] + run && (rows[i + run] < h.queries) == real)
        ++run;
      with_count<most_rows(kMostVectors)>(run, [&](auto height) {
        constexpr int R = decltype(height)::value;
        VectorOf<T> weight[R][vectors_in_tile<T>];
        bool any = real && weights_of_tile<R>(weight, h, turned, lse, rows[i], tile, p);
        for (int r = 0; r < R; ++r) {
          T* row = to + (i + r) * to_stride + key;
          T* whole = keys == kTile ? row : p;  // nothing is written beyond a row's end
          for (int v = 0; v < vectors_in_tile<T>; ++v)
            store(whole + v * lanes_of<T>, any ? weight[r][v] : VectorOf<T>{});
          for (int64_t k = 0; k < keys && whole == p; ++k) row[k] = p[k];
        }
      });
      i += run;
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
