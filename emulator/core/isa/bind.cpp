#include "findings/finding.hpp"
#include "isa/handlers.hpp"

namespace ptxm {
namespace {

using Kind = InstructionClass;

struct Family {
    Handler (*bind)(const InstRecord&);
    Kind kind;
};

constexpr Family kFamilies[] = {
    {bind_approximate, Kind::transcendental},
    {bind_directed, Kind::floating},
    {bind_float, Kind::floating},
    {bind_half, Kind::floating},
    {bind_convert, Kind::conversion},
    {bind_extra_integer, Kind::integer},
    {bind_sync, Kind::other_memory},
    {bind_warp, Kind::exchange},
    {bind_system, Kind::control},
    {bind_memory, Kind::other_memory},
    {bind_state_space, Kind::integer},
    {bind_control, Kind::control},
    {bind_barrier, Kind::barrier},
    {bind_mbarrier, Kind::barrier},
    {bind_tma, Kind::copy},
    {bind_tmem, Kind::tensor_memory},
    {bind_tensor, Kind::matrix},
    {bind_bits, Kind::integer},
    {bind_integer, Kind::integer},
    {bind_tensor_copy, Kind::matrix},
    {bind_tensor_sync, Kind::barrier},
    {bind_tmem_alloc, Kind::tensor_memory},
    {bind_tma_store, Kind::copy},
    {bind_bulk, Kind::copy},
    {bind_bulk_group, Kind::copy},
    {bind_async_store, Kind::copy},
    {bind_cluster, Kind::barrier},
    {bind_named_barrier, Kind::barrier},
    {bind_launch_control, Kind::control},
    {bind_tensormap, Kind::copy},
    {bind_matrix_move, Kind::shared_memory},
    {bind_warp_mma, Kind::matrix},
    {bind_cp_async, Kind::copy},
    {bind_wgmma, Kind::matrix},
    {bind_fill, Kind::shared_memory},
    {bind_stochastic, Kind::conversion},
    {bind_convert_packed, Kind::conversion},
    {bind_frames, Kind::control},
};

Kind memory_class(const InstRecord& r) {
    switch (static_cast<Space>(r.mods >> kSpaceShift & 7)) {
        case Space::shared:
        case Space::shared_cluster: return Kind::shared_memory;
        case Space::global:
        case Space::constant: return Kind::global_memory;
        default: return Kind::other_memory;
    }
}

// What an operation is, where it is not what its family is.
Kind class_of(const InstRecord& r, Kind family) {
    switch (static_cast<Op>(r.op)) {
        case Op::fence_acq_rel: return Kind::barrier;
        case Op::elect:
        case Op::vote:
        case Op::activemask:
        case Op::shfl:
        case Op::movmatrix: return Kind::exchange;
        case Op::brx: return Kind::control;
        case Op::mapa:
        case Op::getctarank: return Kind::integer;
        default: return family == Kind::other_memory ? memory_class(r) : family;
    }
}

}  // namespace

void bind(Inst& i) {
    for (const Family& family : kFamilies) {
        if (Handler h = family.bind(i)) {
            i.handler = h;
            i.kind = static_cast<u8>(class_of(i, family.kind));
            return;
        }
    }
    throw std::invalid_argument(format("line %u: no handler for operation %u, types %u and %u, widths %u and %u",
                                       i.line, i.op, i.type, i.type2, i.width_dst, i.width_src));
}

}  // namespace ptxm
