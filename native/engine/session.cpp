#include "session.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>

#include "pool.h"
#include "steps.h"

namespace undivided {
namespace {

constexpr int64_t kUnitFloats = 2048;

bool always() { return true; }

// 1 / what the samples order[first] … count together; 0 where nothing does.
float inverse_weight(const Targets& targets, const uint32_t* order, int64_t first, int64_t last) {
  if (!targets.totals) return 1.0f / (float)((last - first) * targets.rows);
  double total = 0;
  for (int64_t at = first; at < last; ++at) total += targets.totals[order ? order[at] : at];
  return total > 0 ? (float)(1.0 / total) : 0.0f;
}

std::vector<Pattern> patterns_of(const std::vector<Cells>& cells) {
  std::vector<Pattern> patterns;
  for (const Cells& each : cells)
    patterns.push_back({each.states.data(), each.words.data(), each.across});
  return patterns;
}

// Neighbours first, as the kernels add gradients.
double tree_sum(std::vector<double> sums, int64_t count) {
  for (int64_t step = 1; step < count; step *= 2)
    for (int64_t i = 0; i + step < count; i += 2 * step) sums[i] += sums[i + step];
  return sums[0];
}

}  // namespace

void Memory::Free::operator()(float* p) const { std::free(p); }

float* Memory::at_least(int64_t floats) {
  if (floats > floats_) {
    floats_ = (floats + 15) / 16 * 16;
    memory_.reset();
    memory_.reset(static_cast<float*>(std::aligned_alloc(64, floats_ * 4)));
    if (!memory_) {
      floats_ = 0;
      throw std::bad_alloc();
    }
    std::memset(memory_.get(), 0, floats_ * 4);
  }
  return memory_.get();
}

Session::Session(std::vector<Instruction> instructions, std::vector<Buffer> buffers,
                 std::vector<Block> blocks, std::vector<Fold> folds, std::vector<Axis> axes,
                 int64_t arena_floats, int64_t group, int64_t parameter_floats,
                 int64_t gradient_floats, const float* derived, int64_t derived_floats,
                 std::vector<Cells> patterns, const Kernels* kernels)
    : instructions_(std::move(instructions)),
      buffers_(std::move(buffers)),
      blocks_(std::move(blocks)),
      folds_(std::move(folds)),
      axes_(std::move(axes)),
      cells_(std::move(patterns)),
      patterns_(patterns_of(cells_)),
      program_{instructions_.data(), (int64_t)instructions_.size(), buffers_.data(),
               blocks_.data(),       axes_.data(),                  (int64_t)axes_.size(),
               patterns_.data(),     arena_floats,                  group},
      parameter_floats_(parameter_floats),
      gradient_floats_(gradient_floats),
      kernels_(kernels) {
  std::memcpy(derived_.at_least(derived_floats), derived, derived_floats * 4);
  for (const Instruction& op : instructions_)
    if (op.kind == Kind::embed && op.backward && blocks_[op.table].listed) {
      if ((int64_t)listings_.size() <= op.kept) listings_.resize(op.kept + 1);
      listings_[op.kept] = {op.table, axes_[buffers_[op.dy].axis].most};
    }
  // Updates are dealt out in units of a few thousand floats, made of pieces of whole rows:
  // sixteen at least, for the transposed copies.
  int64_t floats = kUnitFloats;
  for (int64_t i = 0; i < (int64_t)blocks_.size(); ++i) {
    const bool listed = blocks_[i].listed, own = listed || blocks_[i].gradient >= 0;
    if (!blocks_[i].trained || !own || blocks_[i].rate == 0) continue;
    int64_t rows = std::max<int64_t>(16, kUnitFloats / blocks_[i].stride / 16 * 16);
    if (listed) {
      rows = blocks_[i].listed;
      stretch_floats_ = std::max(stretch_floats_, rows * blocks_[i].stride);
    }
    for (int64_t first = 0; first < blocks_[i].rows; first += rows) {
      int64_t last = std::min(first + rows, blocks_[i].rows);
      if (floats >= kUnitFloats) {
        units_.push_back((int64_t)pieces_.size());
        floats = 0;
      }
      floats += (last - first) * blocks_[i].stride;
      pieces_.push_back({i, first, last});
    }
  }
  units_.push_back((int64_t)pieces_.size());
  find_cleared();
}

void Session::find_cleared() {
  std::vector<char> set(blocks_.size());
  for (const Instruction& op : instructions_)
    if (op.begins) set[op.weight] = true;
  std::vector<Stretch> found;
  for (size_t i = 0; i < blocks_.size(); ++i)
    if (!set[i] && blocks_[i].gradient >= 0)
      found.push_back({blocks_[i].gradient, blocks_[i].rows * blocks_[i].stride});
  std::sort(found.begin(), found.end(),
            [](const Stretch& a, const Stretch& b) { return a.first < b.first; });
  for (const Stretch& each : found) {
    if (!cleared_.empty() && cleared_.back().first + cleared_.back().floats == each.first)
      cleared_.back().floats += each.floats;
    else cleared_.push_back(each);
  }
}

// `samples` are those of a slice, at most.
void Session::make_room(int threads, int64_t gradient_buffers, int64_t samples) {
  if ((int)workers_.size() < threads) workers_.resize(threads);
  for (Worker& worker : workers_) {
    worker.arena.at_least(program_.arena_floats);
    if (gradient_buffers) worker.stretch.at_least(stretch_floats_);
    worker.row_start.resize(axes_.size() * (program_.group + 1));
  }
  if ((int64_t)slice_gradients_.size() < gradient_buffers)
    slice_gradients_.resize(gradient_buffers);
  for (Gradients& slice : slice_gradients_) {
    slice.whole.at_least(gradient_floats_);
    make_lists(slice, samples);
  }
}

void Session::prepare(const float* parameters, int threads, int64_t gradient_buffers,
                      int64_t samples) {
  make_room(threads, gradient_buffers, samples);
  // Parameters are the caller's live arrays: whatever was written there counts from here on.
  float* derived = derived_.at_least(0);
  for (const Block& block : blocks_)
    if (block.trained) kernels_->transpose(block, parameters, derived, 0, block.rows);
  FoldWork work = fold_work(parameters);
  for (const Fold& fold : folds_) kernels_->fold(work, fold, false);
}

void Session::make_lists(Gradients& slice, int64_t samples) {
  auto lines = [](int64_t floats) { return (floats + 15) / 16 * 16; };
  int64_t floats = 0;
  for (const Listing& each : listings_)
    floats += lines(samples * each.most_rows) * (1 + blocks_[each.block].stride);
  float* at = slice.listed.at_least(floats);
  slice.lists.clear();
  for (const Listing& each : listings_) {
    int64_t rows = lines(samples * each.most_rows);
    slice.lists.push_back({0, (int32_t*)at, at + rows});
    at += rows * (1 + blocks_[each.block].stride);
  }
}

std::vector<const float*> Session::parts_of(const std::vector<int64_t>& buffers) {
  std::vector<const float*> parts;
  for (int64_t buffer : buffers) parts.push_back(slice_gradients_[buffer].whole.at_least(0));
  return parts;
}

// Adds to `rows`, a piece of a table's gradients, what the slices have listed for it: slice after
// slice, each in its order.
void Session::add_listed(const Piece& piece, const std::vector<int64_t>& buffers, float* rows) {
  int64_t stride = blocks_[piece.block].stride;
  for (int64_t buffer : buffers)
    for (size_t i = 0; i < listings_.size(); ++i) {
      if (listings_[i].block != piece.block) continue;
      const List& list = slice_gradients_[buffer].lists[i];
      for (int64_t n = 0; n < list.count; ++n) {
        if (list.ids[n] < piece.first_row || list.ids[n] >= piece.last_row) continue;
        float* to = rows + (list.ids[n] - piece.first_row) * stride;
        const float* from = list.rows + n * stride;
        for (int64_t c = 0; c < stride; ++c) to[c] += from[c];
      }
    }
}

// The same in room of the worker's own.
const float* Session::stretch_of(int worker, const Piece& piece,
                                 const std::vector<int64_t>& buffers) {
  float* stretch = workers_[worker].stretch.at_least(0);
  std::memset(stretch, 0,
              (piece.last_row - piece.first_row) * blocks_[piece.block].stride * sizeof(float));
  add_listed(piece, buffers, stretch);
  return stretch;
}

FoldWork Session::fold_work(const float* parameters) {
  FoldWork work{};
  if (folds_.empty()) return work;
  work.blocks = blocks_.data();
  work.parameters = parameters;
  work.derived = derived_.at_least(0);
  work.total = folded_gradients_.at_least(parameter_floats_ + gradient_floats_);
  work.sums = work.total + parameter_floats_;
  return work;
}

void Session::run_group(Worker& worker, Work& work, int64_t count) {
  work.count = count;
  for (int64_t axis = 0; axis < (int64_t)axes_.size(); ++axis) {
    int64_t* start = &worker.row_start[axis * (program_.group + 1)];
    start[0] = 0;
    for (int64_t s = 0; s < count; ++s) {
      int64_t rows = axes_[axis].rows;
      if (rows < 0) {
        const Input& input = work.samples->inputs[axes_[axis].input];
        const int64_t* first = input.first_row + work.members[s];
        rows = first[1] - first[0];
      }
      start[s + 1] = start[s] + rows;
    }
  }
  kernels_->run(work);
}

namespace {

// Reads something of every line that an array's part of a sample begins with.
void touch(const void* array, int64_t first_byte, int64_t bytes) {
  constexpr int64_t kLine = 64, kMost = 1024;
  const volatile char* at = (const volatile char*)array + first_byte;
  for (int64_t i = 0; i < std::min(bytes, kMost); i += kLine) (void)at[i];
}

// Batches are drawn at random, and no machine guesses where the next sample lies. Touched together
// the samples of a group wait for memory together, where kernels would wait for one after the
// other. Prefetching does not do it: it is dropped where an address is not translated yet.
void touch_samples(const Work& work, int64_t count) {
  const Targets* targets = work.targets;
  for (int64_t s = 0; s < count; ++s) {
    int64_t member = work.members[s];
    for (const Input& input : work.samples->inputs) {
      if (!input.x) continue;
      int64_t each = input.element == Element::kByte ? 1 : 4;
      if (!input.first_row) {
        touch(input.x, member * input.sample_elements * each, input.sample_elements * each);
      } else {
        int64_t row = input.row_elements * each;
        const int64_t* first = input.first_row + member;
        touch(input.x, first[0] * row, (first[1] - first[0]) * row);
      }
    }
    if (targets && targets->values) {
      int64_t first = targets->start ? targets->start[member] : member * targets->rows;
      int64_t last = targets->start ? targets->start[member + 1] : first + targets->rows;
      touch(targets->values, first * targets->width * 4, (last - first) * targets->width * 4);
    }
  }
}

template <class Workers>
Work work_of(const Work& shared, const Program& program, Workers& worker, const float* derived) {
  Work work = shared;
  work.program = &program;
  work.arena = worker.arena.at_least(program.arena_floats);
  work.row_start = worker.row_start.data();
  work.derived = derived;
  return work;
}

}  // namespace

template <class Wanted>
double Session::run_slice(Worker& worker, Work& work, const Slice& slice, Gradients* gradients,
                          Wanted wanted) {
  double loss = 0;
  work.loss = &loss;
  if (gradients) {
    work.gradients = gradients->whole.at_least(0);
    work.lists = gradients->lists.data();
    for (const Stretch& each : cleared_)
      std::memset(work.gradients + each.first, 0, each.floats * sizeof(float));
    for (List& list : gradients->lists) list.count = 0;
  }
  for (int64_t at = 0; at < slice.count && wanted(); at += program_.group) {
    work.members = slice.members + at;
    work.place = slice.places[at];
    work.first = at == 0;
    int64_t count = std::min(program_.group, slice.count - at);
    if (count > 1) touch_samples(work, count);
    run_group(worker, work, count);
  }
  return loss;
}

void Session::run(const Work& shared, int64_t count, int64_t piece, int threads,
                  bool same_parameters) {
  std::lock_guard<std::mutex> lock(one_at_a_time_);
  piece = std::clamp<int64_t>(piece, 1, std::max<int64_t>(program_.group, 1));
  int64_t pieces = (count + piece - 1) / piece;
  threads = (int)std::clamp<int64_t>(pieces, 1, threads);
  same_parameters ? make_room(threads, 0, 0) : prepare(shared.parameters, threads, 0, 0);
  std::vector<int64_t> members(count);
  std::iota(members.begin(), members.end(), 0);
  std::atomic<int64_t> ticket{0};
  run_on_workers(threads, [&](int index) {
    Worker& worker = workers_[index];
    Work work = work_of(shared, program_, worker, derived_.at_least(0));
    for (int64_t p; (p = ticket.fetch_add(1)) < pieces;) {
      const int64_t* first = &members[p * piece];
      run_slice(worker, work, {first, first, std::min(piece, count - p * piece)}, nullptr, always);
    }
  });
}

double Session::gradients(const Work& shared, int64_t count, int64_t slice, float* total,
                          int threads) {
  std::lock_guard<std::mutex> lock(one_at_a_time_);
  Slices batch(*shared.samples, nullptr, count, count, slice);
  int64_t slices = count ? batch.in_step(0) : 0;
  threads = (int)std::clamp<int64_t>(slices, 1, threads);
  prepare(shared.parameters, threads, slices, batch.most_samples());
  float inverse = shared.targets ? inverse_weight(*shared.targets, nullptr, 0, count) : 1.0f;
  std::vector<double> losses(slices);
  std::vector<int64_t> buffers(slices);
  std::iota(buffers.begin(), buffers.end(), 0);
  std::vector<const float*> parts = parts_of(buffers);
  std::atomic<int64_t> ticket{0};
  run_on_workers(threads, [&](int index) {
    Worker& worker = workers_[index];
    Work work = work_of(shared, program_, worker, derived_.at_least(0));
    work.inverse_batch = inverse;
    for (int64_t s; (s = ticket.fetch_add(1)) < slices;)
      losses[s] = run_slice(worker, work, batch.of(0, s), &slice_gradients_[s], always);
  });
  for (int64_t i = 0; i < (int64_t)blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    if (block.trained && block.gradient >= 0)
      kernels_->sum(parts.data(), slices, block.gradient, total + block.offset,
                    block.rows * block.stride);
    if (block.listed) add_listed({i, 0, block.rows}, buffers, total + block.offset);
  }
  FoldWork work = fold_work(shared.parameters);
  work.parts = parts.data();
  work.slices = slices;
  work.total = total;
  for (const Fold& fold : folds_) kernels_->fold(work, fold, true);
  return tree_sum(std::move(losses), slices);
}

// The steps of one call of `train`, as the workers see them.
class Session::Batches final : public Steps::Job {
 public:
  Batches(Session& session, const Work& shared, const uint32_t* order, int64_t order_count,
          int64_t batch, const Slices& slices, const std::vector<Update>& updates,
          float* parameters)
      : session_(session),
        shared_(shared),
        order_(order),
        order_count_(order_count),
        batch_(batch),
        slices_(slices),
        updates_(updates),
        parameters_(parameters) {
    done.losses.reserve(updates.size());
  }

  StepsDone done{{}, false};

  int64_t slices(int64_t step) const override { return slices_.in_step(step); }

  double compute(int worker, int64_t step, int64_t slice, int64_t buffer,
                 const std::atomic<uint64_t>& published, uint64_t enough) override {
    Worker& own = session_.workers_[worker];
    Work work = work_of(shared_, session_.program_, own, session_.derived_.at_least(0));
    work.inverse_batch = inverse_weight(*shared_.targets, order_, step * batch_, last(step));
    work.step = shared_.step + step;
    return session_.run_slice(
        own, work, slices_.of(step, slice), &session_.slice_gradients_[buffer],
        [&] { return published.load(std::memory_order_relaxed) < enough; });
  }

  bool computed(int worker, int64_t step, const std::vector<int64_t>& buffers,
                const std::vector<double>& losses) override {
    double loss = tree_sum(losses, (int64_t)losses.size());
    if (!std::isfinite(loss)) {
      done.failed = true;
      return false;
    }
    done.losses.push_back(loss);
    buffers_ = buffers;
    parts_ = session_.parts_of(buffers);
    update_ = updates_[step];
    update_.parameters = parameters_;
    update_.derived = session_.derived_.at_least(0);
    update_.gradients = parts_.data();
    update_.slices = (int64_t)parts_.size();
    update_.factor = 1.0f;
    if (std::isfinite(update_.clip_norm)) {
      double norm = gradient_norm(worker);
      if (norm > (double)update_.clip_norm) update_.factor = (float)(update_.clip_norm / norm);
    }
    return true;
  }

  void update(int worker, int64_t, int64_t unit) override {
    int64_t plain = (int64_t)session_.units_.size() - 1;
    if (unit >= plain) return update_fold(session_.folds_[unit - plain]);
    for (int64_t i = session_.units_[unit]; i < session_.units_[unit + 1]; ++i) {
      const Piece& piece = session_.pieces_[i];
      const Block& block = session_.blocks_[piece.block];
      Update update = update_;
      update.shift = block.gradient - block.offset;
      const float* stretch;
      if (block.listed) {
        stretch = session_.stretch_of(worker, piece, buffers_);
        update.shift = -(block.offset + piece.first_row * block.stride);
        update.gradients = &stretch;
        update.slices = 1;
      }
      session_.kernels_->update(update, block, piece.first_row, piece.last_row);
    }
  }

 private:
  // The norm of all gradients of this step, in one thread and so in a fixed order.
  double gradient_norm(int worker) {
    FoldWork work = session_.fold_work(parameters_);
    work.parts = parts_.data();
    work.slices = (int64_t)parts_.size();
    for (const Fold& fold : session_.folds_) session_.kernels_->fold(work, fold, true);
    const float* total = work.total;
    double squares = 0;
    for (const Block& block : session_.blocks_) {
      if (!block.trained || block.rate == 0 || block.listed) continue;
      int64_t floats = block.rows * block.stride;
      squares += block.gradient < 0
                     ? session_.kernels_->square_sum(update_, &total, 1, block.offset, floats)
                     : session_.kernels_->square_sum(update_, parts_.data(), work.slices,
                                                     block.gradient, floats);
    }
    for (const Piece& piece : session_.pieces_) {
      const Block& block = session_.blocks_[piece.block];
      if (!block.listed) continue;
      const float* stretch = session_.stretch_of(worker, piece, buffers_);
      squares += session_.kernels_->square_sum(
          update_, &stretch, 1, 0, (piece.last_row - piece.first_row) * block.stride);
    }
    return std::sqrt(squares);
  }

  // From the result's gradients to those of both weights, the update, and the result anew.
  void update_fold(const Fold& fold) {
    FoldWork work = session_.fold_work(parameters_);
    work.parts = parts_.data();
    work.slices = (int64_t)parts_.size();
    session_.kernels_->fold(work, fold, true);
    Update update = update_;
    update.shift = 0;  // laid out as the parameters are
    const float* total = work.total;
    update.gradients = &total;
    update.slices = 1;
    for (int64_t index : {fold.left, fold.left_bias, fold.right, fold.right_bias})
      if (index >= 0 && session_.blocks_[index].rate != 0) {
        const Block& block = session_.blocks_[index];
        session_.kernels_->update(update, block, 0, block.rows);
      }
    session_.kernels_->fold(work, fold, false);
  }

  int64_t last(int64_t step) const { return std::min((step + 1) * batch_, order_count_); }

  Session& session_;
  const Work& shared_;
  const uint32_t* order_;
  int64_t order_count_, batch_;
  const Slices& slices_;
  const std::vector<Update>& updates_;
  float* parameters_;
  Update update_{};
  std::vector<int64_t> buffers_;
  std::vector<const float*> parts_;
};

StepsDone Session::train(const Work& shared, const uint32_t* order, int64_t order_count,
                         int64_t batch, int64_t slice, const std::vector<Update>& updates,
                         float* parameters, int threads) {
  std::lock_guard<std::mutex> lock(one_at_a_time_);
  Slices slices(*shared.samples, order, order_count, batch, slice);
  int64_t most_slices = updates.empty() ? 0 : slices.in_step(0);
  prepare(parameters, threads, Steps::buffers(most_slices, threads), slices.most_samples());
  Batches batches(*this, shared, order, order_count, batch, slices, updates, parameters);
  Steps steps(batches, (int64_t)updates.size(), most_slices,
              (int64_t)(units_.size() - 1 + folds_.size()), threads);
  run_on_workers(threads, [&](int worker) { steps.take_part(worker); });
  return std::move(batches.done);
}

std::vector<int64_t> Session::bytes() const {
  int64_t arenas = 0, gradients = 0, stretches = 0;
  for (const Worker& worker : workers_) {
    arenas += worker.arena.bytes();
    stretches += worker.stretch.bytes();
  }
  for (const Gradients& slice : slice_gradients_)
    gradients += slice.whole.bytes() + slice.listed.bytes();
  return {arenas, gradients, derived_.bytes(), folded_gradients_.bytes(),
          (int64_t)workers_.size(), stretches};
}

}  // namespace undivided
