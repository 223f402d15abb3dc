#include "slices.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace undivided {
namespace {

// How many rows a sample brings along in all inputs; 0 where they are the same for every sample.
int64_t own_rows(const Samples& samples, int64_t member) {
  int64_t rows = 0;
  for (const Input& input : samples.inputs)
    if (input.first_row) rows += input.first_row[member + 1] - input.first_row[member];
  return rows;
}

bool bring_their_own(const Samples& samples) {
  return std::any_of(std::begin(samples.inputs), std::end(samples.inputs),
                     [](const Input& input) { return input.first_row != nullptr; });
}

}  // namespace

Slices::Slices(const Samples& samples, const uint32_t* order, int64_t count, int64_t batch,
               int64_t most)
    : members_(count), places_(count), start_{0}, first_slice_{0} {
  std::vector<int64_t> rows;
  for (int64_t at = 0; at < count; ++at) members_[at] = order ? (int64_t)order[at] : at;
  if (bring_their_own(samples))
    for (int64_t member : members_) rows.push_back(own_rows(samples, member));
  for (int64_t first = 0; first < count; first += batch) {
    int64_t last = std::min(first + batch, count), slices = (last - first + most - 1) / most;
    if (slices > kMostSlices) throw std::invalid_argument("a batch of too many slices");
    std::iota(places_.begin() + first, places_.begin() + last, 0);
    if (rows.empty()) cut(first, last, most);
    else deal(rows, first, last, slices);
    first_slice_.push_back((int64_t)start_.size() - 1);
  }
}

void Slices::cut(int64_t first, int64_t last, int64_t most) {
  while (first < last) start_.push_back(first = std::min(first + most, last));
}

void Slices::deal(const std::vector<int64_t>& rows, int64_t first, int64_t last, int64_t slices) {
  std::vector<int64_t> longest(last - first);
  std::iota(longest.begin(), longest.end(), first);
  std::stable_sort(longest.begin(), longest.end(),
                   [&](int64_t a, int64_t b) { return rows[a] > rows[b]; });
  std::vector<std::vector<int64_t>> dealt(slices);
  std::vector<int64_t> sums(slices);
  for (int64_t at : longest) {
    int64_t least = std::min_element(sums.begin(), sums.end()) - sums.begin();
    dealt[least].push_back(at);
    sums[least] += rows[at];
  }
  std::vector<int64_t> members(members_.begin() + first, members_.begin() + last);
  int64_t to = first;
  for (const std::vector<int64_t>& each : dealt) {
    for (int64_t at : each) {
      members_[to] = members[at - first];
      places_[to++] = at - first;
    }
    start_.push_back(to);
  }
}

int64_t Slices::most_samples() const {
  int64_t most = 0;
  for (size_t i = 1; i < start_.size(); ++i) most = std::max(most, start_[i] - start_[i - 1]);
  return most;
}

Slice Slices::of(int64_t step, int64_t slice) const {
  int64_t number = first_slice_[step] + slice, first = start_[number];
  return {&members_[first], &places_[first], start_[number + 1] - first};
}

}  // namespace undivided
