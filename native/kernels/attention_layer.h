// Attention between the layers of a network: heads side by side in a row.
//
// S queries, T keys. Where everything is allowed and scores are nothing but products there are no
// rules. What depends on distance alone is one row of numbers a head, [distances]: number
// most + j − i is added to the score of query i and key j, so the steps of that grid are −1 and 1.
//
// Rows of up to `whole_keys` keys are whole, and kept for backward. Longer ones, and all where
// whole rows know no way (a softcap), go tile by tile and keep their log-sum-exp alone: what is
// kept grows with S, not with S². Which of the two it is depends on the sample's own length.
#pragma once

#include "attention_tiles.h"
#include "dropout.h"
#include "layout.h"
#include "rows.h"

namespace undivided::UNDIVIDED_SET {

// Room beside a row of distances, which tiles of whole vectors may touch.
constexpr int64_t kBeyond = kTile;

UNDIVIDED_INLINE int64_t heads_of_keys(const Instruction& op) {
  return op.key_heads ? op.key_heads : op.heads;
}

UNDIVIDED_INLINE Head<float> head_of(const Work& work, const Instruction& op, int64_t sample,
                                     int64_t head) {
  const Buffer &q = buffer_of(work, op.x), &k = buffer_of(work, op.z), &v = buffer_of(work, op.v);
  const Buffer& kept = buffer_of(work, op.probabilities);
  int64_t key_heads = heads_of_keys(op), shared = head / (op.heads / key_heads);
  Head<float> h{};
  h.width = q.width / op.heads;
  h.value_width = v.width / key_heads;
  h.q = row_of(work, op.x, start_of(work, q.axis, sample)) + head * h.width;
  h.k = row_of(work, op.z, start_of(work, k.axis, sample)) + shared * h.width;
  h.v = row_of(work, op.v, start_of(work, v.axis, sample)) + shared * h.value_width;
  h.q_stride = q.stride;
  h.k_stride = k.stride;
  h.v_stride = v.stride;
  h.queries = rows_in(work, q.axis, sample);
  h.keys = rows_in(work, k.axis, sample);
  h.keys_padded = h.stride = padded(h.keys);
  h.scale = (float)op.scale;
  h.alone = op.heads == 1;
  // A program that does not keep probabilities has room for one head.
  bool keeps = kept.width > 1;
  int64_t place = keeps ? sample * op.heads + head : 0;
  h.probabilities = values_of(work, op.probabilities) + place * op.kept;
  h.d_scores = h.probabilities;
  h.scratch = values_of(work, op.scratch);
  return h;
}

// How far the numbers of two heads lie apart, where a learned table is spread over distances.
UNDIVIDED_INLINE int64_t distance_stride(const Work& work, const Instruction& op) {
  return padded(block_of(work, op.distances).width);
}

// The numbers that are added to the scores of one head by distance, from that of distance 0 on;
// null where there are none. A learned table has a number for each bucket of distances.
UNDIVIDED_INLINE float* by_distance(const Work& work, const Instruction& op, int64_t head) {
  if (op.distances < 0) return nullptr;
  const Block& distances = block_of(work, op.distances);
  int64_t most = distances.width / 2;
  if (op.table < 0)
    return const_cast<float*>(parameters_of(work, op.distances)) + head * distances.stride + most;
  return values_of(work, op.biases) + head * distance_stride(work, op) + most;
}

// Spreads a learned table [buckets][heads] over distances, once a group.
UNDIVIDED_INLINE void spread_table(const Work& work, const Instruction& op) {
  if (op.table < 0) return;
  const Block &distances = block_of(work, op.distances), &table = block_of(work, op.table);
  const float *bucket = parameters_of(work, op.distances), *numbers = parameters_of(work, op.table);
  for (int64_t head = 0; head < op.heads; ++head) {
    float* to = values_of(work, op.biases) + head * distance_stride(work, op);
    for (int64_t d = 0; d < distances.width; ++d)
      to[d] = numbers[(int64_t)bucket[d] * table.stride + head];
  }
}

UNDIVIDED_INLINE Rules<float> rules_of(const Work& work, const Instruction& op,
                                       const Head<float>& h, int64_t sample, int64_t head) {
  Rules<float> rules{};
  rules.keys = h.keys;
  rules.left = op.left;
  rules.right = op.right;
  if (op.pattern >= 0) {
    const Pattern& pattern = work.program->patterns[op.pattern];
    rules.states = pattern.states;
    rules.patterns = pattern.words;
    rules.blocks_across = pattern.across;
  }
  rules.bias = by_distance(work, op, head);
  rules.bias_row = -1;
  rules.bias_key = 1;
  rules.softcap = (float)op.softcap;
  if (op.rate > 0 && work.step >= 0) {
    rules.seed = work.seed;
    rules.drop_below = (uint32_t)(op.rate * 4294967296.0);
    rules.kept_factor = (float)(1.0 / (1.0 - op.rate));
    rules.first_row = head * h.queries;
    rules.row_tiles = (h.keys + kTile - 1) / kTile;
    rules.place = (uint32_t)(work.place + sample);
    rules.step = (uint32_t)work.step;
    rules.purpose = kDropout + (uint32_t)op.slot;
  }
  return rules;
}

UNDIVIDED_INLINE bool all_finite(const float* rows, int64_t stride, int64_t count, int64_t width) {
  Vector total{};  // x·0 is 0 unless x is NaN or infinite
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < width; c += kLanes)
      total += lanes_below(width - c) ? load(rows + r * stride + c) * 0.0f : Vector{};
  return sum(total) == 0;
}
UNDIVIDED_INLINE bool keys_are_finite(const Head<float>& h) {
  return all_finite(h.k, h.k_stride, h.keys, h.width) &&
         all_finite(h.v, h.v_stride, h.keys, h.value_width);
}

UNDIVIDED_INLINE bool is_streamed(const Instruction& op, const Head<float>& h) {
  return h.keys > op.whole_keys;
}

// The columns of one head as rows of whole vectors, in scratch.
UNDIVIDED_INLINE float* packed_rows(const float* from, int64_t stride, int64_t count,
                                    int64_t width, float*& scratch) {
  float* to = scratch;
  int64_t columns = padded(width);
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < columns; c += kLanes)
      store(to + r * columns + c,
            lanes_below(width - c) ? load(from + r * stride + c) : Vector{});
  scratch += count * columns;
  return to;
}

UNDIVIDED_INLINE Stream<float> stream_of(const Head<float>& h, float*& scratch) {
  Stream<float> s{};
  s.q = packed_rows(h.q, h.q_stride, h.queries, h.width, scratch);
  s.k = packed_rows(h.k, h.k_stride, h.keys, h.width, scratch);
  s.v = packed_rows(h.v, h.v_stride, h.keys, h.value_width, scratch);
  s.q_stride = s.k_stride = s.width = padded(h.width);
  s.v_stride = s.value_width = padded(h.value_width);
  s.queries = h.queries;
  s.keys = h.keys;
  s.scale = h.scale;
  s.rules = h.rules;
  s.careful = h.careful;
  return s;
}

UNDIVIDED_INLINE void streamed_forward(const Head<float>& h, float* to, int64_t to_stride) {
  float* scratch = h.scratch;
  Stream<float> s = stream_of(h, scratch);
  float* out = scratch;
  scratch += h.queries * s.value_width;
  for (int64_t first = 0; first < h.queries; first += kQueries) {
    int64_t end = first + kQueries < h.queries ? first + kQueries : h.queries;
    stream_forward(s, first, end, out, s.value_width, h.probabilities, scratch);
  }
  for (int64_t r = 0; r < h.queries; ++r)
    for (int64_t c = 0; c < h.value_width; ++c)
      to[r * to_stride + c] = out[r * s.value_width + c];
}

UNDIVIDED_INLINE void add_columns(float* to, int64_t to_stride, bool accumulate,
                                  const float* from, int64_t count, int64_t width) {
  if (!to) return;
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < width; ++c) {
      float& place = to[r * to_stride + c];
      float value = from[r * padded(width) + c];
      place = accumulate ? place + value : value;
    }
}

// `y` is what forward gave, the columns of this head.
UNDIVIDED_INLINE void streamed_backward(const Head<float>& h, const HeadGradients<float>& g,
                                        const float* y, int64_t y_stride) {
  float* scratch = h.scratch;
  Stream<float> s = stream_of(h, scratch);
  int64_t D = s.width, F = s.value_width;
  StreamGradients<float> to{};
  to.d_out = packed_rows(g.dy, g.dy_stride, h.queries, h.value_width, scratch);
  to.d_out_stride = F;
  to.lse = h.probabilities;
  float* delta = scratch;
  for (int64_t r = 0; r < h.queries; ++r) {
    Vector total{};
    for (int64_t c = 0; c < h.value_width; c += kLanes)
      total += lanes_below(h.value_width - c)
                   ? load(g.dy + r * g.dy_stride + c) * load(y + r * y_stride + c)
                   : Vector{};
    delta[r] = sum(total);
  }
  to.delta = delta;
  scratch += padded(h.queries);
  float* dq = scratch;
  scratch += h.queries * D;
  for (int64_t i = 0; i < h.queries * D; i += kLanes) store(dq + i, Vector{});
  to.dq = g.dq ? dq : nullptr;
  to.dq_stride = D;
  float *d_keys = scratch, *d_values = d_keys + kTile * D;
  float *keys_turned = d_values + kTile * F, *values_turned = keys_turned + kTile * D;
  scratch = values_turned + kTile * F;
  to.d_keys = g.dk ? d_keys : nullptr;
  to.d_values = g.dv ? d_values : nullptr;
  for (int64_t key = 0; key < h.keys; key += kTile) {
    int64_t keys = h.keys - key < kTile ? h.keys - key : kTile;
    for (int64_t i = 0; i < kTile * (D + F); i += kLanes) store(d_keys + i, Vector{});
    turn_tile(s.k + key * D, D, keys, D, keys_turned);
    turn_tile(s.v + key * F, F, keys, F, values_turned);
    stream_backward(s, to, keys_turned, values_turned, key / kTile, scratch);
    if (g.dk) add_columns(g.dk + key * g.dk_stride, g.dk_stride, g.add_k, d_keys, keys, h.width);
    if (g.dv)
      add_columns(g.dv + key * g.dv_stride, g.dv_stride, g.add_v, d_values, keys, h.value_width);
  }
  add_columns(g.dq, g.dq_stride, g.add_q, dq, h.queries, h.width);
}

UNDIVIDED_INLINE void attention_forward(const Work& work, const Instruction& op) {
  const Buffer& y = buffer_of(work, op.y);
  spread_table(work, op);
  for (int64_t s = 0; s < work.count; ++s) {
    float* to = row_of(work, op.y, start_of(work, y.axis, s));
    clear_padding(to, y, rows_in(work, y.axis, s));
    for (int64_t i = 0; i < op.heads; ++i) {
      Head<float> h = head_of(work, op, s, i);
      Rules<float> rules = rules_of(work, op, h, s, i);
      h.careful = op.ruled && !keys_are_finite(h);
      if (op.ruled || is_streamed(op, h)) h.rules = &rules;
      if (is_streamed(op, h)) streamed_forward(h, to + i * h.value_width, y.stride);
      else head_forward(h, to + i * h.value_width, y.stride);
    }
  }
}

// The gradients of a learned table's numbers, from those of all distances.
UNDIVIDED_INLINE void gather_table(const Work& work, const Instruction& op) {
  const Block &distances = block_of(work, op.distances), &table = block_of(work, op.table);
  const float* bucket = parameters_of(work, op.distances);
  float* to = gradients_of(work, op.table);
  int64_t stride = distance_stride(work, op);
  for (int64_t d = 0; d < distances.width; ++d)
    for (int64_t head = 0; head < op.heads; ++head)
      to[(int64_t)bucket[d] * table.stride + head] +=
          values_of(work, op.d_biases)[kBeyond + head * stride + d];
}

UNDIVIDED_INLINE void attention_backward(const Work& work, const Instruction& op) {
  const Buffer& dy = buffer_of(work, op.dy);
  auto begin_sample = [&](int64_t buffer, int64_t sample, bool accumulate) {
    if (buffer < 0 || accumulate) return;
    const Buffer& b = buffer_of(work, buffer);
    clear_padding(row_of(work, buffer, start_of(work, b.axis, sample)), b,
                  rows_in(work, b.axis, sample));
  };
  int64_t together = op.heads / heads_of_keys(op);  // heads that share keys and values
  if (op.d_biases >= 0) {
    int64_t stride = distance_stride(work, op);
    for (int64_t i = 0; i < op.heads * stride + 2 * kBeyond; i += kLanes)
      store(values_of(work, op.d_biases) + i, Vector{});
  }
  for (int64_t s = 0; s < work.count; ++s) {
    begin_sample(op.dx, s, op.accumulate_x);
    begin_sample(op.dz, s, op.accumulate_z);
    begin_sample(op.dv, s, op.accumulate_v);
    for (int64_t i = 0; i < op.heads; ++i) {
      Head<float> h = head_of(work, op, s, i);
      HeadGradients<float> g{};
      g.dy = row_of(work, op.dy, start_of(work, dy.axis, s)) + i * h.value_width;
      g.dy_stride = dy.stride;
      Rules<float> rules = rules_of(work, op, h, s, i);
      if (op.d_biases >= 0) {
        int64_t stride = distance_stride(work, op);
        rules.d_bias = values_of(work, op.d_biases) + kBeyond + i * distance_stride(work, op) +
                       block_of(work, op.distances).width / 2;
        rules.d_bias_row = -1;
        rules.d_bias_key = 1;
      }
      h.careful = op.ruled && !(keys_are_finite(h) &&
                                all_finite(h.q, h.q_stride, h.queries, h.width) &&
                                all_finite(g.dy, g.dy_stride, h.queries, h.value_width));
      if (op.ruled || is_streamed(op, h)) h.rules = &rules;
      // The columns of this head in the gradient of one input, from the sample's first row.
      auto columns_of = [&](int64_t buffer, int64_t column, float*& at, int64_t& stride) {
        if (buffer < 0) return;
        const Buffer& b = buffer_of(work, buffer);
        at = row_of(work, buffer, start_of(work, b.axis, s)) + column;
        stride = b.stride;
      };
      columns_of(op.dx, i * h.width, g.dq, g.dq_stride);
      columns_of(op.dz, i / together * h.width, g.dk, g.dk_stride);
      columns_of(op.dv, i / together * h.value_width, g.dv, g.dv_stride);
      g.add_q = op.accumulate_x;
      g.add_k = op.accumulate_z || i % together > 0;
      g.add_v = op.accumulate_v || i % together > 0;
      if (is_streamed(op, h))
        streamed_backward(h, g, row_of(work, op.y, start_of(work, dy.axis, s)) + i * h.value_width,
                          buffer_of(work, op.y).stride);
      else head_backward(h, g);
    }
  }
  if (op.d_biases >= 0) gather_table(work, op);
}

// Attention weights [heads][queries][keys] of each sample.
UNDIVIDED_INLINE void store_weights(const Work& work, const Instruction& op) {
  for (int64_t s = 0; s < work.count; ++s) {
    float* to = output_of(work, op.slot, work.members[s]);
    for (int64_t i = 0; i < op.heads; ++i) {
      Head<float> h = head_of(work, op, s, i);
      if (is_streamed(op, h)) {
        Rules<float> rules = rules_of(work, op, h, s, i);
        h.rules = &rules;
        float* scratch = h.scratch;
        Stream<float> stream = stream_of(h, scratch);
        for (int64_t row = 0; row < h.queries; ++row, to += h.keys)
          stream_weights(stream, h.probabilities, &row, 1, to, h.keys, scratch);
        continue;
      }
      for (int64_t row = 0; row < h.queries; ++row)
        for (int64_t j = 0; j < h.keys; ++j) *to++ = h.probabilities[row * h.stride + j];
    }
  }
}

}  // namespace undivided::UNDIVIDED_SET
