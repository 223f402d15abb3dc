// Which pairs of a query and a key are allowed, and what a score is besides a product.
//
// The allowed keys of a row come as words, a bit for each of 64 keys: every kind of mask ends up
// there, and from there everything is the same.
#pragma once

#include "philox.h"
#include "../engine/attention_call.h"
#include "vector.h"

namespace undivided::UNDIVIDED_SET {

// The rules of one head of one sample.
template <class T>
struct Rules {
  int64_t keys;
  int64_t offset, left, right;
  const uint8_t* mask;
  int64_t mask_row, mask_key;
  const int32_t* states;
  const uint64_t* patterns;
  int64_t blocks_across;
  const T* bias;
  int64_t bias_row, bias_key;
  T softcap;
  const T* sink;
  uint64_t seed;
  uint32_t stream;  // of the generator: sample · H + head
  uint32_t drop_below;
  // Between layers coins are those of dropout.h: of this row on, so many tiles in a row.
  int64_t first_row, row_tiles;
  uint32_t place, step, purpose;
  T kept_factor;
  T* d_bias;
  int64_t d_bias_row, d_bias_key;
};

constexpr uint64_t kAll = ~0ull;

// Bits first … last − 1, both counted from the tile's first key and clamped to it.
UNDIVIDED_INLINE uint64_t bits_between(int64_t first, int64_t last) {
  first = first < 0 ? 0 : first;
  last = last > kTile ? kTile : last;
  if (last <= first) return 0;
  return (kAll >> (kTile - last)) & (kAll << first);
}

template <class T>
UNDIVIDED_INLINE int64_t first_key(const Rules<T>& rules, int64_t row) {
  int64_t first = row + rules.offset - rules.left;
  return first < 0 ? 0 : first;
}
template <class T>
UNDIVIDED_INLINE int64_t end_key(const Rules<T>& rules, int64_t row) {
  int64_t end = row + rules.offset + rules.right + 1;
  return end > rules.keys ? rules.keys : end;
}

// One bit for each of up to 64 bytes that are 0 or 1.
UNDIVIDED_INLINE uint64_t bits_of_bytes(const uint8_t* from, int64_t step, int64_t count) {
  uint64_t bits = 0;
  int64_t i = 0;
  if (step == 0) return *from ? kAll : 0;
  if (step == 1) {
    for (; i + 8 <= count; i += 8) {
      uint64_t eight;
      __builtin_memcpy(&eight, from + i, 8);
      bits |= (eight * 0x0102040810204080ull >> 56) << i;
    }
  }
  for (; i < count; ++i) bits |= (uint64_t)(from[i * step] != 0) << i;
  return bits;
}

// The allowed keys of a row among the 64 of a tile.
template <class T>
__attribute__((noinline)) uint64_t allowed_bits(const Rules<T>& rules, int64_t row, int64_t tile) {
  int64_t key = tile * kTile;
  uint64_t bits = bits_between(first_key(rules, row) - key, end_key(rules, row) - key);
  if (bits == 0) return 0;
  if (rules.states) {
    int32_t state = rules.states[row / kTile * rules.blocks_across + tile];
    if (state < 0) return 0;
    if (state > 0) bits &= rules.patterns[(state - 1) * kTile + row % kTile];
  }
  if (rules.mask) {
    int64_t count = rules.keys - key < kTile ? rules.keys - key : kTile;
    bits &= bits_of_bytes(rules.mask + row * rules.mask_row + key * rules.mask_key,
                          rules.mask_key, count);
  }
  return bits;
}

// Whether the 64 keys of a tile are kept by dropout; "atte" is what the words are drawn for.
template <class T>
UNDIVIDED_INLINE uint64_t kept_bits(const Rules<T>& rules, int64_t row, int64_t tile) {
  if (rules.row_tiles)
    return kept_of_tile(rules.seed, (uint32_t)((rules.first_row + row) * rules.row_tiles + tile),
                        rules.place, rules.step, rules.purpose, rules.drop_below);
  return kept_of_tile(rules.seed, (uint32_t)tile, (uint32_t)row, rules.stream, 0x61747465,
                      rules.drop_below);
}

// All ones in the lanes whose bit is set.
UNDIVIDED_INLINE Whole lanes_of_bits(uint64_t bits, Vector) {
  Whole lane{};
  for (int i = 0; i < kLanes; ++i) lane[i] = 1 << i;
  return (lane & (int32_t)(bits & 0xffff)) != 0;
}
UNDIVIDED_INLINE Longs lanes_of_bits(uint64_t bits, Doubles) {
  Longs lane{};
  for (int i = 0; i < lanes_of<double>; ++i) lane[i] = 1ll << i;
  return (lane & (int64_t)(bits & 0xff)) != 0;
}

// Numbers of a row with a step between them, none beyond the sample's keys.
template <class T>
UNDIVIDED_INLINE VectorOf<T> load_row(const T* row, int64_t step, int64_t column, int64_t keys) {
  if (step == 0) return fill(*row);
  if (step == 1 && column + lanes_of<T> <= keys) return load(row + column);
  VectorOf<T> v{};
  for (int i = 0; i < lanes_of<T> && column + i < keys; ++i) v[i] = row[(column + i) * step];
  return v;
}

// Rows of products become scores: scaled, capped, biased, and −∞ where nothing is allowed.
// bits[r] belongs to row r and the tile of 64 keys that `column` falls into.
template <class T>
__attribute__((noinline)) void apply_rules(const Rules<T>& rules, T scale, const uint64_t* bits,
                                           int64_t rows, int64_t row, int64_t column,
                                           int64_t columns, T* scores, int64_t stride) {
  constexpr int L = lanes_of<T>;
  const VectorOf<T> nothing = fill(T(-kInfinity));
  for (int64_t r = 0; r < rows; ++r) {
    uint64_t allowed = bits[r] >> (column % kTile);
    const T* bias = rules.bias + (row + r) * rules.bias_row;
    for (int64_t c = 0; c < columns; c += L) {
      VectorOf<T> score = load(scores + r * stride + c) * scale;
      if (rules.softcap != 0)
        score = rules.softcap * hyperbolic_tangent(score / rules.softcap);
      if (rules.bias) {
        VectorOf<T> b = load_row(bias, rules.bias_key, column + c, rules.keys);
        score = b == nothing ? nothing : score + b;
      }
      store(scores + r * stride + c, lanes_of_bits(allowed >> c, score) ? score : nothing);
    }
  }
}

// dS of some rows and keys is added to the bias' own gradient.
template <class T>
__attribute__((noinline)) void add_bias_gradient(const Rules<T>& rules, int64_t rows, int64_t row,
                                                 int64_t column, int64_t columns, const T* ds,
                                                 int64_t stride) {
  constexpr int L = lanes_of<T>;
  for (int64_t r = 0; r < rows; ++r, ds += stride) {
    T* to = rules.d_bias + (row + r) * rules.d_bias_row;
    if (rules.d_bias_key) {
      for (int64_t c = 0; c < columns; c += L)
        store(to + column + c, load(to + column + c) + load(ds + c));
      continue;
    }
    VectorOf<T> total{};
    for (int64_t c = 0; c < columns; c += L) total += load(ds + c);
    *to += sum(total);
  }
}

}  // namespace undivided::UNDIVIDED_SET
