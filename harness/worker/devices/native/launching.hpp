// What calls.cpp and planner.cpp share.
#pragma once

#include <mutex>

namespace fmha {

// Threads that share a stream share what the launches of one call hand on to each other: no call comes between them.
inline std::mutex launching;

}  // namespace fmha
