// Plans calls of any sizes for Python: planner.cpp.
#pragma once

#include <Python.h>

namespace fmha::planner {

// Adds the type Planner to a module; false with an error set where that fails.
bool add_planner(PyObject* module);

}  // namespace fmha::planner
