// A call of the attention operator, as plain data: it has no functions, for the reason that
// program.h gives.
//
// B samples, H query heads over G key heads, S queries, T keys, D and F the widths of a head's keys
// and values, both multiples of kPad here. Steps count elements, not bytes.
#pragma once

#include <cstdint>

namespace undivided {

// Keys are taken in tiles of this many: one bit of a word for each.
constexpr int64_t kTile = 64;

// Rows of numbers that lie side by side: [sample][head][row]. Null where there are none.
template <class T>
struct Rows {
  T* at;
  int64_t sample, head, row;
};

// [sample][head][query][key] with any steps, 0 where an axis has one element for all.
template <class T>
struct Grid {
  T* at;
  int64_t sample, head, row, key;
};

template <class T>
struct AttentionCall {
  int64_t samples, heads, key_heads, queries, keys, width, value_width;
  double scale, softcap;  // 0: no softcap
  Rows<const T> query, key, value;
  Rows<T> out;

  // Which pairs are allowed. Per sample or null: the first row of packed sequences, how many rows
  // there are, where query 0 stands among the keys. `left` and `right` reach from there.
  const int64_t *query_start, *key_start, *query_lengths, *key_lengths, *offsets;
  int64_t offset, left, right;
  Grid<const uint8_t> mask;
  const int32_t* block_states;     // [queries/64][keys/64]: −1 nothing, 0 everything, else a pattern
  const uint64_t* block_patterns;  // [pattern − 1][64 rows]
  int64_t blocks_across;

  Grid<const T> bias;
  const T* sinks;  // [H]
  uint64_t seed;
  uint32_t drop_below;  // a word of the generator below this is dropped
  double kept_factor;   // 1/(1 − rate)

  T* lse;            // [B, H, S]
  T* probabilities;  // [B, H, S, T padded], kept for backward, or null: it computes them again
  bool streams;      // keys in tiles with a running softmax, in place of whole rows

  // Weights on request: of these heads and rows, [B, weight_heads, weight_rows, T].
  T* weights;
  const int64_t *weight_heads, *weight_rows;
  int64_t weight_head_count, weight_row_count;

  // Backward. Items of work are (slice of the samples) × (heads that share sums) × (part of the
  // keys), fixed by the shapes. With several parts each has a dQ of its own, [part][B, H, S, D].
  Rows<const T> d_out, given_out;
  Rows<T> d_query, d_key, d_value;
  int64_t d_query_part;
  Grid<T> d_bias;         // rows padded to whole tiles; one for each slice, and part if keys share
  int64_t d_bias_slice, d_bias_part;
  T* delta;               // [B, H, S]: rowsum(dO ∘ O)
  int64_t slices, head_units, parts;
};

enum class AttentionPhase : int64_t { kForward, kDelta, kBackward, kWeights };

struct AttentionSize {
  int64_t items;    // that any thread may take in any order
  int64_t scratch;  // numbers that a thread needs for one
};

// What each instruction set offers for numbers of type T.
template <class T>
struct AttentionKernels {
  AttentionSize (*size)(const AttentionCall<T>&, AttentionPhase);
  void (*run)(const AttentionCall<T>&, AttentionPhase, int64_t item, T* scratch);
};

}  // namespace undivided
