// The attention operator of one instruction set: compiled once for each, with its machine flags.

#include "attention_operator.h"

namespace undivided::UNDIVIDED_SET {
namespace {

template <class T>
AttentionSize size(const AttentionCall<T>& call, AttentionPhase phase) {
  return size_of(call, phase);
}

template <class T>
void run(const AttentionCall<T>& call, AttentionPhase phase, int64_t item, T* scratch) {
  run_item(call, phase, item, scratch);
}

}  // namespace

extern const AttentionKernels<float> attention_of_floats;
extern const AttentionKernels<double> attention_of_doubles;
const AttentionKernels<float> attention_of_floats = {size<float>, run<float>};
const AttentionKernels<double> attention_of_doubles = {size<double>, run<double>};

}  // namespace undivided::UNDIVIDED_SET
