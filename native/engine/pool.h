// Worker threads that outlive a call, and the barrier at which they meet.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace undivided {

// Calls job(worker) for worker = 0 … workers−1 at once; 0 runs on the calling thread. Denormal
// numbers are flushed meanwhile; the caller's floating-point mode is restored. One call runs at
// a time, others wait. After a fork the child starts threads of its own.
void run_on_workers(int workers, const std::function<void(int)>& job);

// Every worker waits until all have come. The last to come runs `then` before anyone goes on.
//
// Waiting spins for a short bounded time and then sleeps: a barrier that only spins is ten times
// slower as soon as another process wants one of the cores.
class Barrier {
 public:
  Barrier(int workers, int spins) : workers_(workers), spins_(spins) {}

  template <class Then>
  void wait(Then then) {
    if (workers_ == 1) return then();
    uint32_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == workers_) {
      arrived_.store(0, std::memory_order_relaxed);
      then();
      round_.store(round + 1, std::memory_order_release);
      round_.notify_all();
      return;
    }
    for (int i = 0; i < spins_; ++i) {
      if (round_.load(std::memory_order_acquire) != round) return;
      pause();
    }
    round_.wait(round, std::memory_order_acquire);
  }
  void wait() {
    wait([] {});
  }

 private:
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  const int workers_, spins_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> round_{0};
};

}  // namespace undivided
