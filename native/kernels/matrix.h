// Matrix products in register tiles.
//
// A tile is R rows × V vectors of accumulators held in registers while the loop over the shared
// dimension runs inside it. Every element is one chain of multiply-adds in the order of that
// dimension, whatever tile it falls into, so results do not depend on how rows are grouped.
#pragma once

#include "vector.h"

namespace undivided::UNDIVIDED_SET {

// The widest tile, and how many rows fit beside it: 32 registers with AVX-512, else 16.
#if UNDIVIDED_LANES == 16
constexpr int kMostVectors = 4;
constexpr int most_rows(int vectors) { return vectors == 1 ? 14 : vectors == 2 ? 12 : vectors == 3 ? 8 : 6; }
#else
constexpr int kMostVectors = 2;
constexpr int most_rows(int vectors) { return vectors == 1 ? 8 : 6; }
#endif

// Turns a count known only now, 1 … Most, into one known when compiling.
template <int N>
struct Count {
  static constexpr int value = N;
};
template <int Most, class Each>
UNDIVIDED_INLINE void with_count(int64_t count, Each each) {
  if constexpr (Most > 1) {
    if (count < Most) return with_count<Most - 1>(count, each);
  }
  each(Count<Most>{});
}

// Calls each(height, first row) for tiles of nearly equal height, none above `most`.
template <class Each>
UNDIVIDED_INLINE void in_tiles(int64_t rows, int64_t most, Each each) {
  int64_t row = 0;
  for (int64_t left = (rows + most - 1) / most; left > 0; --left) {
    int64_t height = (rows - row + left - 1) / left;
    each(height, row);
    row += height;
  }
}

// acc[r][v] += Σ_k a(r, k) · b[k][v]. Plain: a(r, k) = a[r·lda + k]; Turned: a[k·lda + r].
template <int R, int V, bool Turned>
UNDIVIDED_INLINE void multiply(Vector (&acc)[R][V], const float* a, int64_t lda, const float* b,
                               int64_t ldb, int64_t depth) {
  for (int64_t k = 0; k < depth; ++k) {
    Vector right[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) right[v] = load(b + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      Vector left = fill(Turned ? a[r] : a[r * lda]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[r][v] += left * right[v];
    }
    a += Turned ? lda : 1;
    b += ldb;
  }
}

// What a product starts from and what is done to it. Null pointers are steps left out.
struct Product {
  float* c;
  int64_t ldc;
  bool accumulate;       // c += in place of c =
  const float* bias;     // one row added to every row
  const float* table;    // row r added to row r
  int64_t table_stride;
  const float* mask;     // where this is not positive, 0 is stored
  int64_t mask_stride;
  bool relu;             // negative results become 0
};

// What is added comes after the products: in front, it would take its rounding into every sum.
template <int R, int V>
UNDIVIDED_INLINE void finish(Vector (&acc)[R][V], const Product& p, int64_t row, int64_t column) {
  auto add_rows = [&](const float* from, int64_t stride) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        acc[r][v] += load(from + (row + r) * stride + column + v * kLanes);
  };
  if (p.bias) add_rows(p.bias, 0);
  if (p.table) add_rows(p.table, p.table_stride);
  if (p.accumulate) add_rows(p.c, p.ldc);
  if (p.relu) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[r][v] = acc[r][v] < 0.0f ? Vector{} : acc[r][v];
  }
  if (p.mask) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        Vector gate = load(p.mask + (row + r) * p.mask_stride + column + v * kLanes);
        acc[r][v] = gate > 0.0f ? acc[r][v] : Vector{};
      }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      store(p.c + (row + r) * p.ldc + column + v * kLanes, acc[r][v]);
}

template <int R, int V, bool Turned>
__attribute__((noinline)) void tile(const Product& p, int64_t row, int64_t column, const float* a,
                                    int64_t lda, const float* b, int64_t ldb, int64_t depth) {
  Vector acc[R][V] = {};
  multiply<R, V, Turned>(acc, a + row * (Turned ? 1 : lda), lda, b + column, ldb, depth);
  finish<R, V>(acc, p, row, column);
}

// A panel of V vectors: its rows in tiles of nearly equal height.
template <int V, bool Turned>
UNDIVIDED_INLINE void panel(const Product& p, int64_t rows, int64_t column, const float* a,
                            int64_t lda, const float* b, int64_t ldb, int64_t depth) {
  in_tiles(rows, most_rows(V), [&](int64_t height, int64_t row) {
    with_count<most_rows(V)>(height, [&](auto count) {
      tile<decltype(count)::value, V, Turned>(p, row, column, a, lda, b, ldb, depth);
    });
  });
}

// Long sums are cut into stretches, each a chain of its own, or rounding would grow with length.
constexpr int64_t kStretch = 256;

// C[rows × columns] from A (rows × depth, or Turned: depth × rows) and B[depth × columns].
// Columns are a multiple of kPad.
template <bool Turned>
UNDIVIDED_INLINE void product(Product p, int64_t rows, int64_t columns, const float* a,
                              int64_t lda, const float* b, int64_t ldb, int64_t depth) {
  auto stretch = [&](const Product& part, int64_t first, int64_t length) {
    const float* left = a + first * (Turned ? lda : 1);
    const float* right = b + first * ldb;
    for (int64_t column = 0; column < columns;) {
      int64_t vectors = (columns - column) / kLanes;
      if (vectors > kMostVectors) vectors = kMostVectors;
      with_count<kMostVectors>(vectors, [&](auto count) {
        panel<decltype(count)::value, Turned>(part, rows, column, left, lda, right, ldb, length);
      });
      column += vectors * kLanes;
    }
  };
  if (depth <= kStretch) return stretch(p, 0, depth);
  Product inner = p;
  inner.relu = false;
  inner.mask = nullptr;
  for (int64_t first = 0; first < depth; first += kStretch) {
    bool last = first + kStretch >= depth;
    if (last) {
      inner.relu = p.relu;
      inner.mask = p.mask;
    }
    stretch(inner, first, last ? depth - first : kStretch);
    inner.bias = inner.table = nullptr;
    inner.accumulate = true;
  }
}

}  // namespace undivided::UNDIVIDED_SET
