// A session runs one program: over samples, over batches for their gradients, over steps.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "program.h"
#include "slices.h"

namespace undivided {

// Memory aligned to cache lines, kept between calls and counted.
class Memory {
 public:
  float* at_least(int64_t floats);  // uninitialised, or what was there before
  int64_t bytes() const { return floats_ * 4; }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::unique_ptr<float, Free> memory_;
  int64_t floats_ = 0;
};

// What a Pattern points to.
struct Cells {
  std::vector<int32_t> states;
  std::vector<uint64_t> words;
  int64_t across;
};

struct StepsDone {
  std::vector<double> losses;  // the sum over the samples of each step
  bool failed;                 // the next step's loss is not finite; nothing was changed by it
};

class Session {
 public:
  Session(std::vector<Instruction> instructions, std::vector<Buffer> buffers,
          std::vector<Block> blocks, std::vector<Fold> folds, std::vector<Axis> axes,
          int64_t arena_floats, int64_t group, int64_t parameter_floats, int64_t gradient_floats,
          const float* derived, int64_t derived_floats, std::vector<Cells> patterns,
          const Kernels* kernels);

  // Runs samples 0 … count−1 through the program, `piece` (or fewer, a group) at a time; what it
  // stores goes to `outputs`. Where the parameters are those of the call before, their copies are
  // not made anew.
  void run(const Work& shared, int64_t count, int64_t piece, int threads, bool same_parameters);

  // One batch of `count` samples in slices of `slice`: the sum of losses, and gradients into
  // `total`.
  double gradients(const Work& shared, int64_t count, int64_t slice, float* total, int threads);

  // Steps over `order`, a batch each, until a loss is not finite.
  StepsDone train(const Work& shared, const uint32_t* order, int64_t order_count, int64_t batch,
                  int64_t slice, const std::vector<Update>& updates, float* parameters,
                  int threads);

  // Bytes held at present: the workers' arenas, gradients of slices, transposed copies.
  std::vector<int64_t> bytes() const;

 private:
  struct Worker {
    Memory arena, stretch;
    std::vector<int64_t> row_start;
  };
  struct Piece {
    int64_t block, first_row, last_row;
  };
  struct Stretch {
    int64_t first, floats;
  };
  // Which embeds list the rows that they add to a table, by the number of their list.
  struct Listing {
    int64_t block, most_rows;
  };
  // Those of one slice: of most blocks whole, of listed tables in lists.
  struct Gradients {
    Memory whole, listed;
    std::vector<List> lists;
  };
  class Batches;

  FoldWork fold_work(const float* parameters);
  void make_room(int threads, int64_t gradient_buffers, int64_t samples);
  void prepare(const float* parameters, int threads, int64_t gradient_buffers, int64_t samples);
  void find_cleared();
  void make_lists(Gradients& slice, int64_t samples);
  std::vector<const float*> parts_of(const std::vector<int64_t>& buffers);
  void add_listed(const Piece& piece, const std::vector<int64_t>& buffers, float* rows);
  const float* stretch_of(int worker, const Piece& piece, const std::vector<int64_t>& buffers);
  void run_group(Worker& worker, Work& work, int64_t count);
  template <class Wanted>
  double run_slice(Worker& worker, Work& work, const Slice& slice, Gradients* gradients,
                   Wanted wanted);

  std::mutex one_at_a_time_;  // calls share the workers' memory
  std::vector<Instruction> instructions_;
  std::vector<Buffer> buffers_;
  std::vector<Block> blocks_;
  std::vector<Fold> folds_;
  std::vector<Axis> axes_;
  std::vector<Cells> cells_;
  std::vector<Pattern> patterns_;
  std::vector<Piece> pieces_;
  std::vector<Stretch> cleared_;  // of a slice's gradients: where nobody sets them
  std::vector<int64_t> units_;  // where each unit's pieces begin, and the end; folds follow
  Program program_;
  int64_t parameter_floats_, gradient_floats_;
  const Kernels* kernels_;
  std::vector<Worker> workers_;
  Memory derived_;
  std::vector<Listing> listings_;
  int64_t stretch_floats_ = 0;  // of the longest piece of a listed table
  std::vector<Gradients> slice_gradients_;
  Memory folded_gradients_;  // of the parameters behind folds, then sums of the folds' results
};

}  // namespace undivided
