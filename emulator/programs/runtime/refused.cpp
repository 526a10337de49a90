// What is not modelled says its name. The rest of libcudart.so.13's functions, and of cuda.h's, so that every program
// loads; a new one of CUDA's is added to refused.inc, in order.
#include "process.hpp"

#define FMHA_REFUSED(name) \
    FMHA_EXPORT fmha::Status name() { return fmha::Process::the().refuse(#name); }
#include "refused.inc"
