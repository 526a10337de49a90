#include "timing/costs.hpp"

namespace ptxm::timing {
namespace {

bool floating(Ty t) {
    return t == Ty::f32 || t == Ty::f64 || t == Ty::f16 || t == Ty::bf16 || t == Ty::f16x2 || t == Ty::bf16x2 ||
           t == Ty::f32x2;
}

bool half(Ty t) { return t == Ty::f16 || t == Ty::bf16; }

}  // namespace

Cost cost_of(const Inst& i, const Times& t) {
    Cost c;
    const Ty type = static_cast<Ty>(i.type), from = static_cast<Ty>(i.type2);
    const auto set = [&](Pipe pipe, double interval, double latency, u32 slots = 1) {
        c.pipe = pipe;
        c.interval = static_cast<float>(interval);
        c.latency = static_cast<float>(latency);
        c.slots = static_cast<u8>(slots);
    };
    const u32 words = i.width_dst == 64 ? 2 : 1;
    switch (static_cast<Op>(i.op)) {
        case Op::mov:
        case Op::pack:
        case Op::unpack:
        case Op::cvta:
        case Op::cvta_to:
        case Op::mapa: set(Pipe::none, 0, 0, 0); break;
        case Op::nop:
        case Op::grid_trigger: set(Pipe::none, 0, 0, 0); break;
        case Op::grid_wait: set(Pipe::dependency, 0, 0, 0); break;
        case Op::add:
        case Op::sub:
        case Op::mul:
        case Op::fma:
            if (floating(type))
                set(Pipe::fma, t.fma_interval * (type == Ty::f32x2 ? 2 : 1), t.fma_latency);
            else
                set(Pipe::alu, t.alu_interval * words, t.alu_latency, words);
            break;
        case Op::mul_lo:
        case Op::mul_hi:
        case Op::mul_wide:
        case Op::mad_lo:
        case Op::mad_hi:
        case Op::mad_wide: set(Pipe::fma, 2 * t.fma_interval, t.fma_latency + 1); break;
        case Op::ex2:
        case Op::lg2:
        case Op::rcp:
        case Op::rsqrt:
        case Op::sqrt:
        case Op::tanh:
        case Op::sin:
        case Op::cos: set(Pipe::mufu, t.mufu_interval, t.mufu_latency); break;
        case Op::div:
        case Op::rem:
        case Op::div_f: set(Pipe::mufu, t.mufu_interval, 4 * t.mufu_latency, 10); break;
        case Op::cvt_pack: set(Pipe::convert, t.pack_interval, t.pack_latency); break;
        case Op::cvt:
            if (!floating(type) && !floating(from))
                set(Pipe::alu, t.alu_interval, t.alu_latency);
            else if (half(type) || half(from))
                set(Pipe::convert, t.pack_interval, t.pack_latency);
            else
                set(Pipe::convert, t.convert_interval, t.convert_latency);
            break;
        case Op::shfl:
        case Op::redux:
        case Op::match_any:
        case Op::match_all: set(Pipe::shuffle, t.shuffle_interval, t.shuffle_latency); break;
        case Op::bra:
        case Op::brx: set(Pipe::branch, 1, 0); break;
        case Op::ld:
        case Op::st:
        case Op::ld_sync:
        case Op::st_sync:
        case Op::atom:
        case Op::ldmatrix:
        case Op::stmatrix: set(Pipe::access, 1, t.shared_latency); break;
        case Op::tma_load:
        case Op::tma_store:
        case Op::bulk_load:
        case Op::bulk_send:
        case Op::bulk_store:
        case Op::clc_try_cancel:
        case Op::cp_async: set(Pipe::copy, 1, 0); break;
        case Op::cp_async_commit:
        case Op::bulk_commit: set(Pipe::async_commit, 1, 0); break;
        case Op::cp_async_wait:
        case Op::bulk_wait: set(Pipe::async_wait, 1, 0); break;
        case Op::wgmma: set(Pipe::wgmma, 1, 0); break;
        case Op::wgmma_commit: set(Pipe::wgmma_commit, 1, 0); break;
        case Op::wgmma_wait: set(Pipe::wgmma_wait, 1, 0); break;
        case Op::tc_mma: set(Pipe::mma, 1, 0); break;
        case Op::tc_commit: set(Pipe::commit, 1, 0); break;
        case Op::tmem_ld: set(Pipe::tmem_ld, 1, t.tmem_latency); break;
        case Op::tmem_st: set(Pipe::tmem_st, 1, t.tmem_latency); break;
        case Op::tmem_wait_ld:
        case Op::tmem_wait_st: set(Pipe::tmem_wait, 1, 0); break;
        case Op::bar:
        case Op::bar_red:
        case Op::mbar_init:
        case Op::mbar_arrive:
        case Op::mbar_expect_tx:
        case Op::mbar_complete_tx:
        case Op::mbar_wait:
        case Op::cp_async_mbar:
        case Op::cluster_arrive:
        case Op::cluster_wait: set(Pipe::sync, 1, t.alu_latency); break;
        case Op::mma_sync: set(Pipe::fma, 16, 33); break;
        default: set(Pipe::alu, t.alu_interval, t.alu_latency, words);
    }
    c.operand = i.operands;
    c.n_dst = i.n_dst;
    c.n_src = i.n_src;
    c.guard = i.guard;
    c.immediate = static_cast<u32>(i.immediate);
    return c;
}

}  // namespace ptxm::timing
