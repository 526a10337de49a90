// The binders, which rows of isa/operations.hpp name: each has the handler of a record, or none for its types.
#pragma once

#include "isa/program.hpp"

namespace ptxm {

Handler bind_integer(const InstRecord& r);
Handler bind_bits(const InstRecord& r);
Handler bind_approximate(const InstRecord& r);
Handler bind_float(const InstRecord& r);
Handler bind_convert(const InstRecord& r);
Handler bind_convert_packed(const InstRecord& r);
Handler bind_stochastic(const InstRecord& r);
Handler bind_directed(const InstRecord& r);
Handler bind_half(const InstRecord& r);
Handler bind_extra_integer(const InstRecord& r);
Handler bind_sync(const InstRecord& r);
Handler bind_warp(const InstRecord& r);
Handler bind_system(const InstRecord& r);
Handler bind_memory(const InstRecord& r);
Handler bind_state_space(const InstRecord& r);
Handler bind_cache_policy(const InstRecord& r);
Handler bind_control(const InstRecord& r);
Handler bind_frames(const InstRecord& r);
Handler bind_heap(const InstRecord& r);
Handler bind_device_runtime(const InstRecord& r);
Handler bind_barrier(const InstRecord& r);
Handler bind_mbarrier(const InstRecord& r);
Handler bind_tma(const InstRecord& r);
Handler bind_tma_store(const InstRecord& r);
Handler bind_bulk(const InstRecord& r);
Handler bind_async_store(const InstRecord& r);
Handler bind_fill(const InstRecord& r);
Handler bind_bulk_group(const InstRecord& r);
Handler bind_cluster(const InstRecord& r);
Handler bind_named_barrier(const InstRecord& r);
Handler bind_launch_control(const InstRecord& r);
Handler bind_tensormap(const InstRecord& r);
Handler bind_tmem(const InstRecord& r);
Handler bind_tensor(const InstRecord& r);
Handler bind_tensor_copy(const InstRecord& r);
Handler bind_tensor_sync(const InstRecord& r);
Handler bind_tmem_alloc(const InstRecord& r);

Handler bind_matrix_move(const InstRecord& r);
Handler bind_warp_mma(const InstRecord& r);
Handler bind_cp_async(const InstRecord& r);
Handler bind_wgmma(const InstRecord& r);
Handler bind_texture(const InstRecord& r);
Handler bind_surface(const InstRecord& r);

}  // namespace ptxm
