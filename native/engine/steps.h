// Training steps shared out among workers, none of whom has to show up.
//
// A step has two phases: slices of the batch are computed, then units of the parameters are
// updated. What ends a phase is that its work is done, not that all workers have come: a worker
// whose core another process has taken is not waited for. Whoever finds no slice left and waits
// for half as long as a slice takes begins one again that is still missing. The bits are the same
// whoever is first; the first result counts, and the other worker drops its own at the next look.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace undivided {

class Steps {
 public:
  // What the steps are made of. Called by several workers at once.
  struct Job {
    virtual int64_t slices(int64_t step) const = 0;
    // Computes a slice into a gradient buffer and returns its loss. A worker that fell behind
    // may do so while parameters change; what it computes then is thrown away. `published` is
    // below `enough` for as long as the result is wanted.
    virtual double compute(int worker, int64_t step, int64_t slice, int64_t buffer,
                           const std::atomic<uint64_t>& published, uint64_t enough) = 0;
    // All slices are computed: `buffers` in order, and their losses. One caller a step.
    // Returns whether to go on.
    virtual bool computed(int worker, int64_t step, const std::vector<int64_t>& buffers,
                          const std::vector<double>& losses) = 0;
    virtual void update(int worker, int64_t step, int64_t unit) = 0;

   protected:
    ~Job() = default;
  };

  // Gradient buffers are numbered: one for each slice and, with several workers, one spare each.
  static int64_t buffers(int64_t slices, int workers) {
    return slices + (workers > 1 ? workers : 0);
  }

  Steps(Job& job, int64_t steps, int64_t most_slices, int64_t units, int workers);

  // Takes part until all steps are done, or `computed` said to stop.
  void take_part(int worker);

 private:
  bool compute(int worker, int64_t step, int64_t slice, int64_t& mine);
  int64_t missing(int64_t step, int64_t slices) const;
  void open_update(int worker, int64_t step);
  void open_next(int64_t step);
  void open(uint64_t phase);

  // A counter that belongs to a step: a worker that fell behind gets nothing from it.
  class Tickets {
   public:
    void open(int64_t step) { next_.store((uint64_t)step << 32, std::memory_order_relaxed); }
    int64_t take(int64_t step, int64_t limit);

   private:
    alignas(64) std::atomic<uint64_t> next_{0};
  };

  static constexpr uint64_t kOver = ~0ull;

  Job& job_;
  const int64_t steps_, most_slices_, units_;
  const int workers_, spins_;
  Tickets slice_tickets_, unit_tickets_;
  alignas(64) std::atomic<int64_t> slices_done_{0};
  alignas(64) std::atomic<int64_t> units_done_{0};
  // 2·step while slices are computed, 2·step + 1 while units are updated.
  alignas(64) std::atomic<uint64_t> phase_{0};
  // For each slice (step + 1) << 32 | buffer: the last step it was computed for, and where.
  std::unique_ptr<std::atomic<uint64_t>[]> slots_;
  std::vector<double> buffer_losses_;
  std::vector<int64_t> buffers_;
  std::vector<double> losses_;
};

}  // namespace undivided
