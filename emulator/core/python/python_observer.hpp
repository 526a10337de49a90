// The Python face of an observer: `_core.Observer`.
#pragma once

#include <nanobind/nanobind.h>

namespace ptxm {

void bind_observer(nanobind::module_& module);

}  // namespace ptxm
