// A program: what the schedule of a plan comes to, as plain data.
//
// The Python side (undivided/plan/schedule) decides everything here; the kernels read it. It is
// plain data without a function in it, because kernels are compiled once per instruction set and
// anything shared that is inline could be merged by the linker into the wrong one.
#pragma once

#include <cstdint>

#include "attention_call.h"

namespace undivided {

// All widths in memory are whole multiples of this many floats (64 bytes), padded with zeros, so
// that no kernel has a tail.
constexpr int64_t kPad = 16;

// Into how many slices a batch is cut at most.
constexpr int64_t kMostSlices = 16;

// How many inputs a sample has at most.
constexpr int64_t kMostInputs = 4;

// How many rows a sample has in values of this axis. `rows` is -1 where samples bring their own:
// then it is as many as they have of this input.
// Those of a `continued` axis stand behind the rows that earlier calls brought.
struct Axis {
  int64_t rows;
  int64_t most;  // the most rows that a sample may have
  int64_t input;
  int64_t continued;
};

// A region of the arena, or columns of one: rows of `stride` floats, of which `width` count.
struct Buffer {
  int64_t offset;
  int64_t axis;
  int64_t width;
  int64_t stride;
};

// A parameter matrix in the flat parameter array: `rows` of `stride` floats from `offset`, and
// where its transposed copy lies in the derived array, or -1. A block that is not trained (a
// constant, or the result of a fold) lies in the derived array itself. `gradient` is its place in
// a slice's gradients; −1 where it has none, because a fold stands between it and the samples, or
// because it is `listed`, a table so large that slices list the rows that they add to: then that
// many of its rows are summed and updated together.
struct Block {
  int64_t offset;
  int64_t rows;
  int64_t width;
  int64_t stride;
  int64_t transposed;
  int64_t transposed_stride;
  int64_t decays;
  double rate;  // what the learning rate is multiplied by; 0 for what is frozen
  int64_t trained;
  int64_t gradient;
  int64_t listed;
};

// Two linear layers in a row are one, whose weight is worked out once a step and not for every
// row: result = left·right, result_bias = left_bias·right + right_bias. With `turned` the second
// is read transposed and its bias left out: that is a score, (x·left + left_bias)·(z·right)ᵀ.
// Numbers are blocks; −1 for no bias.
struct Fold {
  int64_t left, left_bias, right, right_bias, result, result_bias, turned;
};

// What an instruction does. The Python side names it in the same words.
#define UNDIVIDED_KINDS(X)                                                                    \
  X(load)          /* y = input of the sample, rescaled, cut into patches */                  \
  X(linear)        /* y = f(x·W + bias + table + residual) */                                 \
  X(position)      /* y = x + table */                                                        \
  X(attention)     /* y = softmax(q·kᵀ·scale)·v */                                            \
  X(linear_attention) /* y = φ(q)·φ(k)ᵀ·v / φ(q)·Σφ(k), φ(x) = elu(x) + 1 */                  \
  X(normalize)     /* y = (x − mean)/√(variance + ε)·gain + shift */                          \
  X(rms_normalize) /* y = x/√(mean(x²) + ε)·gain */                                           \
  X(activation)    /* y = f(x) */                                                             \
  X(softmax)       /* y = e^x / Σ e^x, along each row */                                      \
  X(multiply)      /* y = x∘z */                                                              \
  X(dropout)       /* y = x/(1 − rate) where a coin says so, else 0 */                        \
  X(gather)        /* y = numbers of x, or 0, where a table says */                           \
  X(max_pool)      /* y = the largest of some rows of x */                                    \
  X(learned)       /* y = table */                                                            \
  X(concatenate)   /* y = the rows of x, then those of z */                                   \
  X(add)           /* y = x + z */                                                            \
  X(pool)          /* y = mean of the rows of x */                                            \
  X(reshape)       /* y = x under another shape */                                            \
  X(rescale)       /* y = x·scale + offset */                                                 \
  X(unfold)        /* y = patches of x */                                                     \
  X(cross_entropy) /* loss += −Σ t·log softmax(x), dx = (softmax(x)·Σt − t)/batch */          \
  X(vocabulary)    /* linear and cross_entropy, `down` rows at a time, with all gradients */  \
  X(binary_cross_entropy) /* loss += mean of −t·log σ(x) − (1−t)·log(1 − σ(x)) */             \
  X(deviation)     /* loss += mean of f(x − t) */                                             \
  X(seed)          /* dx = the gradient that the caller gives for the output */               \
  X(copy)          /* dx (+)= dy */                                                           \
  X(store)         /* output of the sample = x */                                             \
  X(store_weights) /* attention weights of the sample = probabilities */                      \
  X(last)          /* y = the last row of x */                                                \
  X(keep)          /* keys z and values v go behind those that are kept */                    \
  X(recall)        /* y = attention of x to the keys and values that are kept */              \
  X(store_linear_weights) /* … = φ(q)·φ(k)ᵀ / φ(q)·Σφ(k) */                                   \
  X(embed)         /* y = table[ids of the sample] */                                         \
  X(rotary)        /* y = x, its pairs turned by their positions */

// Activations; and how deviations count.
#define UNDIVIDED_FUNCTIONS(X)                                                         \
  X(none) X(relu) X(gelu) X(gelu_tanh) X(silu) X(tanh) X(sigmoid) X(leaky_relu)        \
  X(squared) X(absolute) X(huber)

// One operation in one direction. Numbers are indices of buffers and blocks, −1 for none.
#define UNDIVIDED_WHOLE_FIELDS(X)                                                             \
  X(backward)            /* 0: forward, 1: backward */                                        \
  X(x) X(y) X(z)         /* forward values: inputs x, z and output y; attention: x=q, z=k, v */ \
  X(v)                                                                                        \
  X(dx) X(dy) X(dz) X(dv)                             /* their gradients */                   \
  X(accumulate_x) X(accumulate_z) X(accumulate_v)     /* add to dx, dz, dv, not set them */   \
  X(mask)                /* gradients of x pass only where this value is positive */          \
  X(before)              /* what f was applied to, kept for its derivative */                 \
  X(probabilities)       /* softmax weights, [sample][head][query][key]; of all heads where */ \
                         /* the buffer's width is above 1, else room for one head's; linear */ \
                         /* attention: the sums of weights, [sample][head][query] */          \
  X(kept)                /* floats kept for each head of a sample there; embed: which list */ \
  X(whole_keys)          /* attention: longer rows go tile by tile */                         \
  X(key_heads)           /* attention: heads of keys and values, 0 for as many as of queries */ \
  X(causal)              /* linear attention: whether nobody sees what comes later */         \
  X(ruled)               /* attention: whether what follows says anything */                  \
  X(left) X(right)       /* attention: how far a query sees */                                \
  X(pattern)             /* attention: which block mask, or −1 */                             \
  X(distances)           /* attention: a block, numbers by head and distance, or beside a */  \
                         /* learned table its row for each distance; −1 for none */           \
  X(biases) X(d_biases)  /* attention: buffers, the table by distance and its gradient */     \
  X(turned)              /* linear: the weight is [out, in], a table that is tied */          \
  X(begins)              /* linear: whether nothing is in its weight's gradients before it */ \
  X(scratch)                                                                                  \
  X(weight) X(bias) X(table) X(gain) X(shift)         /* blocks */                            \
  X(heads)                                                                                    \
  X(height) X(across_image) X(depth) X(down) X(across) /* a picture, and a patch of it; of a */ \
                         /* vocabulary depth is its size, down the rows at a time */          \
  X(slot)                /* which input a load reads, which output array a store writes; which */ \
                         /* dropout this is; which attention's keys and values are kept */    \
  X(axis)                /* recall: the axis of its keys */

// Of a loss, the scale is the label smoothing, or Huber's δ.
#define UNDIVIDED_NUMBER_FIELDS(X) X(scale) X(offset) X(rate) X(softcap)

#define UNDIVIDED_LISTED(name) name,
enum class Kind : int64_t { UNDIVIDED_KINDS(UNDIVIDED_LISTED) };
enum class Function : int64_t { UNDIVIDED_FUNCTIONS(UNDIVIDED_LISTED) };
#undef UNDIVIDED_LISTED

struct Instruction {
  Kind kind;
  Function function;
#define UNDIVIDED_DECLARED(name) int64_t name;
  UNDIVIDED_WHOLE_FIELDS(UNDIVIDED_DECLARED)
#undef UNDIVIDED_DECLARED
#define UNDIVIDED_DECLARED(name) double name;
  UNDIVIDED_NUMBER_FIELDS(UNDIVIDED_DECLARED)
#undef UNDIVIDED_DECLARED
};

// A mask in blocks of 64 queries and 64 keys, as in AttentionCall.
struct Pattern {
  const int32_t* states;
  const uint64_t* words;
  int64_t across;
};

struct Program {
  const Instruction* instructions;
  int64_t instruction_count;
  const Buffer* buffers;
  const Block* blocks;
  const Axis* axes;
  int64_t axis_count;
  const Pattern* patterns;
  int64_t arena_floats;  // for one worker
  int64_t group;         // samples that go through the program together, at most
};

enum class Element : int64_t { kFloat, kByte, kId };  // float, uint8, int32

// One input of all samples, as the caller holds it. Fixed: sample i at i·sample_elements. Ragged:
// rows first_row[i] … first_row[i+1] of `row_elements` each.
struct Input {
  const void* x;
  Element element;
  int64_t sample_elements;
  const int64_t* first_row;
  int64_t row_elements;
};

struct Samples {
  Input inputs[kMostInputs];
};

// What outputs are to meet, a row at a time: the number of a class, or as many values as a row
// has. Sample i has the rows start[i] … start[i+1], or without `start` `rows` of them. A row
// counts `weights`, a sample `totals`; where these are null, 1 and `rows`.
struct Targets {
  const int32_t* classes;
  const float* values;
  int64_t value_count, width;  // of all values, and of a row
  const int64_t* start;
  int64_t rows;
  const float* weights;
  const double* totals;
};

// Keys and values of one attention that sequences keep, with room for `rows` of each. Keys lie
// turned, in tiles of 64 rows, values in rows of whole vectors:
//   keys [sequence][head][rows / 64][width][64]    values [sequence][head][rows][width padded]
struct Kept {
  float* keys;
  float* values;
  int64_t rows;
};

// What a slice adds to a table of which it touches few rows: the rows, in order, and which of the
// table's each belongs to.
struct List {
  int64_t count;
  int32_t* ids;
  float* rows;
};

// A group of samples on its way through a program, and everything its kernels may touch.
struct Work {
  const Program* program;
  float* arena;
  const float* parameters;
  const float* derived;   // transposed copies of the blocks
  float* gradients;       // flat, like parameters; added to
  int64_t first;          // whether the group is its slice's first
  List* lists;            // by an embed's `kept`; appended to
  const Samples* samples;
  const Targets* targets;
  const int64_t* members;          // the samples of this group, by index
  int64_t count;                   // how many
  const int64_t* row_start;        // [axis][group + 1]: where a sample's rows begin
  uint64_t seed;                   // what dropout draws from,
  int64_t step;                    // in this step; −1 where nothing is dropped
  int64_t place;                   // where in the batch the group begins
  float inverse_batch;             // 1 / what the rows of the batch count together
  double* loss;                    // added to
  const float* output_gradient;    // kSeed: [sample][output elements]
  const int64_t* output_gradient_start;  // where each sample begins in it; null for fixed
  float* const* outputs;           // kStore and kStoreWeights: one array for each slot
  const int64_t* output_elements;  // elements of a sample in each slot, where all have the same
  const int64_t* const* output_start;  // else where each sample begins; null for fixed
  const Kept* kept;                // one for each slot of keep and recall
  const int64_t* sequences;        // which sequence each sample goes on with,
  const int64_t* positions;        // and how many rows it has already
};

// Rules of update. One call changes the floats [begin, end) of a block's rows.
enum class Rule : int64_t { kSgd, kMomentum, kAdam };

struct Update {
  Rule rule;
  double learning_rate;
  float momentum;
  int64_t nesterov;
  float fresh_1, fresh_2;  // 1 − β₁ and 1 − β₂, which float32 cannot tell from β exactly
  float epsilon;
  float correction_1, correction_2;  // 1/(1−β₁ᵗ), 1/(1−β₂ᵗ)
  double weight_decay;
  float clip_value;                  // every number of a gradient is kept within ±; or infinite
  float clip_norm;                   // infinite where the norm does not matter
  float factor;                      // of all gradients, after their norm is known
  int64_t shift;                     // from a place among the parameters to that among gradients
  int64_t epsilon_inside_root;
  float* parameters;
  float* derived;
  float* slots[2];
  const float* const* gradients;  // one array for each slice
  int64_t slices;
};

// What a fold's two directions work on. `sums` has the layout of a slice's gradients and holds
// their sum for the fold's result; `total` has that of the parameters.
struct FoldWork {
  const Block* blocks;
  const float* parameters;
  float* derived;
  const float* const* parts;
  int64_t slices;
  float* sums;
  float* total;
};

// What each instruction set offers.
struct Kernels {
  const char* name;
  int64_t lanes;
  void (*run)(const Work&);
  void (*update)(const Update&, const Block&, int64_t first_row, int64_t last_row);
  void (*transpose)(const Block&, const float* parameters, float* derived, int64_t first_row,
                    int64_t last_row);
  double (*square_sum)(const Update&, const float* const* parts, int64_t slices, int64_t from,
                       int64_t floats);
  void (*sum)(const float* const* parts, int64_t count, int64_t from, float* to, int64_t floats);
  void (*fold)(const FoldWork&, const Fold&, bool backward);
  const AttentionKernels<float>* floats;
  const AttentionKernels<double>* doubles;
  double (*peak)(int64_t rounds);  // multiply-adds done, for the benchmark's own measure
};

}  // namespace undivided
