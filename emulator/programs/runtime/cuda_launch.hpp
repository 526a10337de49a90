// Launches, and what is asked about kernels.
#pragma once

#include <span>

#include "process.hpp"

namespace fmha {

struct Shape {
    Dim3 grid, block;
    std::size_t shared_bytes = 0;
    void* stream = nullptr;
    Dim3 cluster{0, 0, 0};  // zeros: the kernel's own
    bool cooperative = false, programmatic = false;
};

// What the attributes of cudaLaunchKernelExC or cuLaunchKernelEx add; an error for one that is not modelled.
Status read_attributes(Process& p, std::span<const LaunchAttribute> attributes, Shape& shape);
// `arguments`: a pointer to each, or `packed` bytes of all.
Status launch(Process& p, Function* function, const Shape& shape, void** arguments, std::span<const char> packed = {});

// The same, as a node of a graph does it: the arguments are those of now.
Status launch_later(Process& p, Function* function, const Shape& shape, void** arguments, Work& out);

struct FunctionFacts {
    std::size_t shared_static, local, constant;
    int max_threads, registers, ptx_version;
    Dim3 required_cluster;
    bool cluster_must_be_set;
};
Status facts_of(Process& p, Function& function, FunctionFacts& out);
Status attributes_of(Process& p, Function* function, FunctionAttributes& out);
// `attribute` as cudaFuncAttribute and CUfunction_attribute number them.
Status set_attribute(Process& p, Function* function, int attribute, int value);
// How many clusters the device holds at a time.
Status resident(Process& p, Function* function, const Shape& shape, int& out);
// How many CTAs a multiprocessor holds.
Status occupancy(Process& p, Function* function, int threads, std::size_t shared_bytes, int& out);

}  // namespace fmha
