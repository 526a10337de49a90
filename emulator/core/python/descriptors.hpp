// Descriptors of tcgen05 for Python, decoded by what the MMA itself calls.
#pragma once

#include <nanobind/nanobind.h>

namespace ptxm::tc {

void bind_descriptors(nanobind::module_& module);

}  // namespace ptxm::tc
