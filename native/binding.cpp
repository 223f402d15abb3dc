// What Python sees of the native engine: sessions, the instruction sets, and a fast generator.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "binding_attention.h"
#include "engine/pool.h"
#include "engine/session.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace undivided {

// The instruction sets that were compiled (CMakeLists.txt).
#ifdef UNDIVIDED_HAS_v4
namespace v4 { extern const Kernels kernels; }
#endif
#ifdef UNDIVIDED_HAS_v3
namespace v3 { extern const Kernels kernels; }
#endif
#ifdef UNDIVIDED_HAS_v2
namespace v2 { extern const Kernels kernels; }
#endif
#ifdef UNDIVIDED_HAS_portable
namespace portable { extern const Kernels kernels; }
#endif

namespace {

// Those of them that this machine has, the widest first.
std::vector<const Kernels*> available() {
  std::vector<const Kernels*> sets;
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
#ifdef UNDIVIDED_HAS_v4
  if (__builtin_cpu_supports("x86-64-v4")) sets.push_back(&v4::kernels);
#endif
#ifdef UNDIVIDED_HAS_v3
  if (__builtin_cpu_supports("x86-64-v3")) sets.push_back(&v3::kernels);
#endif
#ifdef UNDIVIDED_HAS_v2
  if (__builtin_cpu_supports("x86-64-v2")) sets.push_back(&v2::kernels);
#endif
#ifdef UNDIVIDED_HAS_portable
  sets.push_back(&portable::kernels);
#endif
  return sets;
}

}  // namespace

const Kernels* kernels_named(const std::string& name) {
  static const std::vector<const Kernels*> sets = available();
  for (const Kernels* set : sets)
    if (name == set->name) return set;
  throw nb::value_error(("no such instruction set on this machine: " + name).c_str());
}

namespace {

using Floats = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const int64_t, nb::c_contig, nb::device::cpu>;

template <class T>
std::vector<T> records(const nb::list& list, T (*read)(nb::handle)) {
  std::vector<T> result;
  for (nb::handle item : list) result.push_back(read(item));
  return result;
}

int64_t whole(nb::handle object, const char* name) { return nb::cast<int64_t>(object.attr(name)); }

Axis read_axis(nb::handle a) {
  return {whole(a, "rows"), whole(a, "most"), whole(a, "input"), whole(a, "continued")};
}
Buffer read_buffer(nb::handle b) {
  return {whole(b, "offset"), whole(b, "axis"), whole(b, "width"), whole(b, "stride")};
}
Block read_block(nb::handle b) {
  return {whole(b, "offset"),     whole(b, "rows"),
          whole(b, "width"),      whole(b, "stride"),
          whole(b, "transposed"), whole(b, "transposed_stride"),
          whole(b, "decays"),     nb::cast<double>(b.attr("rate")),
          whole(b, "trained"),
          whole(b, "gradient"),   whole(b, "listed")};
}
// Blocks of a mask: states [across queries][across keys] and words [patterns][64].
Cells read_cells(nb::handle p) {
  auto states = nb::cast<nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>>(
      p.attr("states"));
  auto words = nb::cast<nb::ndarray<const uint64_t, nb::c_contig, nb::device::cpu>>(
      p.attr("patterns"));
  return {{states.data(), states.data() + states.size()},
          {words.data(), words.data() + words.size()},
          (int64_t)states.shape(1)};
}
Fold read_fold(nb::handle f) {
  return {whole(f, "left"),       whole(f, "left_bias"), whole(f, "right"),
          whole(f, "right_bias"), whole(f, "result"),    whole(f, "result_bias"),
          whole(f, "turned")};
}
// Kinds and functions by the names that program.h lists them under.
int64_t named(nb::handle object, const char* name, std::initializer_list<const char*> known) {
  std::string wanted = nb::cast<std::string>(object.attr(name));
  int64_t number = 0;
  for (const char* each : known) {
    if (wanted == each) return number;
    ++number;
  }
  throw nb::value_error(("the native engine knows no " + std::string(name) + " " + wanted).c_str());
}

Instruction read_instruction(nb::handle i) {
  Instruction op{};
#define UNDIVIDED_QUOTED(name) #name,
  op.kind = (Kind)named(i, "kind", {UNDIVIDED_KINDS(UNDIVIDED_QUOTED)});
  op.function = (Function)named(i, "function", {UNDIVIDED_FUNCTIONS(UNDIVIDED_QUOTED)});
#undef UNDIVIDED_QUOTED
#define UNDIVIDED_READ(name) op.name = whole(i, #name);
  UNDIVIDED_WHOLE_FIELDS(UNDIVIDED_READ)
#undef UNDIVIDED_READ
#define UNDIVIDED_READ(name) op.name = nb::cast<double>(i.attr(#name));
  UNDIVIDED_NUMBER_FIELDS(UNDIVIDED_READ)
#undef UNDIVIDED_READ
  return op;
}

// The caller's samples. The arrays stay alive for as long as the caller's own references do,
// which is the length of the call.
using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

struct SamplesView {
  Samples samples{};
  std::vector<Array> x;
  std::vector<std::optional<Indices>> first_row;
  int64_t count = 0;
};

Input input_of(const Array& x, const std::optional<Indices>& first_row, int64_t& count) {
  Input input{};
  input.x = x.data();
  if (x.dtype() == nb::dtype<uint8_t>()) input.element = Element::kByte;
  else if (x.dtype() == nb::dtype<int32_t>()) input.element = Element::kId;
  else if (x.dtype() != nb::dtype<float>())
    throw nb::type_error("samples must be uint8, int32 or float32");
  int64_t rows = x.ndim() ? (int64_t)x.shape(0) : 0;
  int64_t each = rows ? (int64_t)x.size() / rows : 0;
  if (first_row) {
    input.first_row = first_row->data();
    input.row_elements = each;
    count = (int64_t)first_row->size() - 1;
  } else {
    input.sample_elements = each;
    count = rows;
  }
  return input;
}

void init_samples(SamplesView* view, std::vector<Array> x,
                  std::vector<std::optional<Indices>> first_row) {
  new (view) SamplesView{{}, x, first_row, 0};
  if (x.empty() || x.size() > (size_t)kMostInputs || x.size() != first_row.size())
    throw nb::value_error("samples of no input, of too many, or without their row starts");
  for (size_t i = 0; i < x.size(); ++i)
    view->samples.inputs[i] = input_of(x[i], first_row[i], view->count);
}

template <class T>
using Numbers = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;

// The caller's targets, alive as long as the samples are.
struct TargetsView {
  Targets targets{};
  std::optional<Numbers<int32_t>> classes;
  std::optional<Numbers<float>> values;
  std::optional<Indices> start;
  std::optional<Numbers<float>> weights;
  std::optional<Numbers<double>> totals;
};

void init_targets(TargetsView* view, std::optional<Numbers<int32_t>> classes,
                  std::optional<Numbers<float>> values, std::optional<Indices> start, int64_t rows,
                  std::optional<Numbers<float>> weights, std::optional<Numbers<double>> totals) {
  new (view) TargetsView{{}, classes, values, start, weights, totals};
  view->targets = {classes ? classes->data() : nullptr, values ? values->data() : nullptr,
                   values ? (int64_t)values->size() : 0,
                   values ? (int64_t)values->shape(1) : 0,
                   start ? start->data() : nullptr,     rows,
                   weights ? weights->data() : nullptr, totals ? totals->data() : nullptr};
}

struct Outputs {
  std::vector<float*> arrays;
  std::vector<int64_t> elements;
  std::vector<const int64_t*> starts;
};

Outputs outputs_of(const std::vector<Floats>& arrays, const std::vector<Indices>& starts,
                   int64_t count) {
  Outputs outputs;
  for (const Floats& array : arrays) {
    outputs.arrays.push_back(array.data());
    outputs.elements.push_back(count ? (int64_t)array.size() / count : 0);
  }
  for (const Indices& start : starts)
    outputs.starts.push_back(start.size() ? start.data() : nullptr);
  outputs.starts.resize(arrays.size(), nullptr);
  return outputs;
}

Work work_for(const SamplesView& view, const Floats& parameters, const Outputs& outputs) {
  Work work{};
  work.samples = &view.samples;
  work.parameters = parameters.data();
  work.outputs = outputs.arrays.data();
  work.output_elements = outputs.elements.data();
  work.output_start = outputs.starts.data();
  return work;
}

Update update_of(nb::handle rule, double learning_rate, int64_t step,
                 const std::vector<Floats>& slots) {
  auto number = [&](const char* name) { return nb::cast<double>(rule.attr(name)); };
  Update u{};
  u.rule = (Rule)whole(rule, "kind");
  u.learning_rate = learning_rate;
  u.momentum = (float)number("momentum");
  u.nesterov = whole(rule, "nesterov");
  u.fresh_1 = (float)(1.0 - number("beta_1"));
  u.fresh_2 = (float)(1.0 - number("beta_2"));
  u.epsilon = (float)number("epsilon");
  double grown_1 = 1.0 - std::pow(number("beta_1"), (double)step);
  double grown_2 = 1.0 - std::pow(number("beta_2"), (double)step);
  bool corrected = !whole(rule, "epsilon_uncorrected");
  u.correction_1 = (float)((corrected ? 1.0 : std::sqrt(grown_2)) / grown_1);
  u.correction_2 = (float)(corrected ? 1.0 / grown_2 : 1.0);
  u.weight_decay = number("weight_decay");
  u.clip_value = (float)number("clip_value");
  u.clip_norm = (float)number("clip_norm");
  u.epsilon_inside_root = whole(rule, "epsilon_inside_root");
  for (size_t i = 0; i < slots.size() && i < 2; ++i) u.slots[i] = slots[i].data();
  return u;
}

// Best multiply-adds per second over windows of `seconds`, all threads at once.
double measure_peak(const std::string& set, int threads, double seconds) {
  const Kernels* kernels = kernels_named(set);
  using Clock = std::chrono::steady_clock;
  std::vector<double> rates(threads);
  run_on_workers(threads, [&](int index) {
    double done = 0;
    auto start = Clock::now();
    std::chrono::duration<double> passed{};
    do {
      done += kernels->peak(20000);
      passed = Clock::now() - start;
    } while (passed.count() < seconds);
    rates[index] = done / passed.count();
  });
  double total = 0;
  for (double rate : rates) total += rate;
  return total;
}

// xorshift64 of the reference programs, output the high half.
uint32_t draw(uint64_t& state) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 32);
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "undivided's native engine; undivided.engines.native is its front.";

  m.def("instruction_sets", [] {
    std::vector<std::string> names;
    for (const Kernels* set : available()) names.push_back(set->name);
    return names;
  });
  m.def("lanes", [](const std::string& set) { return kernels_named(set)->lanes; }, "set"_a);
  m.def("measure_peak", &measure_peak, "set"_a, "threads"_a, "seconds"_a,
        nb::call_guard<nb::gil_scoped_release>());

  bind_attention(m);

  m.def("xorshift64_fill",
        [](uint64_t state, nb::ndarray<uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> out) {
          for (size_t i = 0; i < out.size(); ++i) out.data()[i] = draw(state);
          return state;
        },
        "state"_a, "out"_a);
  m.def("xorshift64_shuffle",
        [](uint64_t state, nb::ndarray<uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> a) {
          for (size_t i = a.size(); i-- > 1;) std::swap(a.data()[i], a.data()[draw(state) % (uint32_t)(i + 1)]);
          return state;
        },
        "state"_a, "order"_a);

  nb::class_<SamplesView>(m, "Samples")
      .def("__init__", &init_samples, "x"_a, "first_row"_a)
      .def_ro("count", &SamplesView::count);

  nb::class_<TargetsView>(m, "Targets")
      .def("__init__", &init_targets, "classes"_a.none(), "values"_a.none(), "start"_a.none(),
           "rows"_a, "weights"_a.none(), "totals"_a.none());

  nb::class_<Session>(m, "Session")
      .def("__init__",
           [](Session* self, const nb::list& instructions, const nb::list& buffers,
              const nb::list& blocks, const nb::list& folds, const nb::list& axes,
              int64_t arena_floats, int64_t group, int64_t parameter_floats,
              int64_t gradient_floats, const Floats& derived, const nb::list& patterns,
              const std::string& set) {
             new (self) Session(records(instructions, read_instruction),
                                records(buffers, read_buffer), records(blocks, read_block), records(folds, read_fold),
                                records(axes, read_axis), arena_floats, group, parameter_floats,
                                gradient_floats, derived.data(), (int64_t)derived.size(),
                                records(patterns, read_cells), kernels_named(set));
           },
           "instructions"_a, "buffers"_a, "blocks"_a, "folds"_a, "axes"_a, "arena_floats"_a, "group"_a,
           "parameter_floats"_a, "gradient_floats"_a, "derived"_a, "patterns"_a, "instruction_set"_a)
      .def("bytes", &Session::bytes)
      .def("run",
           [](Session& self, const Floats& parameters, const SamplesView& samples,
              const std::vector<Floats>& arrays, const std::vector<Indices>& starts,
              int threads) {
             Outputs outputs = outputs_of(arrays, starts, samples.count);
             Work work = work_for(samples, parameters, outputs);
             nb::gil_scoped_release release;
             self.run(work, samples.count, samples.count, threads, false);
           },
           "parameters"_a, "samples"_a, "outputs"_a, "starts"_a, "threads"_a)
      .def("go_on",
           [](Session& self, const Floats& parameters, const SamplesView& samples,
              const std::vector<Floats>& arrays, const std::vector<Floats>& keys,
              const std::vector<Floats>& values, const std::vector<int64_t>& rows,
              const Indices& sequences, const Indices& positions, int threads,
              bool same_parameters) {
             Outputs outputs = outputs_of(arrays, {}, samples.count);
             Work work = work_for(samples, parameters, outputs);
             std::vector<Kept> kept;
             for (size_t i = 0; i < rows.size(); ++i)
               kept.push_back({keys[i].data(), values[i].data(), rows[i]});
             work.kept = kept.data();
             work.sequences = sequences.data();
             work.positions = positions.data();
             nb::gil_scoped_release release;
             int64_t each = (samples.count + threads - 1) / threads;  // everybody has some
             self.run(work, samples.count, each, threads, same_parameters);
           },
           "parameters"_a, "samples"_a, "outputs"_a, "keys"_a, "values"_a, "rows"_a,
           "sequences"_a, "positions"_a, "threads"_a, "same_parameters"_a)
      .def("gradients",
           [](Session& self, const Floats& parameters, const SamplesView& samples,
              const TargetsView* targets, int64_t slice,
              const Floats& total, std::optional<Floats> output_gradient,
              const Indices& gradient_start, const std::vector<Floats>& arrays, const std::vector<Indices>& starts,
              int threads, uint64_t seed, int64_t step) {
             Outputs outputs = outputs_of(arrays, starts, samples.count);
             Work work = work_for(samples, parameters, outputs);
             work.seed = seed;
             work.step = step;
             if (targets) work.targets = &targets->targets;
             if (output_gradient) work.output_gradient = output_gradient->data();
             if (gradient_start.size()) work.output_gradient_start = gradient_start.data();
             nb::gil_scoped_release release;
             return self.gradients(work, samples.count, slice, total.data(), threads);
           },
           "parameters"_a, "samples"_a, "targets"_a.none(), "slice"_a, "total"_a,
           "output_gradient"_a.none(),
           "gradient_start"_a, "outputs"_a, "starts"_a, "threads"_a, "seed"_a = 0, "step"_a = -1)
      .def("train",
           [](Session& self, const Floats& parameters, const std::vector<Floats>& slots,
              const SamplesView& samples, const TargetsView& targets,
              nb::ndarray<const uint32_t, nb::c_contig, nb::device::cpu> order, int64_t batch,
              int64_t slice, nb::handle rule, int64_t first_step, int64_t optimizer_steps,
              nb::ndarray<const double, nb::c_contig, nb::device::cpu> learning_rates,
              int threads, uint64_t seed) {
             std::vector<Update> updates;
             for (size_t i = 0; i < learning_rates.size(); ++i)
               updates.push_back(update_of(rule, learning_rates.data()[i],
                                           optimizer_steps + (int64_t)i + 1, slots));
             Outputs none;
             Work work = work_for(samples, parameters, none);
             work.targets = &targets.targets;
             work.seed = seed;
             work.step = first_step;
             StepsDone done;
             {
               nb::gil_scoped_release release;
               done = self.train(work, order.data(), (int64_t)order.size(), batch, slice, updates,
                                 parameters.data(), threads);
             }
             return nb::make_tuple(done.losses, done.failed);
           },
           "parameters"_a, "slots"_a, "samples"_a, "targets"_a, "order"_a, "batch"_a, "slice"_a, "rule"_a,
           "first_step"_a, "optimizer_steps"_a, "learning_rates"_a, "threads"_a, "seed"_a = 0);
}

}  // namespace undivided
