#include "recycled.h"

#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace undivided {
namespace {

// Before the memory that a caller sees: how much there is of it.
constexpr size_t kLine = 64;
// What is kept while nobody uses it, in one piece and together.
constexpr size_t kLargest = 32u << 20, kMost = 64u << 20;

// From this size on memory comes in large pages where the system has them: a fresh small page
// costs about as much as the arithmetic that fills it.
constexpr size_t kLargePage = 2u << 20;

struct Kept {
  void* start;
  size_t bytes;
};

void* fresh(size_t bytes) {
  bool large = bytes >= 2 * kLargePage;
  size_t step = large ? kLargePage : kLine;
  void* start = std::aligned_alloc(step, (bytes + step - 1) / step * step);
  if (start == nullptr) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (large) madvise(start, bytes, MADV_HUGEPAGE);  // a wish: small pages do as well
#endif
  return start;
}

class Shelf {
 public:
  void* take(size_t bytes) {
    bytes = (bytes + kLine - 1) / kLine * kLine;
    void* start = from_shelf(bytes);
    if (start == nullptr) {
      start = fresh(bytes + kLine);
      *(size_t*)start = bytes;
    }
    return (char*)start + kLine;
  }

  void give_back(void* memory) {
    void* start = (char*)memory - kLine;
    size_t bytes = *(size_t*)start;
    if (bytes > kLargest) return std::free(start);
    std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_back({start, bytes});
    total_ += bytes;
    while (total_ > kMost) {  // those that lay longest
      total_ -= kept_.front().bytes;
      std::free(kept_.front().start);
      kept_.pop_front();
    }
  }

 private:
  // The latest that fits, which the caches know best, and is not much too large.
  void* from_shelf(size_t bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = kept_.size(); i-- > 0;)
      if (kept_[i].bytes >= bytes && kept_[i].bytes <= bytes + bytes / 4) {
        void* start = kept_[i].start;
        total_ -= kept_[i].bytes;
        kept_.erase(kept_.begin() + (std::ptrdiff_t)i);
        return start;
      }
    return nullptr;
  }

  std::mutex mutex_;
  std::deque<Kept> kept_;
  size_t total_ = 0;
};

// Never destroyed: arrays may outlive everything else.
Shelf& shelf() {
  static Shelf* one = new Shelf;
  return *one;
}

}  // namespace

void* take_recycled(size_t bytes) { return shelf().take(bytes); }
void give_back(void* memory) { shelf().give_back(memory); }

}  // namespace undivided
