// What the timing model knows of a GPU. The values, their sources and how sure they are stand in one file an
// architecture: emulator/timing/h200.yaml and b200.yaml. In cycles of an SM's clock, bytes, or bytes a cycle.
#pragma once

namespace ptxm::timing {

// clang-format off
#define PTXM_TIMES(X)                                                                                       \
    X(fma_interval) X(fma_latency) X(alu_interval) X(alu_latency) X(mufu_interval) X(mufu_latency)          \
    X(pack_interval) X(pack_latency) X(convert_interval) X(convert_latency)                                 \
    X(shuffle_interval) X(shuffle_latency) X(branch_gap) X(code_line) X(code_miss) X(code_jump)             \
    X(shared_bytes) X(shared_latency) X(mbarrier_arrive) X(mbarrier_wake) X(barrier_wake) X(cluster_wake)   \
    X(cluster_bytes) X(cluster_latency)                                                                     \
    X(port_bytes) X(l2_bytes) X(l2_latency) X(hbm_bytes) X(hbm_latency) X(hbm_queue) X(bytes_in_flight)     \
    X(tma_issue) X(tma_box) X(tma_row) X(tma_latency) X(matrix_rate) X(matrix_least) X(matrix_issue)        \
    X(matrix_latency_registers) X(matrix_latency_shared) X(tmem_interval) X(tmem_latency) X(cta_start)
// clang-format on

struct Times {
#define PTXM_TIME(name) double name = 0;
    PTXM_TIMES(PTXM_TIME)
#undef PTXM_TIME
};

}  // namespace ptxm::timing
