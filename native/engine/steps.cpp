#include "steps.h"

#include <chrono>
#include <thread>

namespace undivided {
namespace {

using Clock = std::chrono::steady_clock;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spinning serves only where every worker can have a core.
constexpr int kSpins = 1000;
int spins_for(int workers) {
  return workers <= (int)std::thread::hardware_concurrency() ? kSpins : 1;
}

}  // namespace

int64_t Steps::Tickets::take(int64_t step, int64_t limit) {
  uint64_t next = next_.load(std::memory_order_relaxed);
  while ((int64_t)(next >> 32) == step && (int64_t)(next & 0xffffffff) < limit)
    if (next_.compare_exchange_weak(next, next + 1, std::memory_order_relaxed))
      return (int64_t)(next & 0xffffffff);
  return -1;
}

Steps::Steps(Job& job, int64_t steps, int64_t most_slices, int64_t units, int workers)
    : job_(job),
      steps_(steps),
      most_slices_(most_slices),
      units_(units),
      workers_(workers),
      spins_(spins_for(workers)),
      slots_(new std::atomic<uint64_t>[most_slices]),
      buffer_losses_(buffers(most_slices, workers)) {
  for (int64_t s = 0; s < most_slices; ++s) slots_[s].store((uint64_t)s);
  phase_.store(steps > 0 ? 0 : kOver);
}

void Steps::open(uint64_t phase) {
  phase_.store(phase, std::memory_order_release);
  phase_.notify_all();
}

void Steps::open_update(int worker, int64_t step) {
  int64_t slices = job_.slices(step);
  buffers_.resize(slices);
  losses_.resize(slices);
  for (int64_t s = 0; s < slices; ++s) {
    buffers_[s] = (int64_t)(slots_[s].load(std::memory_order_relaxed) & 0xffffffff);
    losses_[s] = buffer_losses_[buffers_[s]];
  }
  if (!job_.computed(worker, step, buffers_, losses_)) return open(kOver);
  if (units_ == 0) return open_next(step);  // a network without parameters
  units_done_.store(0, std::memory_order_relaxed);
  unit_tickets_.open(step);
  open(2 * step + 1);
}

void Steps::open_next(int64_t step) {
  if (step + 1 == steps_) return open(kOver);
  slices_done_.store(0, std::memory_order_relaxed);
  slice_tickets_.open(step + 1);
  open(2 * (step + 1));
}

// Computes a slice into `mine`; if nobody was faster, the buffer changes hands.
bool Steps::compute(int worker, int64_t step, int64_t slice, int64_t& mine) {
  // Alone, a worker needs no spare: the slice's own buffer is free once its step is over.
  uint64_t before = slots_[slice].load(std::memory_order_acquire);
  if (workers_ == 1) mine = (int64_t)(before & 0xffffffff);
  uint64_t tag = (uint64_t)(step + 1) << 32;
  buffer_losses_[mine] = job_.compute(worker, step, slice, mine, slots_[slice], tag);
  before = slots_[slice].load(std::memory_order_acquire);
  do {
    if (before >= tag) return false;  // computed by another, in this step or long ago
  } while (!slots_[slice].compare_exchange_weak(before, tag | (uint64_t)mine,
                                                std::memory_order_acq_rel));
  mine = (int64_t)(before & 0xffffffff);
  if (slices_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == job_.slices(step))
    open_update(worker, step);
  return true;
}

// A slice that nobody has finished yet, or −1.
int64_t Steps::missing(int64_t step, int64_t slices) const {
  for (int64_t s = slices; s-- > 0;)
    if ((int64_t)(slots_[s].load(std::memory_order_relaxed) >> 32) != step + 1) return s;
  return -1;
}

void Steps::take_part(int worker) {
  int64_t mine = most_slices_ + worker;
  Clock::duration patience{};
  for (;;) {
    uint64_t phase = phase_.load(std::memory_order_acquire);
    if (phase == kOver) return;
    int64_t step = (int64_t)(phase / 2);
    if (phase % 2) {
      for (int64_t u; (u = unit_tickets_.take(step, units_)) >= 0;) {
        job_.update(worker, step, u);
        if (units_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == units_) open_next(step);
      }
    } else {
      int64_t slices = job_.slices(step);
      auto started = Clock::now();
      for (int64_t s; (s = slice_tickets_.take(step, slices)) >= 0;) {
        compute(worker, step, s, mine);
        auto now = Clock::now();
        patience = (now - started) / 2;
        started = now;
      }
      // Others are at work on the last slices; after a while they may be on no core at all.
      while (phase_.load(std::memory_order_acquire) == phase &&
             Clock::now() - started < patience)
        for (int i = 0; i < 32; ++i) pause();
      for (int64_t s; phase_.load(std::memory_order_acquire) == phase &&
                      (s = missing(step, slices)) >= 0;)
        compute(worker, step, s, mine);
    }
    for (int i = 0; i < spins_ && phase_.load(std::memory_order_acquire) == phase; ++i) pause();
    phase_.wait(phase, std::memory_order_acquire);
  }
}

}  // namespace undivided
