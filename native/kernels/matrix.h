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
template <int R, int V, bool Turned, class T>
UNDIVIDED_INLINE void multiply(VectorOf<T> (&acc)[R][V], const T* a, int64_t lda, const T* b,
                               int64_t ldb, int64_t depth) {
  for (int64_t k = 0; k < depth; ++k) {
    VectorOf<T> right[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) right[v] = load(b + v * lanes_of<T>);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      VectorOf<T> left = fill(Turned ? a[r] : a[r * lda]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[r][v] += left * right[v];
    }
    a += Turned ? lda : 1;
    b += ldb;
  }
}

template <int R, int V, class T>
UNDIVIDED_INLINE void store_tile(const VectorOf<T> (&tile)[R][V], T* to, int64_t stride) {
UNDIVIDED_UNROLL
  for (int r = 0; r < R; ++r)
UNDIVIDED_UNROLL
    for (int v = 0; v < V; ++v) store(to + r * stride + v * lanes_of<T>, tile[r][v]);
}

template <int R, int V, class T>
UNDIVIDED_INLINE void load_tile(VectorOf<T> (&tile)[R][V], const T* from, int64_t stride) {
UNDIVIDED_UNROLL
  for (int r = 0; r < R; ++r)
UNDIVIDED_UNROLL
    for (int v = 0; v < V; ++v) tile[r][v] = load(from + r * stride + v * lanes_of<T>);
}

// What a product starts from and what is done to it. Null pointers are steps left out.
template <class T>
struct Product {
  T* c;
  int64_t ldc;
  bool accumulate;       // c += in place of c =
  const T* decay;        // what row r of c is multiplied by before it is added to
  const T* bias;         // one row added to every row
  const T* table;        // row r added to row r
  int64_t table_stride;
  const T* mask;         // where this is not positive, 0 is stored
  int64_t mask_stride;
  bool relu;             // negative results become 0
  bool careful;          // a factor of 0 takes nothing, not even from NaN and infinity
  bool fetched;          // a tile of c is on its way from memory while its sums are made
};

// What is added comes after the products: in front, it would take its rounding into every sum.
template <int R, int V, class T>
UNDIVIDED_INLINE void finish(VectorOf<T> (&acc)[R][V], const Product<T>& p, int64_t row,
                             int64_t column) {
  constexpr int L = lanes_of<T>;
  auto add_rows = [&](const T* from, int64_t stride) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[r][v] += load(from + (row + r) * stride + column + v * L);
  };
  if (p.bias) add_rows(p.bias, 0);
  if (p.table) add_rows(p.table, p.table_stride);
  if (p.accumulate && p.decay) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        acc[r][v] += load(p.c + (row + r) * p.ldc + column + v * L) * p.decay[row + r];
  } else if (p.accumulate) {
    add_rows(p.c, p.ldc);
  }
  if (p.relu) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[r][v] = acc[r][v] < T(0) ? VectorOf<T>{} : acc[r][v];
  }
  if (p.mask) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        VectorOf<T> gate = load(p.mask + (row + r) * p.mask_stride + column + v * L);
        acc[r][v] = gate > T(0) ? acc[r][v] : VectorOf<T>{};
      }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v)
      store(p.c + (row + r) * p.ldc + column + v * L, acc[r][v]);
}

template <int R, int V, bool Turned, class T>
__attribute__((noinline)) void tile(const Product<T>& p, int64_t row, int64_t column, const T* a,
                                    int64_t lda, const T* b, int64_t ldb, int64_t depth) {
  VectorOf<T> acc[R][V] = {};
  if (p.fetched) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        __builtin_prefetch(p.c + (row + r) * p.ldc + column + v * lanes_of<T>, 1);
  }
  multiply<R, V, Turned>(acc, a + row * (Turned ? 1 : lda), lda, b + column, ldb, depth);
  finish<R, V>(acc, p, row, column);
}

// The same chains one vector at a time, leaving out what a factor of 0 would take.
template <bool Turned, class T>
__attribute__((noinline)) void careful_tiles(const Product<T>& p, int64_t rows, int64_t columns,
                                             const T* a, int64_t lda, const T* b, int64_t ldb,
                                             int64_t depth) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; column += lanes_of<T>) {
      VectorOf<T> acc[1][1] = {};
      for (int64_t k = 0; k < depth; ++k) {
        T left = Turned ? a[k * lda + row] : a[row * lda + k];
        if (left != 0) acc[0][0] += fill(left) * load(b + k * ldb + column);
      }
      finish<1, 1>(acc, p, row, column);
    }
}

// A panel of V vectors: its rows in tiles of nearly equal height.
template <int V, bool Turned, class T>
UNDIVIDED_INLINE void panel(const Product<T>& p, int64_t rows, int64_t column, const T* a,
                            int64_t lda, const T* b, int64_t ldb, int64_t depth) {
  in_tiles(rows, most_rows(V), [&](int64_t height, int64_t row) {
    with_count<most_rows(V)>(height, [&](auto count) {
      tile<decltype(count)::value, V, Turned>(p, row, column, a, lda, b, ldb, depth);
    });
  });
}

// Long sums are cut into stretches, each a chain of its own, or rounding would grow with length.
constexpr int64_t kStretch = 256;

// Results of so many numbers lie beyond a core's own cache when they are added to.
constexpr int64_t kFarResult = 1 << 18;

// C[rows × columns] from A (rows × depth, or Turned: depth × rows) and B[depth × columns].
// Columns are a multiple of kPad.
template <bool Turned, class T>
UNDIVIDED_INLINE void product(Product<T> p, int64_t rows, int64_t columns, const T* a,
                              int64_t lda, const T* b, int64_t ldb, int64_t depth) {
  p.fetched = p.accumulate && rows * columns >= kFarResult;
  auto stretch = [&](const Product<T>& part, int64_t first, int64_t length) {
    const T* left = a + first * (Turned ? lda : 1);
    const T* right = b + first * ldb;
    if (part.careful)
      return careful_tiles<Turned>(part, rows, columns, left, lda, right, ldb, length);
    for (int64_t column = 0; column < columns;) {
      int64_t vectors = (columns - column) / lanes_of<T>;
      if (vectors > kMostVectors) vectors = kMostVectors;
      with_count<kMostVectors>(vectors, [&](auto count) {
        panel<decltype(count)::value, Turned>(part, rows, column, left, lda, right, ldb, length);
      });
      column += vectors * lanes_of<T>;
    }
  };
  if (depth <= kStretch) return stretch(p, 0, depth);
  Product<T> inner = p;
  inner.relu = false;
  inner.mask = nullptr;
  for (int64_t first = 0; first < depth; first += kStretch) {
    bool last = first + kStretch >= depth;
    if (last) {
      inner.relu = p.relu;
      inner.mask = p.mask;
    }
    stretch(inner, first, last ? depth - first : kStretch);
    inner.bias = inner.table = inner.decay = nullptr;
    inner.accumulate = true;
  }
}

}  // namespace undivided::UNDIVIDED_SET
