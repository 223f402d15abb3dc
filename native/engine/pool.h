// Worker threads that outlive a call.
#pragma once

#include <functional>

namespace undivided {

// Calls job(worker) for worker = 0 … workers−1 at once; 0 runs on the calling thread. Denormal
// numbers are flushed meanwhile; the caller's floating-point mode is restored. One call runs at
// a time, others wait. After a fork the child starts threads of its own.
void run_on_workers(int workers, const std::function<void(int)>& job);

}  // namespace undivided
