// Embed: y[s] = table[ids[s]], straight from the caller's ids.
//
//   dtable[ids[s]] += dy[s], samples and tokens in their order; a large table's are listed
#pragma once

#include "layout.h"

namespace undivided::UNDIVIDED_SET {

// Calls each(id, row of the group) for all tokens.
template <class Each>
UNDIVIDED_INLINE void each_id(const Work& work, const Instruction& op, int64_t axis, Each each) {
  const Input& input = work.samples->inputs[op.slot];
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t first = first_of(input, work.members[s]), row = start_of(work, axis, s);
    int64_t count = rows_in(work, axis, s);
    for (int64_t i = 0; i < count; ++i)
      each(input.element == Element::kByte ? (int64_t)((const uint8_t*)input.x)[first + i]
                                           : (int64_t)((const int32_t*)input.x)[first + i],
           row + i);
  }
}

UNDIVIDED_INLINE void embed_forward(const Work& work, const Instruction& op) {
  const Buffer& y = buffer_of(work, op.y);
  const float* table = parameters_of(work, op.table);
  int64_t stride = block_of(work, op.table).stride;
  each_id(work, op, y.axis, [&](int64_t id, int64_t row) {
    float* to = row_of(work, op.y, row);
    for (int64_t c = 0; c < stride; c += kLanes) store(to + c, load(table + id * stride + c));
  });
}

UNDIVIDED_INLINE void embed_backward(const Work& work, const Instruction& op) {
  const Buffer& dy = buffer_of(work, op.dy);
  const Block& block = block_of(work, op.table);
  int64_t stride = block.stride;
  if (block.listed) {  // for the update to add: see Session
    List& list = work.lists[op.kept];
    return each_id(work, op, dy.axis, [&](int64_t id, int64_t row) {
      const float* from = row_of(work, op.dy, row);
      float* to = list.rows + list.count * stride;
      for (int64_t c = 0; c < stride; c += kLanes) store(to + c, load(from + c));
      list.ids[list.count++] = (int32_t)id;
    });
  }
  float* table = gradients_of(work, op.table);
  each_id(work, op, dy.axis, [&](int64_t id, int64_t row) {
    const float* from = row_of(work, op.dy, row);
    for (int64_t c = 0; c < stride; c += kLanes) give(table + id * stride + c, load(from + c), true);
  });
}

}  // namespace undivided::UNDIVIDED_SET
