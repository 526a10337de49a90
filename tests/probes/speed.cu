// A kernel whose time follows from its argument: dependent multiply-adds, then one load and store a thread.
#include <stdint.h>

extern "C" __global__ void __launch_bounds__(256) speed_probe(float* data, uint32_t iterations) {
    const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
    float value = data[index];
    for (uint32_t i = 0; i < iterations; ++i) {
        value = fmaf(value, 0.999f, 0.001f);
    }
    data[index] = value;
}
