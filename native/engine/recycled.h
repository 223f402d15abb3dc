// Memory for results that is used again once nobody holds it.
#pragma once

#include <cstddef>

namespace undivided {

// Fresh memory comes from the system page by page, each of which costs more than a microsecond when
// it is first written: for short sequences more than all arithmetic. What is given back is kept for
// the next result of about its size, up to a limit. Whole cache lines; contents are anything.
void* take_recycled(size_t bytes);
void give_back(void* memory);

}  // namespace undivided
