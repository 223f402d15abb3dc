// The two parts of the binding, to each other.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "engine/program.h"

namespace undivided {

const Kernels* kernels_named(const std::string& name);
void bind_attention(nanobind::module_& m);

}  // namespace undivided
