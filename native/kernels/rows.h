// Where the rows of a group lie.
#pragma once

#include "vector.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE const Buffer& buffer_of(const Work& work, int64_t index) {
  return work.program->buffers[index];
}
UNDIVIDED_INLINE const Block& block_of(const Work& work, int64_t index) {
  return work.program->blocks[index];
}
UNDIVIDED_INLINE float* values_of(const Work& work, int64_t index) {
  return work.arena + buffer_of(work, index).offset;
}
UNDIVIDED_INLINE const float* parameters_of(const Work& work, int64_t block) {
  const Block& b = block_of(work, block);
  return (b.trained ? work.parameters : work.derived) + b.offset;
}
UNDIVIDED_INLINE float* gradients_of(const Work& work, int64_t block) {
  return work.gradients + block_of(work, block).gradient;
}

// Samples lie end to end: sample s has the rows from start_of(s) to start_of(s + 1).
UNDIVIDED_INLINE int64_t start_of(const Work& work, int64_t axis, int64_t sample) {
  return work.row_start[axis * (work.program->group + 1) + sample];
}
UNDIVIDED_INLINE int64_t rows_of(const Work& work, int64_t axis) {
  return start_of(work, axis, work.count);
}
UNDIVIDED_INLINE int64_t rows_in(const Work& work, int64_t axis, int64_t sample) {
  return start_of(work, axis, sample + 1) - start_of(work, axis, sample);
}
UNDIVIDED_INLINE float* row_of(const Work& work, int64_t index, int64_t row) {
  return values_of(work, index) + row * buffer_of(work, index).stride;
}
// Where in its sequence the first of a sample's rows stands.
UNDIVIDED_INLINE int64_t position_of(const Work& work, int64_t axis, int64_t sample) {
  return work.program->axes[axis].continued ? work.positions[work.members[sample]] : 0;
}
UNDIVIDED_INLINE int64_t padded(int64_t width) { return (width + kPad - 1) / kPad * kPad; }

// Whoever writes rows number by number leaves their padding to this.
UNDIVIDED_INLINE void clear_padding(float* rows, const Buffer& buffer, int64_t count) {
  int64_t last = buffer.width / kLanes * kLanes;  // where the first vector with padding begins
  for (int64_t r = 0; r < count; ++r, rows += buffer.stride)
    for (int64_t c = last; c < padded(buffer.width); c += kLanes)
      store(rows + c, lanes_below(buffer.width - c) ? load(rows + c) : Vector{});
}

// to = from, or to += from.
UNDIVIDED_INLINE void give(float* to, Vector value, bool accumulate) {
  store(to, accumulate ? load(to) + value : value);
}

}  // namespace undivided::UNDIVIDED_SET
