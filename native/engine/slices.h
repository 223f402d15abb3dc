// How batches are cut into slices, each computed by one worker with gradients of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "program.h"

namespace undivided {

// One slice: samples by their numbers, and where each stands in its batch.
struct Slice {
  const int64_t* members;
  const int64_t* places;
  int64_t count;
};

// The slices of all steps of a call. Who is in which slice follows from the batch alone, and from
// nothing that differs from machine to machine.
//
// Samples of one length are cut where they stand, `most` to a slice. Samples that bring their own
// lengths are dealt out, the longest first, each to the slice that has the fewest rows by then:
// slices of different length would leave a worker waiting at the end of every step.
class Slices {
 public:
  // Of `count` samples in batches of `batch`; `order` gives their numbers, null for 0, 1, …
  Slices(const Samples& samples, const uint32_t* order, int64_t count, int64_t batch, int64_t most);

  int64_t in_step(int64_t step) const { return first_slice_[step + 1] - first_slice_[step]; }
  Slice of(int64_t step, int64_t slice) const;
  int64_t most_samples() const;  // of any slice

 private:
  void cut(int64_t first, int64_t last, int64_t most);
  void deal(const std::vector<int64_t>& rows, int64_t first, int64_t last, int64_t slices);

  std::vector<int64_t> members_, places_;
  std::vector<int64_t> start_;        // of each slice in these, and the end
  std::vector<int64_t> first_slice_;  // of each step, and the end
};

}  // namespace undivided
