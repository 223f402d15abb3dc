// Attention of a sequence that goes on: new rows of queries, and the keys and values of all rows.
//
// `keep` puts new keys and values behind those of earlier calls; `recall` looks at all of them. Keys
// are kept as Q·Kᵀ reads them, transposed, so that a new token costs what it reads and no more. Rows
// of weights are whole, some at a time, whatever their length.
#pragma once

#include "attention_layer.h"

namespace undivided::UNDIVIDED_SET {

// New rows that look at kept keys together: room for their weights is the schedule's.
constexpr int64_t kRecalled = 48;

// What one head of a sequence keeps.
struct KeptHead {
  float *keys, *values;
  int64_t width, value_width;  // of values: that of whole vectors
};

UNDIVIDED_INLINE KeptHead kept_head(const Work& work, const Instruction& op, int64_t sample,
                                    int64_t head, int64_t width, int64_t value_width) {
  const Kept& kept = work.kept[op.slot];
  int64_t at = work.sequences[work.members[sample]] * heads_of_keys(op) + head;
  value_width = padded(value_width);
  return {kept.keys + at * kept.rows * width, kept.values + at * kept.rows * value_width, width,
          value_width};
}

UNDIVIDED_INLINE void keep_forward(const Work& work, const Instruction& op) {
  const Buffer &z = buffer_of(work, op.z), &v = buffer_of(work, op.v);
  int64_t width = z.width / op.key_heads, value_width = v.width / op.key_heads;
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t first = position_of(work, z.axis, s), rows = rows_in(work, z.axis, s);
    for (int64_t head = 0; head < op.key_heads; ++head) {
      KeptHead kept = kept_head(work, op, s, head, width, value_width);
      for (int64_t r = 0; r < rows; ++r) {
        const float* key = row_of(work, op.z, start_of(work, z.axis, s) + r) + head * width;
        const float* value = row_of(work, op.v, start_of(work, v.axis, s) + r) + head * value_width;
        int64_t row = first + r;
        float* keys = kept.keys + row / kTile * kTile * width + row % kTile;
        for (int64_t c = 0; c < width; ++c) keys[c * kTile] = key[c];
        for (int64_t c = 0; c < value_width; ++c) kept.values[row * kept.value_width + c] = value[c];
      }
    }
  }
}

// Only where somebody may not see something does it matter whether everything is finite.
UNDIVIDED_INLINE bool forbids(const Instruction& op, int64_t first, int64_t rows) {
  return op.ruled && (rows > 1 || op.left < first || op.pattern >= 0);
}

UNDIVIDED_INLINE void recall_forward(const Work& work, const Instruction& op) {
  const Buffer &x = buffer_of(work, op.x), &y = buffer_of(work, op.y);
  spread_table(work, op);
  int64_t key_heads = heads_of_keys(op), width = x.width / op.heads, F = y.width / op.heads;
  for (int64_t s = 0; s < work.count; ++s) {
    int64_t rows = rows_in(work, x.axis, s);
    int64_t keys = position_of(work, op.axis, s) + rows_in(work, op.axis, s);
    // Queries of a sequence are its last rows, or the last of these; those to a source stand apart.
    bool own = work.program->axes[op.axis].continued;
    int64_t first = own ? keys - rows : position_of(work, x.axis, s);
    float* to = row_of(work, op.y, start_of(work, y.axis, s));
    clear_padding(to, y, rows);
    for (int64_t i = 0; i < op.heads; ++i) {
      KeptHead kept = kept_head(work, op, s, i / (op.heads / key_heads), width, F);
      Head<float> h{};
      h.width = width;
      h.value_width = F;
      h.v = kept.values;
      h.v_stride = kept.value_width;
      h.q_stride = x.stride;
      h.keys = keys;
      h.keys_padded = h.stride = padded(keys);
      h.scale = (float)op.scale;
      h.probabilities = values_of(work, op.probabilities);
      h.scratch = values_of(work, op.scratch);
      Rules<float> rules = rules_of(work, op, h, s, i);
      if (op.ruled) h.rules = &rules;
      h.careful = forbids(op, first, rows) &&
                  !(all_finite(kept.keys, kTile, width * ((keys + kTile - 1) / kTile), kTile) &&
                    all_finite(h.v, h.v_stride, keys, F));
      Turned<float> turned{kept.keys, width, kTile};
      for (int64_t row = 0; row < rows; row += kRecalled) {
        h.q = row_of(work, op.x, start_of(work, x.axis, s) + row) + i * width;
        h.queries = rows - row < kRecalled ? rows - row : kRecalled;
        h.first_row = first + row;
        weights_of(h, turned);
        head_product<false>(to + row * y.stride + i * F, y.stride, false, h.careful, h.queries, F,
                            h.probabilities, h.stride, h.v, h.v_stride, keys, h.scratch, h.alone);
      }
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
