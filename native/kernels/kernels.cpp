// The kernels of one instruction set: compiled once for each, with its machine flags.

#include "attention_kept.h"
#include "attention_layer.h"
#include "binary_cross_entropy.h"
#include "cross_entropy.h"
#include "dropout.h"
#include "deviation.h"
#include "elementwise.h"
#include "embed.h"
#include "fold.h"
#include "gather.h"
#include "layout.h"
#include "linear.h"
#include "linear_attention.h"
#include "max_pool.h"
#include "multiply.h"
#include "normalize.h"
#include "rms_normalize.h"
#include "tokens.h"
#include "rotary.h"
#include "update.h"
#include "vocabulary.h"

#define UNDIVIDED_TEXT(x) #x
#define UNDIVIDED_NAME(x) UNDIVIDED_TEXT(x)

namespace undivided::UNDIVIDED_SET {
namespace {

void forward(const Work& work, const Instruction& op) {
  switch (op.kind) {
    case Kind::load: return load_forward(work, op);
    case Kind::linear: return linear_forward(work, op);
    case Kind::position: return position_forward(work, op);
    case Kind::attention: return attention_forward(work, op);
    case Kind::linear_attention: return linear_attention_forward(work, op);
    case Kind::normalize: return normalize_forward(work, op);
    case Kind::rms_normalize: return rms_normalize_forward(work, op);
    case Kind::activation: return activation_forward(work, op);
    case Kind::softmax: return softmax_forward(work, op);
    case Kind::multiply: return multiply_forward(work, op);
    case Kind::dropout: return dropout_forward(work, op);
    case Kind::gather: return gather_forward(work, op);
    case Kind::max_pool: return max_pool_forward(work, op);
    case Kind::learned: return learned_forward(work, op);
    case Kind::concatenate: return concatenate_forward(work, op);
    case Kind::add: return add_forward(work, op);
    case Kind::pool: return pool_forward(work, op);
    case Kind::reshape: return reshape_forward(work, op);
    case Kind::rescale: return rescale_forward(work, op);
    case Kind::unfold: return unfold_forward(work, op);
    case Kind::cross_entropy: return cross_entropy(work, op);
    case Kind::binary_cross_entropy: return binary_cross_entropy(work, op);
    case Kind::deviation: return deviation(work, op);
    case Kind::last: return last_forward(work, op);
    case Kind::keep: return keep_forward(work, op);
    case Kind::recall: return recall_forward(work, op);
    case Kind::vocabulary: return vocabulary(work, op);
    case Kind::embed: return embed_forward(work, op);
    case Kind::rotary: return rotary_forward(work, op);
    case Kind::store: return store_rows(work, op);
    case Kind::store_weights: return store_weights(work, op);
    case Kind::store_linear_weights: return store_linear_weights(work, op);
    default: return;
  }
}

void backward(const Work& work, const Instruction& op) {
  switch (op.kind) {
    case Kind::linear: return linear_backward(work, op);
    case Kind::position: return position_backward(work, op);
    case Kind::attention: return attention_backward(work, op);
    case Kind::linear_attention: return linear_attention_backward(work, op);
    case Kind::normalize: return normalize_backward(work, op);
    case Kind::rms_normalize: return rms_normalize_backward(work, op);
    case Kind::activation: return activation_backward(work, op);
    case Kind::softmax: return softmax_backward(work, op);
    case Kind::multiply: return multiply_backward(work, op);
    case Kind::dropout: return dropout_backward(work, op);
    case Kind::gather: return gather_backward(work, op);
    case Kind::max_pool: return max_pool_backward(work, op);
    case Kind::learned: return learned_backward(work, op);
    case Kind::concatenate: return concatenate_backward(work, op);
    case Kind::pool: return pool_backward(work, op);
    case Kind::reshape: return reshape_backward(work, op);
    case Kind::rescale: return rescale_backward(work, op);
    case Kind::unfold: return unfold_backward(work, op);
    case Kind::embed: return embed_backward(work, op);
    case Kind::rotary: return rotary_backward(work, op);
    case Kind::seed: return seed_backward(work, op);
    case Kind::copy: return copy_backward(work, op);
    default: return;
  }
}

void run(const Work& work) {
  const Program& program = *work.program;
  for (int64_t i = 0; i < program.instruction_count; ++i) {
    const Instruction& op = program.instructions[i];
    op.backward ? backward(work, op) : forward(work, op);
  }
}

void update(const Update& u, const Block& block, int64_t first, int64_t last) {
  update_rows(u, block, first, last);
}

void transpose(const Block& block, const float* parameters, float* derived, int64_t first,
               int64_t last) {
  transpose_rows(block, parameters, derived, first, last);
}

double square_sum(const Update& u, const float* const* parts, int64_t slices, int64_t from,
                  int64_t floats) {
  return square_sum_of(u, parts, slices, from, floats);
}

void sum_slices(const float* const* parts, int64_t count, int64_t from, float* to,
                int64_t floats) {
  with_tree_sum(parts, count, [&](auto at) {
    for (int64_t i = 0; i < floats; i += kLanes) store(to + i, at(from + i));
  });
}

void fold(const FoldWork& work, const Fold& fold, bool backward) {
  backward ? fold_backward(work, fold) : fold_forward(work, fold);
}

// Multiply-adds in sixteen independent chains, as many as the machine can do: what benchmarks
// call the peak. Returns how many were done.
double peak(int64_t rounds) {
  Vector chains[16];
  for (int i = 0; i < 16; ++i) chains[i] = fill((float)i);
  Vector factor = fill(0.999999f), term = fill(1e-6f);
  asm volatile("" : "+m"(factor), "+m"(term));
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < 12; ++i) chains[i] = chains[i] * factor + term;
  }
  Vector total{};
  for (int i = 0; i < 12; ++i) total += chains[i];
  asm volatile("" : : "m"(total));
  return (double)rounds * 12 * kLanes;
}

}  // namespace

extern const AttentionKernels<float> attention_of_floats;
extern const AttentionKernels<double> attention_of_doubles;
extern const Kernels kernels;
const Kernels kernels = {UNDIVIDED_NAME(UNDIVIDED_SET_NAME), kLanes, run, update, transpose,
                         square_sum, sum_slices, fold,
                         &attention_of_floats, &attention_of_doubles, peak};

}  // namespace undivided::UNDIVIDED_SET
