#include "findings/finding.hpp"
#include "isa/handlers.hpp"

namespace ptxm {

Handler bind_handler(const InstRecord& r) {
    using Bind = Handler (*)(const InstRecord&);
    constexpr Bind families[] = {
        bind_approximate,   bind_directed,       bind_float,         bind_half,           bind_convert,
        bind_extra_integer, bind_sync,           bind_warp,          bind_system,         bind_memory,
        bind_state_space,   bind_control,        bind_barrier,       bind_mbarrier,       bind_tma,
        bind_tmem,          bind_tensor,         bind_bits,          bind_integer,        bind_tensor_copy,
        bind_tensor_sync,   bind_tmem_alloc,     bind_tma_store,     bind_bulk,           bind_bulk_group,
        bind_async_store,   bind_cluster,        bind_named_barrier, bind_launch_control, bind_tensormap,
        bind_matrix_move,   bind_warp_mma,       bind_cp_async,      bind_wgmma,          bind_fill,
        bind_stochastic,    bind_convert_packed,
    };
    for (Bind bind : families)
        if (Handler h = bind(r)) return h;
    throw std::invalid_argument(format("line %u: no handler for operation %u, types %u and %u, widths %u and %u",
                                       r.line, r.op, r.type, r.type2, r.width_dst, r.width_src));
}

}  // namespace ptxm
