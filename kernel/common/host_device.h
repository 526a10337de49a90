// Lets the plain C++ of these headers be compiled, and tested, by a host compiler as well.
#pragma once

#if defined(__CUDACC__)
#define FMHA_HOST_DEVICE __host__ __device__
#else
#define FMHA_HOST_DEVICE
#endif
