// Linear: y = f(x·W + bias + table), over the rows of a group.
//
// Forward reads W [in, out]; backward reads Wᵀ, whose copy the update keeps fresh. In the forward
// pass this was y = f(z), z = x·W + b + table[t]:
//   dz = dy ∘ f'(z)    dW += xᵀ·dz    db += Σ dz    dtable[t] += dz[t]    dx = dz·Wᵀ
#pragma once

#include "activation.h"
#include "matrix.h"
#include "rows.h"

namespace undivided::UNDIVIDED_SET {

// The weight as a product from the left reads it, [in, out].
struct LinearWeight {
  const float* rows;
  int64_t depth, columns;
};

UNDIVIDED_INLINE LinearWeight linear_weight(const Work& work, const Instruction& op) {
  const Block& weight = block_of(work, op.weight);
  if (op.turned)
    return {work.derived + weight.transposed, weight.width, weight.transposed_stride};
  return {parameters_of(work, op.weight), weight.rows, weight.stride};
}

UNDIVIDED_INLINE void linear_forward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &y = buffer_of(work, op.y);
  Product<float> p{};
  p.ldc = y.stride;
  p.relu = op.function == Function::relu;
  // What cannot be told from its result needs what it was applied to for its derivative; all but
  // relu follow as a pass of their own.
  int64_t result = op.before >= 0 ? op.before : op.y;
  if (op.bias >= 0) p.bias = parameters_of(work, op.bias);
  if (op.table >= 0) p.table_stride = block_of(work, op.table).stride;
  const LinearWeight weight = linear_weight(work, op);
  // A table starts anew with every sample; without one all rows of the group are one product.
  bool placed = op.table >= 0;
  int64_t pieces = placed ? work.count : 1;
  for (int64_t piece = 0; piece < pieces; ++piece) {
    int64_t first = placed ? start_of(work, y.axis, piece) : 0;
    int64_t last = placed ? start_of(work, y.axis, piece + 1) : rows_of(work, y.axis);
    if (placed)
      p.table = parameters_of(work, op.table) + position_of(work, y.axis, piece) * p.table_stride;
    p.c = row_of(work, result, first);
    product<false>(p, last - first, weight.columns, row_of(work, op.x, first), x.stride,
                   weight.rows, weight.columns, weight.depth);
  }
  if (op.function == Function::none || p.relu) return;
  int64_t rows = rows_of(work, y.axis);
  activate_all(op.function, values_of(work, result), values_of(work, op.y), rows * y.stride);
  if (op.function == Function::sigmoid) clear_padding(values_of(work, op.y), y, rows);
}

// total[column] += Σ_rows from[row][column], in four interleaved chains a column.
UNDIVIDED_INLINE void add_column_sums(const float* from, int64_t stride, int64_t rows,
                                      int64_t columns, float* total) {
  for (int64_t c = 0; c < columns; c += kLanes) {
    Vector sums[4] = {};
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) sums[i] += load(from + (r + i) * stride + c);
    for (; r < rows; ++r) sums[0] += load(from + r * stride + c);
    store(total + c, load(total + c) + ((sums[0] + sums[1]) + (sums[2] + sums[3])));
  }
}

// Rows of a linear layer on their way back.
struct LinearRows {
  int64_t count;
  const float* x;
  int64_t x_stride;
  const float* dz;
  int64_t dz_stride;
  float* dx;  // null where nothing above learns
  int64_t dx_stride;
  const float* mask;
  int64_t mask_stride;
};

// dW += xᵀ·dz    db += Σ dz    dx = dz·Wᵀ
// Weights are large: who is the first to add to their gradients sets them, so that they need not be
// cleared.
UNDIVIDED_INLINE void linear_rows_backward(const Work& work, const Instruction& op,
                                           const LinearRows& rows) {
  const Block& weight = block_of(work, op.weight);
  Product<float> weights{};
  weights.c = gradients_of(work, op.weight);
  weights.ldc = weight.stride;
  weights.accumulate = !(op.begins && work.first);
  if (op.turned)  // dW += dzᵀ·x
    product<true>(weights, weight.rows, weight.stride, rows.dz, rows.dz_stride, rows.x,
                  rows.x_stride, rows.count);
  else
    product<true>(weights, weight.rows, weight.stride, rows.x, rows.x_stride, rows.dz,
                  rows.dz_stride, rows.count);
  if (op.bias >= 0)
    add_column_sums(rows.dz, rows.dz_stride, rows.count, block_of(work, op.bias).stride,
                    gradients_of(work, op.bias));
  if (!rows.dx) return;
  Product<float> inputs{};
  inputs.c = rows.dx;
  inputs.ldc = rows.dx_stride;
  inputs.accumulate = op.accumulate_x;
  inputs.mask = rows.mask;
  inputs.mask_stride = rows.mask_stride;
  if (op.turned)  // dx = dz·W
    product<false>(inputs, rows.count, weight.stride, rows.dz, rows.dz_stride,
                   parameters_of(work, op.weight), weight.stride, weight.rows);
  else
    product<false>(inputs, rows.count, weight.transposed_stride, rows.dz, rows.dz_stride,
                   work.derived + weight.transposed, weight.transposed_stride, weight.width);
}

// The rows of a group from `first` on, as an instruction's buffers x, dx and mask hold them.
UNDIVIDED_INLINE LinearRows linear_rows(const Work& work, const Instruction& op, int64_t first,
                                        int64_t count, const float* dz, int64_t dz_stride) {
  LinearRows rows{};
  rows.count = count;
  rows.x = row_of(work, op.x, first);
  rows.x_stride = buffer_of(work, op.x).stride;
  rows.dz = dz;
  rows.dz_stride = dz_stride;
  if (op.dx >= 0) {
    rows.dx = row_of(work, op.dx, first);
    rows.dx_stride = buffer_of(work, op.dx).stride;
  }
  if (op.dx >= 0 && op.mask >= 0) {
    rows.mask = row_of(work, op.mask, first);
    rows.mask_stride = buffer_of(work, op.mask).stride;
  }
  return rows;
}

UNDIVIDED_INLINE void linear_backward(const Work& work, const Instruction& op) {
  const Buffer& dy = buffer_of(work, op.dy);
  int64_t rows = rows_of(work, dy.axis);
  float* dz = values_of(work, op.dy);
  if (op.function != Function::none) {
    const float* z = values_of(work, keeps_result(op.function) ? op.y : op.before);
    activation_gradient(op.function, z, dz, dz, rows * dy.stride, false);
  }
  if (op.table >= 0) {
    float* table = gradients_of(work, op.table);
    for (int64_t s = 0; s < work.count; ++s) {
      int64_t first = start_of(work, dy.axis, s), count = start_of(work, dy.axis, s + 1) - first;
      const float* from = dz + first * dy.stride;
      for (int64_t i = 0; i < count * dy.stride; i += kLanes)
        store(table + i, load(table + i) + load(from + i));
    }
  }
  linear_rows_backward(work, op, linear_rows(work, op, 0, rows, dz, dy.stride));
}

}  // namespace undivided::UNDIVIDED_SET
