// Runs calls of the attention operator on threads.
#pragma once

#include "attention_call.h"

namespace undivided {

// All items of a phase, on up to `threads` threads.
template <class T>
void run_attention(const AttentionKernels<T>& kernels, const AttentionCall<T>& call,
                   AttentionPhase phase, int threads);

}  // namespace undivided
