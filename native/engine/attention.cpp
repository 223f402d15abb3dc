#include "attention.h"

#include <algorithm>
#include <atomic>

#include "pool.h"
#include "session.h"

namespace undivided {
namespace {

// Items that are left of some, on a cache line of their own.
struct alignas(64) Range {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

}  // namespace

template <class T>
void run_attention(const AttentionKernels<T>& kernels, const AttentionCall<T>& call,
                   AttentionPhase phase, int threads) {
  AttentionSize size = kernels.size(call, phase);
  if (size.items <= 0) return;
  int workers = (int)std::min<int64_t>(threads, size.items);
  // Memory is taken before the threads start, where running out of it can still be said.
  static thread_local std::vector<Memory> scratch;
  if ((int)scratch.size() < workers) scratch.resize(workers);
  std::vector<T*> own(workers);
  for (int i = 0; i < workers; ++i)
    own[i] = (T*)scratch[i].at_least((size.scratch + 64) * (int64_t)(sizeof(T) / sizeof(float)));
  // A worker begins with items of its own, the same in every phase, whose data its caches may still
  // hold; then it takes what others have not begun.
  std::vector<Range> ranges(workers);
  for (int i = 0; i < workers; ++i) {
    ranges[i].next = size.items * i / workers;
    ranges[i].end = size.items * (i + 1) / workers;
  }
  run_on_workers(workers, [&](int worker) {
    for (int i = 0; i < workers; ++i) {
      Range& range = ranges[(worker + i) % workers];
      for (int64_t item;
           (item = range.next.fetch_add(1, std::memory_order_relaxed)) < range.end;)
        kernels.run(call, phase, item, own[worker]);
    }
  });
}

template void run_attention(const AttentionKernels<float>&, const AttentionCall<float>&,
                            AttentionPhase, int);
template void run_attention(const AttentionKernels<double>&, const AttentionCall<double>&,
                            AttentionPhase, int);

}  // namespace undivided
