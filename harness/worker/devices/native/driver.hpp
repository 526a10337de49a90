// Of the driver's ABI what a launch takes: cuda.h's structs and functions, which no compiler here is asked to have.
#pragma once

#include <cstdint>

#include "../../../../kernel/include/fmha_params.h"

namespace fmha::planner {

struct LaunchAttribute {
    std::int32_t id, pad;
    union {
        char bytes[64];
        std::uint32_t cluster[3];
        std::int32_t serial;
    } value;
};
constexpr std::int32_t kProgrammaticStreamSerialization = 6;  // CUlaunchAttributeID

struct LaunchConfig {
    std::uint32_t grid[3], block[3], shared_bytes;
    void* stream;
    LaunchAttribute* attributes;
    std::uint32_t count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);

// CUtensorMapDataType and so on, of those that maps here have.
constexpr int kBfloat16 = 9, kInterleaveNone = 0, kSwizzle128 = 3, kPromote128 = 2, kFillNone = 0;

struct Driver {
    int (*launch)(const LaunchConfig* config, void* function, void** arguments, void** extra);
    int (*move)(FmhaTensorMap* map, void* address);
    int (*current)(void** context);
    int (*enter)(void* context);
    int (*encode)(FmhaTensorMap* map, int type, std::uint32_t rank, void* address, const std::uint64_t* dims,
                  const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps, int interleave,
                  int swizzle, int promotion, int fill);
};

}  // namespace fmha::planner
