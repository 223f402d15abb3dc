#include "session.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "pool.h"

namespace undivided {
namespace {

// About 20 µs of looking before a worker sleeps; none where workers outnumber the cores.
int spins_for(int threads) {
  return threads <= (int)std::thread::hardware_concurrency() ? 1000 : 0;
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
                 std::vector<Block> blocks, std::vector<Axis> axes, int64_t arena_floats,
                 int64_t group, int64_t parameter_floats, const float* derived,
                 int64_t derived_floats, const Kernels* kernels)
    : instructions_(std::move(instructions)),
      buffers_(std::move(buffers)),
      blocks_(std::move(blocks)),
      axes_(std::move(axes)),
      program_{instructions_.data(), (int64_t)instructions_.size(), buffers_.data(),
               blocks_.data(),       axes_.data(),                  (int64_t)axes_.size(),
               arena_floats,         group},
      parameter_floats_(parameter_floats),
      kernels_(kernels) {
  std::memcpy(derived_.at_least(derived_floats), derived, derived_floats * 4);
  // Updates are dealt out in pieces of whole rows, sixteen at least, for the transposed copies.
  for (int64_t i = 0; i < (int64_t)blocks_.size(); ++i) {
    if (!blocks_[i].trained) continue;
    int64_t rows = std::max<int64_t>(16, 4096 / blocks_[i].stride / 16 * 16);
    for (int64_t first = 0; first < blocks_[i].rows; first += rows)
      units_.push_back({i, first, std::min(first + rows, blocks_[i].rows)});
  }
}

void Session::prepare(const float* parameters, int threads, int64_t slices) {
  if ((int)workers_.size() < threads) workers_.resize(threads);
  for (Worker& worker : workers_) {
    worker.arena.at_least(program_.arena_floats);
    worker.members.resize(program_.group);
    worker.row_start.resize(axes_.size() * (program_.group + 1));
  }
  if ((int64_t)slice_gradients_.size() < slices) slice_gradients_.resize(slices);
  for (int64_t s = 0; s < slices; ++s) slice_gradients_[s].at_least(parameter_floats_);
  // Parameters are the caller's live arrays: whatever was written there counts from here on.
  float* derived = derived_.at_least(0);
  for (const Block& block : blocks_) kernels_->transpose(block, parameters, derived, 0, block.rows);
}

void Session::run_group(Worker& worker, Work& work, int64_t count) {
  work.count = count;
  for (int64_t axis = 0; axis < (int64_t)axes_.size(); ++axis) {
    int64_t* start = &worker.row_start[axis * (program_.group + 1)];
    start[0] = 0;
    for (int64_t s = 0; s < count; ++s) {
      int64_t rows = axes_[axis].rows;
      if (rows < 0) {
        const int64_t* first = work.samples->first_row + worker.members[s];
        rows = first[1] - first[0];
      }
      start[s + 1] = start[s] + rows;
    }
  }
  kernels_->run(work);
}

namespace {

template <class Workers>
Work work_of(const Work& shared, const Program& program, Workers& worker, const float* derived) {
  Work work = shared;
  work.program = &program;
  work.arena = worker.arena.at_least(program.arena_floats);
  work.members = worker.members.data();
  work.row_start = worker.row_start.data();
  work.derived = derived;
  return work;
}

}  // namespace

double Session::run_slice(Worker& worker, Work& work, const uint32_t* order, int64_t first,
                          int64_t last, float* gradients) {
  double loss = 0;
  work.loss = &loss;
  work.gradients = gradients;
  if (gradients) std::memset(gradients, 0, parameter_floats_ * 4);
  for (int64_t at = first; at < last; at += program_.group) {
    int64_t count = std::min(program_.group, last - at);
    for (int64_t s = 0; s < count; ++s) worker.members[s] = order ? order[at + s] : at + s;
    run_group(worker, work, count);
  }
  return loss;
}

void Session::run(const Work& shared, int64_t count, int threads) {
  int64_t piece = std::max<int64_t>(program_.group, 1);
  int64_t pieces = (count + piece - 1) / piece;
  threads = (int)std::clamp<int64_t>(pieces, 1, threads);
  prepare(shared.parameters, threads, 0);
  std::atomic<int64_t> ticket{0};
  run_on_workers(threads, [&](int index) {
    Worker& worker = workers_[index];
    Work work = work_of(shared, program_, worker, derived_.at_least(0));
    for (int64_t p; (p = ticket.fetch_add(1)) < pieces;)
      run_slice(worker, work, nullptr, p * piece, std::min(count, (p + 1) * piece), nullptr);
  });
}

double Session::gradients(const Work& shared, int64_t count, int64_t slice, float* total,
                          int threads) {
  int64_t slices = (count + slice - 1) / slice;
  threads = (int)std::clamp<int64_t>(slices, 1, threads);
  prepare(shared.parameters, threads, slices);
  std::vector<double> losses(slices);
  std::vector<const float*> parts(slices);
  for (int64_t s = 0; s < slices; ++s) parts[s] = slice_gradients_[s].at_least(0);
  std::atomic<int64_t> ticket{0};
  run_on_workers(threads, [&](int index) {
    Worker& worker = workers_[index];
    Work work = work_of(shared, program_, worker, derived_.at_least(0));
    for (int64_t s; (s = ticket.fetch_add(1)) < slices;)
      losses[s] = run_slice(worker, work, nullptr, s * slice, std::min(count, (s + 1) * slice),
                            slice_gradients_[s].at_least(0));
  });
  kernels_->sum(parts.data(), slices, total, 0, parameter_floats_);
  return tree_sum(std::move(losses), slices);
}

StepsDone Session::train(const Work& shared, const uint32_t* order, int64_t order_count,
                         int64_t batch, int64_t slice, const std::vector<Update>& updates,
                         float* parameters, int threads) {
  int64_t most_slices = (std::min(batch, order_count) + slice - 1) / slice;
  prepare(parameters, threads, most_slices);
  std::vector<const float*> parts(most_slices);
  for (int64_t s = 0; s < most_slices; ++s) parts[s] = slice_gradients_[s].at_least(0);
  std::vector<double> losses(most_slices);
  StepsDone done{{}, false};
  done.losses.reserve(updates.size());
  alignas(64) std::atomic<int64_t> ticket{0};
  Barrier barrier(threads, spins_for(threads));
  bool failed = false;

  run_on_workers(threads, [&](int index) {
    Worker& worker = workers_[index];
    Work work = work_of(shared, program_, worker, derived_.at_least(0));
    for (int64_t step = 0; step < (int64_t)updates.size(); ++step) {
      int64_t first = step * batch, last = std::min(first + batch, order_count);
      int64_t slices = (last - first + slice - 1) / slice;
      work.inverse_batch = 1.0f / (float)(last - first);
      for (int64_t s; (s = ticket.fetch_add(1, std::memory_order_relaxed)) < slices;)
        losses[s] = run_slice(worker, work, order, first + s * slice,
                              std::min(last, first + (s + 1) * slice),
                              slice_gradients_[s].at_least(0));
      barrier.wait([&] {
        ticket.store(0, std::memory_order_relaxed);
        double loss = tree_sum(losses, slices);
        failed = !std::isfinite(loss);
        if (!failed) done.losses.push_back(loss);
      });
      if (failed) return;
      Update update = updates[step];
      update.parameters = parameters;
      update.derived = derived_.at_least(0);
      update.gradients = parts.data();
      update.slices = slices;
      int64_t count = units_.size();
      for (int64_t u = count * index / threads; u < count * (index + 1) / threads; ++u)
        kernels_->update(update, blocks_[units_[u].block], units_[u].first_row,
                         units_[u].last_row);
      barrier.wait();
    }
  });
  done.failed = failed;
  return done;
}

std::vector<int64_t> Session::bytes() const {
  int64_t arenas = 0, gradients = 0;
  for (const Worker& worker : workers_) arenas += worker.arena.bytes();
  for (const Memory& memory : slice_gradients_) gradients += memory.bytes();
  return {arenas, gradients, derived_.bytes(), (int64_t)workers_.size()};
}

}  // namespace undivided
