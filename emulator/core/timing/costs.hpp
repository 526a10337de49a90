// What each instruction costs a warp, apart from what it finds where it goes: its pipe, how long that is taken, and
// when the result is there.
#pragma once

#include "isa/program.hpp"
#include "timing/constants.hpp"

namespace ptxm::timing {

enum class Pipe : u8 {
    none,
    fma,
    alu,
    mufu,
    convert,
    shuffle,
    access,
    copy,
    wgmma,
    wgmma_commit,
    wgmma_wait,
    mma,
    commit,
    tmem_ld,
    tmem_st,
    tmem_wait,
    sync,
    branch,
    dependency,
    async_commit,
    async_wait
};

struct Cost {
    Pipe pipe = Pipe::alu;
    float interval = 1, latency = 0;
    u8 slots = 1;  // instructions that ptxas makes of it
    u32 operand = 0;
    u8 n_dst = 0;
    u16 n_src = 0;
    i32 guard = -1;
    u32 immediate = 0;
    u32 line = 0;  // of code
};

Cost cost_of(const Inst& i, const Times& t);

}  // namespace ptxm::timing
