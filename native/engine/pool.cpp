#include "pool.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace undivided {
namespace {

// Numbers below the smallest normal one cost hundreds of cycles each; here they become 0.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  FlushDenormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" : : "r"(before_ | (1ull << 24)));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(before_)); }

 private:
  uint64_t before_;
#endif
};

// Calls that follow one another closely find their helpers awake: a few ten microseconds.
constexpr int kLooks = 2000;

void look_for(const std::atomic<uint64_t>& number, uint64_t old) {
  for (int i = 0; i < kLooks && number.load(std::memory_order_acquire) == old; ++i) {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
}

struct Helper {
  std::atomic<uint64_t> asked{0};  // how many jobs it has been given
  std::atomic<uint64_t> done{0};
  const std::function<void(int)>* job = nullptr;
  int worker = 0;
};

class Pool {
 public:
  void run(int workers, const std::function<void(int)>& job) {
    std::lock_guard<std::mutex> one_at_a_time(mutex_);
    FlushDenormals flush;
    while ((int)helpers_.size() < workers - 1) add_helper();
    for (int i = 0; i < workers - 1; ++i) {
      Helper& helper = *helpers_[i];
      helper.job = &job;
      helper.worker = i + 1;
      helper.asked.fetch_add(1, std::memory_order_release);
      helper.asked.notify_one();
    }
    job(0);
    for (int i = 0; i < workers - 1; ++i) {
      Helper& helper = *helpers_[i];
      uint64_t target = helper.asked.load(std::memory_order_relaxed);
      for (uint64_t done; (done = helper.done.load(std::memory_order_acquire)) != target;) {
        look_for(helper.done, done);
        helper.done.wait(done, std::memory_order_acquire);
      }
    }
  }

 private:
  void add_helper() {
    helpers_.push_back(std::make_unique<Helper>());
    std::thread([helper = helpers_.back().get()] { serve(*helper); }).detach();
  }

  static void serve(Helper& helper) {
    FlushDenormals flush;
    for (uint64_t seen = 0;; ++seen) {
      look_for(helper.asked, seen);
      while (helper.asked.load(std::memory_order_acquire) == seen)
        helper.asked.wait(seen, std::memory_order_acquire);
      (*helper.job)(helper.worker);
      helper.done.store(seen + 1, std::memory_order_release);
      helper.done.notify_one();
    }
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Helper>> helpers_;
};

// Never destroyed: its threads sleep in it until the process ends. A fork copies the memory of
// the pool but none of its threads, so the child leaves it behind and makes another.
Pool* the_pool = nullptr;
std::once_flag made;

Pool& pool() {
  std::call_once(made, [] {
    the_pool = new Pool;
    pthread_atfork(nullptr, nullptr, [] { the_pool = new Pool; });
  });
  return *the_pool;
}

}  // namespace

void run_on_workers(int workers, const std::function<void(int)>& job) { pool().run(workers, job); }

}  // namespace undivided
