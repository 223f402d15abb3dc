// Folds: the weight of two linear layers in a row, and the way back to each.
//
// With R the result, L and M the two weights, l and m their biases:
//   plain:  R = L·M     r = l·M + m     dL = dR·Mᵀ   dM = Lᵀ·dR + lᵀ·dr   dl = dr·Mᵀ   dm = dr
//   turned: R = L·Mᵀ    r = l·Mᵀ        dL = dR·M    dM = dRᵀ·L + drᵀ·l   dl = dr·M    dm = 0
// Turned, m adds the same to all scores of a query, which a softmax does not see.
#pragma once

#include "matrix.h"
#include "update.h"

namespace undivided::UNDIVIDED_SET {

// A block's numbers, its place among the total gradients, and its transposed copy.
struct Side {
  const Block* block;
  const float* values;
  float* gradient;
  const float* transposed;
};

UNDIVIDED_INLINE Side side_of(const FoldWork& work, int64_t index) {
  if (index < 0) return {};
  const Block& block = work.blocks[index];
  return {&block, work.parameters + block.offset, work.total + block.offset,
          work.derived + block.transposed};
}

UNDIVIDED_INLINE void fold_forward(const FoldWork& work, const Fold& fold) {
  Side left = side_of(work, fold.left), right = side_of(work, fold.right);
  Side left_bias = side_of(work, fold.left_bias), right_bias = side_of(work, fold.right_bias);
  const Block& result = work.blocks[fold.result];
  const float* factor = fold.turned ? right.transposed : right.values;
  int64_t stride = fold.turned ? right.block->transposed_stride : right.block->stride;
  Product<float> p{};
  p.c = work.derived + result.offset;
  p.ldc = result.stride;
  product<false>(p, result.rows, result.stride, left.values, left.block->stride, factor, stride,
                 left.block->width);
  if (fold.result_bias >= 0) {
    p.c = work.derived + work.blocks[fold.result_bias].offset;
    if (right_bias.block && !fold.turned) p.bias = right_bias.values;
    product<false>(p, 1, result.stride, left_bias.values, left.block->stride, factor, stride,
                   left_bias.block ? left.block->width : 0);
  }
  transpose_rows(result, work.parameters, work.derived, 0, result.rows);
}

UNDIVIDED_INLINE const float* summed(const FoldWork& work, const Block& block) {
  float* to = work.sums + block.gradient;
  with_tree_sum(work.parts, work.slices, [&](auto at) {
    for (int64_t i = 0; i < block.rows * block.stride; i += kLanes)
      store(to + i, at(block.gradient + i));
  });
  return to;
}

UNDIVIDED_INLINE void fold_backward(const FoldWork& work, const Fold& fold) {
  Side left = side_of(work, fold.left), right = side_of(work, fold.right);
  Side left_bias = side_of(work, fold.left_bias), right_bias = side_of(work, fold.right_bias);
  const Block& result = work.blocks[fold.result];
  const float* dr = summed(work, result);
  const float* dr_bias =
      fold.result_bias < 0 ? nullptr : summed(work, work.blocks[fold.result_bias]);
  const float* factor = fold.turned ? right.values : right.transposed;
  int64_t stride = fold.turned ? right.block->stride : right.block->transposed_stride;

  Product<float> p{};
  p.c = left.gradient;
  p.ldc = left.block->stride;
  product<false>(p, left.block->rows, left.block->stride, dr, result.stride, factor, stride,
                 result.width);
  if (left_bias.block) {
    p.c = left_bias.gradient;
    product<false>(p, 1, left.block->stride, dr_bias, result.stride, factor, stride,
                   result.width);
  }

  p = {};
  p.c = right.gradient;
  p.ldc = right.block->stride;
  const float* first = fold.turned ? dr : left.values;
  const float* second = fold.turned ? left.values : dr;
  int64_t first_stride = fold.turned ? result.stride : left.block->stride;
  int64_t second_stride = fold.turned ? left.block->stride : result.stride;
  product<true>(p, right.block->rows, right.block->stride, first, first_stride, second,
                second_stride, left.block->rows);
  if (left_bias.block) {  // an outer product: one more row of what is summed
    p.accumulate = true;
    product<true>(p, right.block->rows, right.block->stride,
                  fold.turned ? dr_bias : left_bias.values, first_stride,
                  fold.turned ? left_bias.values : dr_bias, second_stride, 1);
  }
  if (right_bias.block && !fold.turned)
    for (int64_t i = 0; i < result.stride; i += kLanes)
      store(right_bias.gradient + i, load(dr_bias + i));
}

}  // namespace undivided::UNDIVIDED_SET
