// Attention between the layers of a network: heads side by side in a row, everything allowed.
#pragma once

#include "attention.h"
#include "rows.h"

namespace undivided::UNDIVIDED_SET {

UNDIVIDED_INLINE Head<float> head_of(const Work& work, const Instruction& op, int64_t sample,
                                     int64_t head) {
  const Buffer &q = buffer_of(work, op.x), &k = buffer_of(work, op.z), &v = buffer_of(work, op.v);
  const Buffer& kept = buffer_of(work, op.probabilities);
  int64_t most_keys = padded(work.program->axes[k.axis].most);
  int64_t most_queries = work.program->axes[q.axis].most;
  Head<float> h{};
  h.width = q.width / op.heads;
  h.value_width = v.width / op.heads;
  h.q = row_of(work, op.x, start_of(work, q.axis, sample)) + head * h.width;
  h.k = row_of(work, op.z, start_of(work, k.axis, sample)) + head * h.width;
  h.v = row_of(work, op.v, start_of(work, v.axis, sample)) + head * h.value_width;
  h.q_stride = q.stride;
  h.k_stride = k.stride;
  h.v_stride = v.stride;
  h.queries = rows_in(work, q.axis, sample);
  h.keys = rows_in(work, k.axis, sample);
  h.keys_padded = h.stride = padded(h.keys);
  h.scale = (float)op.scale;
  // A program that does not keep probabilities has room for one head.
  bool keeps = kept.width > 1;
  int64_t place = keeps ? sample * op.heads + head : 0;
  h.probabilities = values_of(work, op.probabilities) + place * most_queries * most_keys;
  h.d_scores = h.probabilities;
  h.scratch = values_of(work, op.scratch);
  return h;
}

UNDIVIDED_INLINE void attention_forward(const Work& work, const Instruction& op) {
  const Buffer& y = buffer_of(work, op.y);
  for (int64_t s = 0; s < work.count; ++s) {
    float* to = row_of(work, op.y, start_of(work, y.axis, s));
    clear_padding(to, y, rows_in(work, y.axis, s));
    for (int64_t i = 0; i < op.heads; ++i) {
      Head<float> h = head_of(work, op, s, i);
      head_forward(h, to + i * h.value_width, y.stride);
    }
  }
}

UNDIVIDED_INLINE void attention_backward(const Work& work, const Instruction& op) {
  const Buffer& dy = buffer_of(work, op.dy);
  auto begin_sample = [&](int64_t buffer, int64_t sample, bool accumulate) {
    if (buffer < 0 || accumulate) return;
    const Buffer& b = buffer_of(work, buffer);
    clear_padding(row_of(work, buffer, start_of(work, b.axis, sample)), b,
                  rows_in(work, b.axis, sample));
  };
  for (int64_t s = 0; s < work.count; ++s) {
    begin_sample(op.dx, s, op.accumulate_x);
    begin_sample(op.dz, s, op.accumulate_z);
    begin_sample(op.dv, s, op.accumulate_v);
    for (int64_t i = 0; i < op.heads; ++i) {
      Head<float> h = head_of(work, op, s, i);
      HeadGradients<float> g{};
      g.dy = row_of(work, op.dy, start_of(work, dy.axis, s)) + i * h.value_width;
      g.dy_stride = dy.stride;
      // The columns of this head in the gradient of one input, from the sample's first row.
      auto columns_of = [&](int64_t buffer, int64_t width, float*& at, int64_t& stride) {
        if (buffer < 0) return;
        const Buffer& b = buffer_of(work, buffer);
        at = row_of(work, buffer, start_of(work, b.axis, s)) + i * width;
        stride = b.stride;
      };
      columns_of(op.dx, h.width, g.dq, g.dq_stride);
      columns_of(op.dz, h.width, g.dk, g.dk_stride);
      columns_of(op.dv, h.value_width, g.dv, g.dv_stride);
      g.add_q = op.accumulate_x;
      g.add_k = op.accumulate_z;
      g.add_v = op.accumulate_v;
      head_backward(h, g);
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
