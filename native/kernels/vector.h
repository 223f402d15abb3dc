// Vectors of floats in GCC's and Clang's own extension, one width for each instruction set.
//
// This header and its companions are compiled several times with different machine flags. All
// of it lives in the namespace UNDIVIDED_SET and includes nothing that has inline functions.
#pragma once

#include <cstdint>

#include "../engine/program.h"

#if !defined(UNDIVIDED_SET) || !defined(UNDIVIDED_LANES)
#error "UNDIVIDED_SET and UNDIVIDED_LANES say which instruction set this is compiled for"
#endif

#define UNDIVIDED_INLINE inline __attribute__((always_inline))

// Loops over what a tile of 64 keys holds are unrolled where it fits into registers.
#if UNDIVIDED_LANES == 16
#define UNDIVIDED_UNROLL _Pragma("GCC unroll 16")
#else
#define UNDIVIDED_UNROLL _Pragma("GCC unroll 1")
#endif

namespace undivided::UNDIVIDED_SET {

constexpr int kLanes = UNDIVIDED_LANES;

typedef float Vector __attribute__((vector_size(4 * kLanes)));
typedef float Unaligned __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef int32_t Whole __attribute__((vector_size(4 * kLanes)));

// The same registers hold half as many doubles.
typedef double Doubles __attribute__((vector_size(4 * kLanes)));
typedef double UnalignedDoubles __attribute__((vector_size(4 * kLanes), aligned(8), may_alias));
typedef int64_t Longs __attribute__((vector_size(4 * kLanes)));

// What a vector of T is called, and how many of them it holds.
template <class T>
struct Of;
template <>
struct Of<float> {
  typedef Vector Values;
  typedef Whole Integers;
  static constexpr int kCount = kLanes;
};
template <>
struct Of<double> {
  typedef Doubles Values;
  typedef Longs Integers;
  static constexpr int kCount = kLanes / 2;
};
template <class T>
using VectorOf = typename Of<T>::Values;
template <class T>
constexpr int lanes_of = Of<T>::kCount;

constexpr float kInfinity = __builtin_inff();

UNDIVIDED_INLINE Vector load(const float* from) { return *(const Unaligned*)from; }
UNDIVIDED_INLINE Doubles load(const double* from) { return *(const UnalignedDoubles*)from; }
UNDIVIDED_INLINE void store(float* to, Vector v) { *(Unaligned*)to = v; }
UNDIVIDED_INLINE void store(double* to, Doubles v) { *(UnalignedDoubles*)to = v; }
UNDIVIDED_INLINE Vector fill(float v) { return v - Vector{}; }
UNDIVIDED_INLINE Doubles fill(double v) { return v - Doubles{}; }
UNDIVIDED_INLINE Vector larger(Vector a, Vector b) { return a > b ? a : b; }
UNDIVIDED_INLINE Doubles larger(Doubles a, Doubles b) { return a > b ? a : b; }

// A product as it is when stored: the compiler may not carry it unrounded into the next sum.
UNDIVIDED_INLINE Vector rounded(Vector v) {
#if defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
  return v;
}

UNDIVIDED_INLINE Whole counting() {
  Whole v{};
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}

// All ones in the lanes below `count`.
UNDIVIDED_INLINE Whole lanes_below(int64_t count) { return counting() < (int32_t)count; }

// The sum of all lanes, in a fixed order: halves are added until one lane is left.
UNDIVIDED_INLINE float sum(Vector v) {
#if UNDIVIDED_LANES == 16
  typedef float Half __attribute__((vector_size(32)));
  typedef float Quarter __attribute__((vector_size(16)));
  Half h = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
           __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  Quarter q = __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
#elif UNDIVIDED_LANES == 8
  typedef float Quarter __attribute__((vector_size(16)));
  Quarter q = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
  Vector q = v;
#endif
  return (q[0] + q[2]) + (q[1] + q[3]);
}

UNDIVIDED_INLINE float largest(Vector v) {
#if UNDIVIDED_LANES == 16
  typedef float Half __attribute__((vector_size(32)));
  typedef float Quarter __attribute__((vector_size(16)));
  Half a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  Half b = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  Half h = a > b ? a : b;
  Quarter c = __builtin_shufflevector(h, h, 0, 1, 2, 3), d = __builtin_shufflevector(h, h, 4, 5, 6, 7);
  Quarter q = c > d ? c : d;
#elif UNDIVIDED_LANES == 8
  typedef float Quarter __attribute__((vector_size(16)));
  Quarter c = __builtin_shufflevector(v, v, 0, 1, 2, 3), d = __builtin_shufflevector(v, v, 4, 5, 6, 7);
  Quarter q = c > d ? c : d;
#else
  Vector q = v;
#endif
  float a0 = q[0] > q[2] ? q[0] : q[2], b0 = q[1] > q[3] ? q[1] : q[3];
  return a0 > b0 ? a0 : b0;
}

UNDIVIDED_INLINE double sum(Doubles v) {
  double total = v[0];
  for (int i = 1; i < lanes_of<double>; ++i) total += v[i];
  return total;
}

UNDIVIDED_INLINE double largest(Doubles v) {
  double top = v[0];
  for (int i = 1; i < lanes_of<double>; ++i) top = v[i] > top ? v[i] : top;
  return top;
}

// e^x for x ≤ 0, to about 1 ulp: x = n·ln 2 + r with |r| ≤ ln 2 / 2, a polynomial for e^r, and n
// added to the exponent. Below the smallest normal number the result is 0, so −∞ gives 0; NaN
// stays NaN.
UNDIVIDED_INLINE Vector exponential(Vector x) {
  const Vector rounder = fill(12582912.0f);  // 1.5·2²³: adding it rounds to a whole number
  Vector shifted = x * 1.44269504088896341f + rounder;
  Vector n = shifted - rounder;
  Vector r = x - n * 0.693145751953125f;
  r = r - n * 1.428606765330187e-06f;
  Vector p = fill(1.98756915e-4f);
  p = p * r + 1.39819994e-3f;
  p = p * r + 8.33345205e-3f;
  p = p * r + 4.16657962e-2f;
  p = p * r + 1.66666654e-1f;
  p = p * r + 5.00000012e-1f;
  p = p * (r * r) + (r + 1.0f);
  // The low bits of `shifted` hold n; moved up they are added to the exponent of e^r.
  Vector result = (Vector)((Whole)p + ((Whole)shifted << 23));
  return x < -87.3f ? Vector{} : result;
}

// In double the library's own serve: doubles are for checks, not for speed.
inline __attribute__((noinline)) Doubles exponential(Doubles x) {
  for (int i = 0; i < lanes_of<double>; ++i) x[i] = __builtin_exp(x[i]);
  return x;
}

// tanh(x) = −m/(m + 2) with m = e^(−2|x|) − 1, and the sign of x. Near 0 e^y − 1 is taken from
// the polynomial itself, where a difference would have lost all digits.
inline __attribute__((noinline)) Vector hyperbolic_tangent(Vector x) {
  const Vector rounder = fill(12582912.0f);
  Vector size = x < 0.0f ? -x : x;
  Vector y = size < 20.0f ? size * -2.0f : fill(-40.0f);
  y = x == x ? y : x;
  Vector shifted = y * 1.44269504088896341f + rounder;
  Vector n = shifted - rounder;
  Vector r = y - n * 0.693145751953125f;
  r = r - n * 1.428606765330187e-06f;
  Vector p = fill(1.98756915e-4f);
  p = p * r + 1.39819994e-3f;
  p = p * r + 8.33345205e-3f;
  p = p * r + 4.16657962e-2f;
  p = p * r + 1.66666654e-1f;
  p = p * r + 5.00000012e-1f;
  p = p * (r * r) + r;  // e^r − 1
  Vector power = (Vector)(((Whole)shifted << 23) + 0x3f800000);  // 2^n
  Vector m = power * p + (power - 1.0f);
  Vector result = -m / (m + 2.0f);
  return x < 0.0f ? -result : result;
}
inline __attribute__((noinline)) Doubles hyperbolic_tangent(Doubles x) {
  for (int i = 0; i < lanes_of<double>; ++i) x[i] = __builtin_tanh(x[i]);
  return x;
}

// 1 − tanh²(x) = 4e/(1 + e)² with e = e^(−2|x|): where tanh is near 1 a difference would have lost
// its digits.
template <class V>
UNDIVIDED_INLINE V hyperbolic_tangent_slope(V x) {
  V size = x < 0 ? -x : x;
  V e = exponential(size * -2);
  return 4 * e / ((1 + e) * (1 + e));
}

// The standard normal distribution Φ(x) = erfc(−x/√2)/2, and e^(−x²/2).
UNDIVIDED_INLINE Vector normal_distribution(Vector x, Vector* bell) {
  // erfc(u) = t·exp(−u² + poly(t)) with t = 1/(1 + u/2), for u = |x|/√2.
  Vector size = x < 0.0f ? -x : x;
  Vector u = size * 0.70710678118654752f;
  Vector t = 1.0f / (1.0f + 0.5f * u);
  Vector p = fill(0.17087277f);
  p = p * t - 0.82215223f;
  p = p * t + 1.48851587f;
  p = p * t - 1.13520398f;
  p = p * t + 0.27886807f;
  p = p * t - 0.18628806f;
  p = p * t + 0.09678418f;
  p = p * t + 0.37409196f;
  p = p * t + 1.00002368f;
  p = p * t - 1.26551223f;
  Vector square = size * size * -0.5f;
  *bell = exponential(square);
  Vector tail = 0.5f * t * exponential(square + p);
  return x < 0.0f ? tail : 1.0f - tail;
}

// Rows and columns of a kLanes × kLanes square change places.
UNDIVIDED_INLINE void transpose_square(Vector (&rows)[kLanes]) {
  // Each round exchanges, at distance d, the upper half of one row with the lower half of another.
  Whole lane = counting();
#pragma GCC unroll 8
  for (int d = kLanes / 2; d >= 1; d /= 2) {
    Whole low = (lane & d) == 0;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if (i & d) continue;
      Vector a = rows[i], b = rows[i + d];
      Whole from_a = low ? lane : lane - d + kLanes;
      Whole from_b = low ? lane + d : lane + kLanes;
#if defined(__clang__)
      Vector p{}, q{};
      for (int k = 0; k < kLanes; ++k) {
        p[k] = (k & d) ? b[k - d] : a[k];
        q[k] = (k & d) ? b[k] : a[k + d];
      }
      (void)from_a;
      (void)from_b;
      rows[i] = p;
      rows[i + d] = q;
#else
      rows[i] = __builtin_shuffle(a, b, from_a);
      rows[i + d] = __builtin_shuffle(a, b, from_b);
#endif
    }
  }
}

UNDIVIDED_INLINE void transpose_into(const double* from, int64_t from_stride, int64_t rows,
                                     int64_t columns, double* to, int64_t to_stride) {
  int64_t padded = (rows + kPad - 1) / kPad * kPad;
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < padded; ++r)
      to[c * to_stride + r] = r < rows ? from[r * from_stride + c] : 0.0;
}

// to[c][r] = from[r][c] for `rows` × `columns`, writing whole vectors: the columns of `to` up to
// the next multiple of kPad are set to zero.
UNDIVIDED_INLINE void transpose_into(const float* from, int64_t from_stride, int64_t rows,
                                     int64_t columns, float* to, int64_t to_stride) {
  int64_t padded = (rows + kPad - 1) / kPad * kPad;
  for (int64_t r = 0; r < padded; r += kLanes) {
    if (rows - r <= 1) {  // a last row alone, or none: not worth a square
      for (int64_t c = 0; c < columns; ++c) {
        Vector only{};
        if (r < rows) only[0] = from[r * from_stride + c];
        store(to + c * to_stride + r, only);
      }
      continue;
    }
    for (int64_t c = 0; c < columns; c += kLanes) {
      Vector square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        square[i] = r + i < rows ? load(from + (r + i) * from_stride + c) : Vector{};
      transpose_square(square);
      int64_t left = columns - c;
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i)
        if (i < left) store(to + (c + i) * to_stride + r, square[i]);
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
