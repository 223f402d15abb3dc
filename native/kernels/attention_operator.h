// The attention operator: a call cut into items of work, which any thread may take in any order.
//
// What an item writes nobody else writes, and how a call is cut depends on its shapes alone, so
// the bits do not depend on threads.
#pragma once

#include "attention_tiles.h"

namespace undivided::UNDIVIDED_SET {

// Whole rows are a matter of speed, and doubles are for checks.
template <class T>
constexpr bool kStreamsAlways = false;
template <>
constexpr bool kStreamsAlways<double> = true;

constexpr int64_t kWholeRows = 1024;  // of one head in an item, where rows of P are whole

UNDIVIDED_INLINE int64_t cuts(int64_t count, int64_t each) { return (count + each - 1) / each; }
UNDIVIDED_INLINE int64_t to_tiles(int64_t keys) { return cuts(keys, kTile) * kTile; }
UNDIVIDED_INLINE int64_t to_pad(int64_t keys) { return cuts(keys, kPad) * kPad; }

template <class T>
UNDIVIDED_INLINE T* rows_at(const Rows<T>& rows, const int64_t* start, int64_t sample,
                            int64_t head) {
  if (!rows.at) return nullptr;
  int64_t first = start ? start[sample] * rows.row : sample * rows.sample;
  return rows.at + first + head * rows.head;
}
template <class T>
UNDIVIDED_INLINE T* grid_at(const Grid<T>& grid, int64_t sample, int64_t head) {
  return grid.at ? grid.at + sample * grid.sample + head * grid.head : nullptr;
}
template <class T>
UNDIVIDED_INLINE int64_t queries_of(const AttentionCall<T>& call, int64_t sample) {
  return call.query_lengths ? call.query_lengths[sample] : call.queries;
}
template <class T>
UNDIVIDED_INLINE int64_t place_of(const AttentionCall<T>& call, int64_t sample, int64_t head) {
  return (sample * call.heads + head) * call.queries;
}

template <class T>
UNDIVIDED_INLINE Rules<T> rules_of(const AttentionCall<T>& call, int64_t sample, int64_t head) {
  Rules<T> rules{};
  rules.keys = call.key_lengths ? call.key_lengths[sample] : call.keys;
  rules.offset = call.offsets ? call.offsets[sample] : call.offset;
  rules.left = call.left;
  rules.right = call.right;
  rules.mask = grid_at(call.mask, sample, head);
  rules.mask_row = call.mask.row;
  rules.mask_key = call.mask.key;
  rules.states = call.block_states;
  rules.patterns = call.block_patterns;
  rules.blocks_across = call.blocks_across;
  rules.bias = grid_at(call.bias, sample, head);
  rules.bias_row = call.bias.row;
  rules.bias_key = call.bias.key;
  rules.softcap = (T)call.softcap;
  rules.sink = call.sinks ? call.sinks + head : nullptr;
  rules.seed = call.seed;
  rules.stream = (uint32_t)(sample * call.heads + head);
  rules.drop_below = call.drop_below;
  rules.kept_factor = (T)call.kept_factor;
  rules.d_bias = grid_at(call.d_bias, sample, head);
  rules.d_bias_row = call.d_bias.row;
  rules.d_bias_key = call.d_bias.key;
  return rules;
}

// Whether a pair of a real query and a real key may be forbidden, or a score be anything but a
// scaled product.
template <class T>
UNDIVIDED_INLINE bool is_ruled(const AttentionCall<T>& call) {
  return call.mask.at || call.block_states || call.bias.at || call.sinks ||
         call.left < call.queries + call.keys || call.right < call.queries + call.keys ||
         call.offsets || call.offset || call.softcap != 0 || call.drop_below;
}

// x·0 is 0 unless x is NaN or infinite.
template <class T>
UNDIVIDED_INLINE bool has_non_finite(const T* rows, int64_t stride, int64_t count, int64_t width) {
  VectorOf<T> total{};
  for (int64_t r = 0; r < count; ++r)
    for (int64_t c = 0; c < width; c += lanes_of<T>) total += load(rows + r * stride + c) * T(0);
  return sum(total) != 0;
}

template <class T>
UNDIVIDED_INLINE Stream<T> stream_of(const AttentionCall<T>& call, const Rules<T>& rules,
                                     int64_t sample, int64_t head) {
  int64_t shared = head / (call.heads / call.key_heads);
  Stream<T> h{};
  h.q = rows_at(call.query, call.query_start, sample, head);
  h.k = rows_at(call.key, call.key_start, sample, shared);
  h.v = rows_at(call.value, call.key_start, sample, shared);
  h.q_stride = call.query.row;
  h.k_stride = call.key.row;
  h.v_stride = call.value.row;
  h.queries = queries_of(call, sample);
  h.keys = rules.keys;
  h.width = call.width;
  h.value_width = call.value_width;
  h.scale = (T)call.scale;
  h.rules = &rules;
  return h;
}

// Whether NaN or infinity in these keys and values could reach rows that may not attend to them.
template <class T>
UNDIVIDED_INLINE bool needs_care(const AttentionCall<T>& call, const Stream<T>& h) {
  return is_ruled(call) && (has_non_finite(h.k, h.k_stride, h.keys, h.width) ||
                            has_non_finite(h.v, h.v_stride, h.keys, h.value_width));
}

// The same head for whole rows of P, from row `first`.
template <class T>
UNDIVIDED_INLINE Head<T> whole_of(const Stream<T>& s, bool ruled, int64_t first, int64_t count,
                                  T* probabilities, T* scratch) {
  Head<T> h{};
  h.q = s.q + first * s.q_stride;
  h.k = s.k;
  h.v = s.v;
  h.q_stride = s.q_stride;
  h.k_stride = s.k_stride;
  h.v_stride = s.v_stride;
  h.queries = count;
  h.keys = s.keys;
  h.keys_padded = h.stride = to_pad(s.keys);
  h.width = s.width;
  h.value_width = s.value_width;
  h.scale = s.scale;
  h.probabilities = probabilities;
  h.d_scores = probabilities;
  h.scratch = scratch;
  h.rules = ruled ? s.rules : nullptr;
  h.sink = s.rules->sink;
  h.first_row = first;
  h.careful = s.careful;
  return h;
}

template <class T>
UNDIVIDED_INLINE int64_t rows_in_item(const AttentionCall<T>& call) {
  return call.streams ? kQueries : kWholeRows;
}

template <class T>
UNDIVIDED_INLINE void forward_item(const AttentionCall<T>& call, int64_t item, T* scratch) {
  int64_t chunks = cuts(call.queries, rows_in_item(call));
  int64_t sample = item / chunks / call.heads, head = item / chunks % call.heads;
  int64_t first = item % chunks * rows_in_item(call);
  Rules<T> rules = rules_of(call, sample, head);
  Stream<T> s = stream_of(call, rules, sample, head);
  s.careful = needs_care(call, s);
  int64_t last = first + rows_in_item(call);
  int64_t end = last < s.queries ? last : s.queries;
  T* out = rows_at(call.out, call.query_start, sample, head);
  T* lse = call.lse ? call.lse + place_of(call, sample, head) : nullptr;

  if (end <= first) {
  } else if (kStreamsAlways<T> || call.streams) {
    stream_forward(s, first, end, out, call.out.row, lse, scratch);
  } else if constexpr (!kStreamsAlways<T>) {
    bool ruled = is_ruled(call);
    int64_t keys_padded = to_pad(s.keys), most = to_pad(call.keys);
    T* kept = call.probabilities
                  ? call.probabilities + place_of(call, sample, head) * most
                  : nullptr;
    T* turned = scratch + kBlock * most;
    Turned<T> turned_keys = turn(s.k, s.k_stride, s.keys, keys_padded, s.width, turned);
    in_tiles(end - first, kBlock, [&](int64_t count, int64_t row) {
      row += first;
      Head<T> h = whole_of(s, ruled, row, count, kept ? kept + row * most : scratch, turned);
      if (kept) h.stride = most;
      h.lse = lse ? lse + row : nullptr;
      T* to = out + row * call.out.row;
      // Where rows of P are longer than this sample's keys their ends have to be 0.
      if (kept && most > keys_padded)
        for (int64_t r = 0; r < count; ++r)
          for (int64_t c = keys_padded; c < most; c += lanes_of<T>)
            store(h.probabilities + r * most + c, VectorOf<T>{});
      weights_of(h, turned_keys);
      head_product<false>(to, call.out.row, false, h.careful, count, s.value_width,
                          h.probabilities, h.stride, s.v, s.v_stride, s.keys, (T*)nullptr, false);
    });
  }
  if (call.query_start) return;
  int64_t stop = last < call.queries ? last : call.queries, most = to_pad(call.keys);
  T* kept = call.probabilities ? call.probabilities + place_of(call, sample, head) * most : nullptr;
  for (int64_t r = first > end ? first : end; r < stop; ++r) {
    for (int64_t c = 0; c < call.value_width; c += lanes_of<T>)
      store(out + r * call.out.row + c, VectorOf<T>{});
    if (lse) lse[r] = T(-kInfinity);
    for (int64_t c = 0; c < most && kept; c += lanes_of<T>)
      store(kept + r * most + c, VectorOf<T>{});
  }
}

// Rows of dO ∘ O, summed in the order in which dO·Vᵀ is: where one key has all the weight of a row
// O is its value, and what Δ is taken from is then the same number to the bit. A row that may attend
// to nothing has an O of 0, which takes nothing from dO, not even NaN.
template <class T>
UNDIVIDED_INLINE void delta_item(const AttentionCall<T>& call, int64_t item) {
  constexpr int64_t R = 8;  // rows whose chains overlap
  int64_t sample = item / call.heads, head = item % call.heads, F = call.value_width;
  const T* d_out = rows_at(call.d_out, call.query_start, sample, head);
  const T* out = rows_at(call.given_out, call.query_start, sample, head);
  T* delta = call.delta + place_of(call, sample, head);
  auto some_rows = [&](auto rows, int64_t row) {
    T total[decltype(rows)::value] = {};
    const T *d = d_out + row * call.d_out.row, *o = out + row * call.given_out.row;
    for (int64_t c = 0; c < F; ++c)
#pragma GCC unroll 8
      for (int r = 0; r < decltype(rows)::value; ++r) {
        T of = o[r * call.given_out.row + c];
        total[r] += (of != 0 ? d[r * call.d_out.row + c] : T(0)) * of;
      }
    for (int r = 0; r < decltype(rows)::value; ++r) delta[row + r] = total[r];
  };
  int64_t row = 0, queries = queries_of(call, sample);
  for (; row + R <= queries; row += R) some_rows(Count<R>{}, row);
  for (; row < queries; ++row) some_rows(Count<1>{}, row);
}

// What an item of backward knows of one head.
template <class T>
struct BackwardHead {
  Rules<T> rules;
  Stream<T> stream;
  const T *d_out, *lse, *delta;
  T* dq;
};

template <class T>
UNDIVIDED_INLINE void prepare_backward(const AttentionCall<T>& call, int64_t sample, int64_t head,
                                       int64_t slice, int64_t part, BackwardHead<T>& b) {
  b.rules = rules_of(call, sample, head);
  if (b.rules.d_bias) b.rules.d_bias += slice * call.d_bias_slice + part * call.d_bias_part;
  b.stream = stream_of(call, b.rules, sample, head);
  b.d_out = rows_at(call.d_out, call.query_start, sample, head);
  b.lse = call.lse ? call.lse + place_of(call, sample, head) : nullptr;
  b.delta = call.delta ? call.delta + place_of(call, sample, head) : nullptr;
  b.dq = rows_at(call.d_query, call.query_start, sample, head);
  if (b.dq) b.dq += part * call.d_query_part;
}

template <class T>
UNDIVIDED_INLINE bool needs_care(const AttentionCall<T>& call, const BackwardHead<T>& b) {
  const Stream<T>& s = b.stream;
  return needs_care(call, s) ||
         (is_ruled(call) && (has_non_finite(s.q, s.q_stride, s.queries, s.width) ||
                             has_non_finite(b.d_out, call.d_out.row, s.queries, s.value_width)));
}

template <class T>
UNDIVIDED_INLINE void whole_backward(const AttentionCall<T>& call, const BackwardHead<T>& b,
                                     int64_t sample, int64_t head, T* scratch) {
  if (b.stream.queries == 0 || b.stream.keys == 0) return;
  int64_t group = call.heads / call.key_heads, shared = head / group;
  int64_t most = to_pad(call.keys);
  bool ruled = is_ruled(call);
  Head<T> h = whole_of(b.stream, ruled, 0, b.stream.queries, scratch,
                       scratch + call.queries * most);
  if (call.probabilities) {
    h.probabilities = call.probabilities + place_of(call, sample, head) * most;
    h.stride = most;
  } else {  // the same P again, where it stays in the cache
    weights_of(h, turn(h.k, h.k_stride, h.keys, h.keys_padded, h.width, h.scratch));
  }
  HeadGradients<T> g{};
  g.dy = b.d_out;
  g.dy_stride = call.d_out.row;
  g.dq = b.dq;
  g.dk = rows_at(call.d_key, call.key_start, sample, shared);
  g.dv = rows_at(call.d_value, call.key_start, sample, shared);
  g.dq_stride = call.d_query.row;
  g.dk_stride = call.d_key.row;
  g.dv_stride = call.d_value.row;
  g.add_k = g.add_v = head % group > 0;
  head_backward(h, g);
}

// All query heads that share these keys, over the tiles of one part.
template <class T>
UNDIVIDED_INLINE void stream_backward_part(const AttentionCall<T>& call, int64_t sample,
                                           int64_t shared, int64_t slice, int64_t part,
                                           T* scratch) {
  constexpr int L = lanes_of<T>;
  int64_t group = call.heads / call.key_heads, D = call.width, F = call.value_width;
  int64_t tiles = cuts(call.keys, kTile);
  T *keys_turned = scratch, *values_turned = keys_turned + D * kTile;
  T *d_keys = values_turned + F * kTile, *d_values = d_keys + D * kTile;
  T* blocks = d_values + F * kTile;
  T* dk = rows_at(call.d_key, call.key_start, sample, shared);
  T* dv = rows_at(call.d_value, call.key_start, sample, shared);
  bool careful = false;
  BackwardHead<T> b;
  for (int64_t i = 0; i < group && !careful; ++i) {
    prepare_backward(call, sample, shared * group + i, slice, part, b);
    careful = needs_care(call, b);
  }
  for (int64_t tile = part * tiles / call.parts; tile < (part + 1) * tiles / call.parts; ++tile) {
    int64_t key = tile * kTile;
    for (int64_t i = 0; i < (D + F) * kTile; i += L) store(d_keys + i, VectorOf<T>{});
    for (int64_t i = 0; i < group; ++i) {
      prepare_backward(call, sample, shared * group + i, slice, part, b);
      Stream<T>& s = b.stream;
      s.careful = careful;
      int64_t keys = s.keys - key < kTile ? s.keys - key : kTile;
      if (keys <= 0) return;
      if (i == 0) {
        turn_tile(s.k + key * s.k_stride, s.k_stride, keys, D, keys_turned);
        turn_tile(s.v + key * s.v_stride, s.v_stride, keys, F, values_turned);
      }
      StreamGradients<T> g{};
      g.d_out = b.d_out;
      g.d_out_stride = call.d_out.row;
      g.lse = b.lse;
      g.delta = b.delta;
      g.dq = b.dq;
      g.dq_stride = call.d_query.row;
      g.d_keys = dk ? d_keys : nullptr;
      g.d_values = dv ? d_values : nullptr;
      stream_backward(s, g, keys_turned, values_turned, tile, blocks);
    }
    int64_t keys = b.stream.keys - key < kTile ? b.stream.keys - key : kTile;
    for (int64_t r = 0; r < keys; ++r) {
      for (int64_t c = 0; c < D && dk; c += L)
        store(dk + (key + r) * call.d_key.row + c, load(d_keys + r * D + c));
      for (int64_t c = 0; c < F && dv; c += L)
        store(dv + (key + r) * call.d_value.row + c, load(d_values + r * F + c));
    }
  }
}

template <class T>
UNDIVIDED_INLINE void backward_item(const AttentionCall<T>& call, int64_t item, T* scratch) {
  int64_t part = item % call.parts, unit = item / call.parts % call.head_units;
  int64_t slice = item / call.parts / call.head_units;
  int64_t group = call.heads / call.key_heads, shared = call.key_heads / call.head_units;
  for (int64_t sample = slice * call.samples / call.slices;
       sample < (slice + 1) * call.samples / call.slices; ++sample)
    for (int64_t g = unit * shared; g < (unit + 1) * shared; ++g) {
      if (kStreamsAlways<T> || call.streams) {
        stream_backward_part(call, sample, g, slice, part, scratch);
      } else if constexpr (!kStreamsAlways<T>) {
        for (int64_t head = g * group; head < (g + 1) * group; ++head) {
          BackwardHead<T> b;
          prepare_backward(call, sample, head, slice, part, b);
          b.stream.careful = needs_care(call, b);
          whole_backward(call, b, sample, head, scratch);
        }
      }
    }
}

// Weights of the heads and rows that were asked for, of one sample and one of those heads.
template <class T>
UNDIVIDED_INLINE void weights_item(const AttentionCall<T>& call, int64_t item, T* scratch) {
  int64_t sample = item / call.weight_head_count, which = item % call.weight_head_count;
  int64_t head = call.weight_heads[which];
  Rules<T> rules = rules_of(call, sample, head);
  Stream<T> s = stream_of(call, rules, sample, head);
  stream_weights(s, call.lse + place_of(call, sample, head), call.weight_rows,
                 call.weight_row_count,
                 call.weights + item * call.weight_row_count * call.keys, call.keys, scratch);
}

// How many items a phase has, and how many numbers of scratch a thread needs for one.
template <class T>
UNDIVIDED_INLINE AttentionSize size_of(const AttentionCall<T>& call, AttentionPhase phase) {
  int64_t heads = call.samples * call.heads, most = to_pad(call.keys);
  int64_t turned = (call.width > call.value_width ? call.width : call.value_width) *
                   to_tiles(call.keys);
  int64_t backward = call.slices * call.head_units * call.parts;
  switch (phase) {
    case AttentionPhase::kForward:
      return {heads * cuts(call.queries, rows_in_item(call)),
              call.streams ? stream_forward_scratch(call.width, call.value_width)
                           : kBlock * most + turned};
    case AttentionPhase::kDelta: return {heads, 0};
    case AttentionPhase::kBackward:
      return {backward, call.streams ? stream_backward_scratch(call.width, call.value_width)
                                     : (call.queries + most_rows(1)) * most + turned};
    case AttentionPhase::kWeights:
      return {call.samples * call.weight_head_count, (call.width + most_rows(1)) * kTile};
  }
  return {0, 0};
}

template <class T>
UNDIVIDED_INLINE void run_item(const AttentionCall<T>& call, AttentionPhase phase, int64_t item,
                               T* scratch) {
  switch (phase) {
    case AttentionPhase::kForward: return forward_item(call, item, scratch);
    case AttentionPhase::kDelta: return delta_item(call, item);
    case AttentionPhase::kBackward: return backward_item(call, item, scratch);
    case AttentionPhase::kWeights: return weights_item(call, item, scratch);
  }
}

}  // namespace undivided::UNDIVIDED_SET
