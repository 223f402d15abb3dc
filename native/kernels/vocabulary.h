// The last linear layer and its loss together, where a row of scores is long: a vocabulary's.
//
// The scores of a few rows at a time are computed, become their own gradients, and are gone:
//   s = x·W + b    loss += cross-entropy of s    ds in place of s
//   dW += xᵀ·ds    db += Σ ds    dx = ds·Wᵀ
#pragma once

#include "cross_entropy.h"
#include "linear.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE void vocabulary(const Work& work, const Instruction& op) {
  const Buffer& x = buffer_of(work, op.x);
  const LinearWeight weight = linear_weight(work, op);
  float* scores = values_of(work, op.scratch);
  LossRows rows{};
  rows.axis = x.axis;
  rows.width = op.depth;
  rows.x = rows.dx = scores;
  rows.x_stride = rows.dx_stride = weight.columns;
  int64_t all = rows_of(work, x.axis);
  for (int64_t first = 0; first < all; first = rows.last) {
    rows.first = first;
    rows.last = first + op.down < all ? first + op.down : all;
    int64_t count = rows.last - first;
    Product<float> p{};
    p.c = scores;
    p.ldc = weight.columns;
    if (op.bias >= 0) p.bias = parameters_of(work, op.bias);
    product<false>(p, count, weight.columns, row_of(work, op.x, first), x.stride, weight.rows,
                   weight.columns, weight.depth);
    over_rows(work, rows, [&](const LossRow& row) {
      return against_class(row, work.targets->classes[row.target], (float)op.scale);
    });
    linear_rows_backward(work, op, linear_rows(work, op, first, count, scores, weight.columns));
  }
}

}  // namespace undivided::UNDIVIDED_SET
