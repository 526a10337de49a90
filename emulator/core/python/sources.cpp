// What this core was compiled from; harness/judge/core_digest.py reads it out of the module's file.
#include "python/core_sources.hpp"

namespace ptxm {

extern const char kCoreSources[];  // or a constant would have no linkage
const char kCoreSources[] = FMHA_CORE_SOURCES;

}  // namespace ptxm
