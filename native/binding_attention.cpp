// What Python sees of the attention operator: one function a type of numbers. The checks that a
// user may fail are made in Python (undivided/_operator); here arrays are what they are said to be.

#include "binding_attention.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/attention.h"
#include "engine/program.h"
#include "engine/recycled.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace undivided {
namespace {

template <class T>
using Array = std::optional<nb::ndarray<T, nb::device::cpu>>;
using Numbers = std::optional<nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu>>;

// [sample][head][row][number], the numbers side by side.
template <class T>
Rows<T> rows_of(const Array<T>& array) {
  if (!array) return {};
  if (array->ndim() != 4) throw nb::value_error("expected an array of four axes");
  if (array->shape(3) > 1 && array->stride(3) != 1)
    throw nb::value_error("expected the numbers of a row side by side");
  return {array->data(), array->stride(0), array->stride(1), array->stride(2)};
}

// Axes of one element count for all.
template <class T>
Grid<T> grid_of(const Array<T>& array) {
  if (!array) return {};
  if (array->ndim() != 4) throw nb::value_error("expected an array of four axes");
  auto step = [&](size_t axis) { return array->shape(axis) == 1 ? 0 : array->stride(axis); };
  return {array->data(), step(0), step(1), step(2), step(3)};
}

// How far a window reaches that has no bound: beyond any length, and far from overflowing.
constexpr int64_t kUnbounded = 1ll << 40;

const int64_t* numbers_of(const Numbers& array) { return array ? array->data() : nullptr; }

template <class T, const AttentionKernels<T>* Kernels::*kernels>
void attend(const std::string& set, int64_t phase,
            int threads, int64_t queries, int64_t keys, const Array<const T>& query, const Array<const T>& key, const Array<const T>& value,
            const Array<T>& out, const Array<T>& lse, const Array<T>& probabilities,
            const Array<const uint8_t>& mask,
            const std::optional<nb::ndarray<const int32_t, nb::c_contig, nb::device::cpu>>& states,
            const std::optional<nb::ndarray<const uint64_t, nb::c_contig, nb::device::cpu>>&
                patterns,
            const Array<const T>& bias, const Array<const T>& sinks, const Numbers& query_start,
            const Numbers& key_start, const Numbers& query_lengths, const Numbers& key_lengths,
            const Numbers& offsets, const Array<T>& weights, const Numbers& weight_heads,
            const Numbers& weight_rows, const Array<const T>& d_out,
            const Array<const T>& given_out, const Array<T>& d_query, const Array<T>& d_key,
            const Array<T>& d_value, const Array<T>& d_bias, const Array<T>& delta,
            double scale, double softcap, int64_t offset,
            int64_t left, int64_t right, uint64_t seed, int64_t drop_below, double kept_factor,
            bool streams, int64_t slices, int64_t head_units, int64_t parts, int64_t d_query_part,
            int64_t d_bias_slice, int64_t d_bias_part) {
  AttentionCall<T> call{};
  call.query = rows_of(query);
  call.key = rows_of(key);
  call.value = rows_of(value);
  call.out = rows_of(out);
  call.samples = query_start ? (int64_t)query_start->size() : (int64_t)query->shape(0);
  call.heads = query->shape(1);
  call.key_heads = key->shape(1);
  call.width = query->shape(3);
  call.value_width = value->shape(3);
  call.queries = queries;
  call.keys = keys;
  call.scale = scale;
  call.softcap = softcap;
  call.query_start = numbers_of(query_start);
  call.key_start = numbers_of(key_start);
  call.query_lengths = numbers_of(query_lengths);
  call.key_lengths = numbers_of(key_lengths);
  call.offsets = numbers_of(offsets);
  call.offset = offset;
  call.left = left;
  call.right = right;
  call.mask = grid_of(mask);
  if (states) {
    call.block_states = states->data();
    call.block_patterns = patterns->data();
    call.blocks_across = states->shape(1);
  }
  call.bias = grid_of(bias);
  call.sinks = sinks ? sinks->data() : nullptr;
  call.seed = seed;
  call.drop_below = (uint32_t)drop_below;
  call.kept_factor = kept_factor;
  call.lse = lse ? lse->data() : nullptr;
  call.probabilities = probabilities ? probabilities->data() : nullptr;
  call.streams = streams;
  call.weights = weights ? weights->data() : nullptr;
  call.weight_heads = numbers_of(weight_heads);
  call.weight_rows = numbers_of(weight_rows);
  call.weight_head_count = weight_heads ? (int64_t)weight_heads->size() : 0;
  call.weight_row_count = weight_rows ? (int64_t)weight_rows->size() : 0;
  call.d_out = rows_of(d_out);
  call.given_out = rows_of(given_out);
  call.d_query = rows_of(d_query);
  call.d_query_part = d_query_part;
  call.d_key = rows_of(d_key);
  call.d_value = rows_of(d_value);
  call.d_bias = grid_of(d_bias);
  call.d_bias_slice = d_bias_slice;
  call.d_bias_part = d_bias_part;
  call.delta = delta ? delta->data() : nullptr;
  call.slices = slices;
  call.head_units = head_units;
  call.parts = parts;
  nb::gil_scoped_release release;
  run_attention(*(kernels_named(set)->*kernels), call, (AttentionPhase)phase, threads);
}

// A short call: float32 arrays in one piece, every score a scaled product, rows of P whole. Arrays
// come as addresses, 0 where there is none, which costs a tenth of what it takes to exchange them.
void attend_short(const std::string& set, int64_t phase, int threads,
                  const std::array<int64_t, 7>& sizes, double scale, bool causal, uintptr_t query,
                  uintptr_t key, uintptr_t value, uintptr_t out, uintptr_t probabilities,
                  uintptr_t d_out, uintptr_t d_query, uintptr_t d_key, uintptr_t d_value) {
  auto [B, H, shared, S, T, D, F] = sizes;
  auto given = [](uintptr_t at, int64_t heads, int64_t rows, int64_t width) {
    return Rows<const float>{(const float*)at, heads * rows * width, rows * width, width};
  };
  auto found = [](uintptr_t at, int64_t heads, int64_t rows, int64_t width) {
    return Rows<float>{(float*)at, heads * rows * width, rows * width, width};
  };
  AttentionCall<float> call{};
  call.samples = B;
  call.heads = H;
  call.key_heads = shared;
  call.queries = S;
  call.keys = T;
  call.width = D;
  call.value_width = F;
  call.scale = scale;
  call.left = kUnbounded;
  call.right = causal ? 0 : kUnbounded;
  call.kept_factor = 1;
  call.query = given(query, H, S, D);
  call.key = given(key, shared, T, D);
  call.value = given(value, shared, T, F);
  call.out = found(out, H, S, F);
  call.probabilities = (float*)probabilities;
  call.d_out = given(d_out, H, S, F);
  call.d_query = found(d_query, H, S, D);
  call.d_key = found(d_key, shared, T, D);
  call.d_value = found(d_value, shared, T, F);
  call.slices = B;
  call.head_units = shared;
  call.parts = 1;
  nb::gil_scoped_release release;
  run_attention(*kernels_named(set)->floats, call, (AttentionPhase)phase, threads);
}

// What `attend_short` takes for an array of NumPy's: its address.
uintptr_t address(const nb::ndarray<nb::numpy, nb::device::cpu>& array) {
  return (uintptr_t)array.data();
}

// An array of recycled memory, which goes back when the array and all that share it are gone.
nb::ndarray<nb::numpy, float> recycled(const std::vector<size_t>& shape) {
  size_t bytes = sizeof(float);
  for (size_t n : shape) bytes *= n;
  void* memory = take_recycled(bytes);
  nb::capsule owner(memory, [](void* p) noexcept { give_back(p); });
  return {memory, shape.size(), shape.data(), owner};
}

}  // namespace

#define UNDIVIDED_ARGUMENTS                                                                     \
  "set"_a, "phase"_a, "threads"_a, "queries"_a, "keys"_a, "query"_a, "key"_a, "value"_a,        \
      "out"_a.none() = nb::none(), "lse"_a.none() = nb::none(),                                 \
      "probabilities"_a.none() = nb::none(), "mask"_a.none() = nb::none(),                      \
      "states"_a.none() = nb::none(), "patterns"_a.none() = nb::none(),                         \
      "bias"_a.none() = nb::none(), "sinks"_a.none() = nb::none(),                              \
      "query_start"_a.none() = nb::none(), "key_start"_a.none() = nb::none(),                   \
      "query_lengths"_a.none() = nb::none(), "key_lengths"_a.none() = nb::none(),               \
      "offsets"_a.none() = nb::none(), "weights"_a.none() = nb::none(),                         \
      "weight_heads"_a.none() = nb::none(), "weight_rows"_a.none() = nb::none(),                \
      "d_out"_a.none() = nb::none(), "given_out"_a.none() = nb::none(),                         \
      "d_query"_a.none() = nb::none(), "d_key"_a.none() = nb::none(),                           \
      "d_value"_a.none() = nb::none(), "d_bias"_a.none() = nb::none(),                          \
      "delta"_a.none() = nb::none(), "scale"_a = 1.0, "softcap"_a = 0.0, "offset"_a = 0,        \
      "left"_a = kUnbounded, "right"_a = kUnbounded, "seed"_a = 0, "drop_below"_a = 0,          \
      "kept_factor"_a = 1.0, "streams"_a = false, "slices"_a = 1, "head_units"_a = 1,           \
      "parts"_a = 1, "d_query_part"_a = 0, "d_bias_slice"_a = 0, "d_bias_part"_a = 0

void bind_attention(nb::module_& m) {
  m.def("attend_float32", &attend<float, &Kernels::floats>, UNDIVIDED_ARGUMENTS);
  m.def("attend_float64", &attend<double, &Kernels::doubles>, UNDIVIDED_ARGUMENTS);
  m.def("attend_short", &attend_short);
  m.def("address", &address);
  m.def("recycled", &recycled);
  m.attr("UNBOUNDED") = kUnbounded;
}

}  // namespace undivided
