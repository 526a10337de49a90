// Cooperative Groups beyond the warp: grid.sync(), tiles of several warps, and the group that is not supported.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

// Every thread hands its number to the thread of the block before, twice.
extern "C" __global__ void rotate(unsigned *data, unsigned *seen) {
    const cg::grid_group grid = cg::this_grid();
    const unsigned t = grid.thread_rank();
    data[t] = t + 1;
    for (int turn = 0; turn < 2; ++turn) {
        grid.sync();
        const unsigned next = data[(t + blockDim.x) % grid.size()];
        grid.sync();
        data[t] = next;
    }
    if (t == 0) {
        seen[0] = grid.num_blocks();
        seen[1] = grid.num_threads();
        seen[2] = grid.is_valid();
    }
}

// The same with what lies between the two steps left out.
extern "C" __global__ void rotate_unsynchronised(unsigned *data, unsigned *) {
    const cg::grid_group grid = cg::this_grid();
    const unsigned t = grid.thread_rank();
    data[t] = t + 1;
    grid.sync();
    data[t] = data[(t + blockDim.x) % grid.size()];
}

// Arrives and waits apart, with work of its own in between.
extern "C" __global__ void rotate_split(unsigned *data, unsigned *seen) {
    cg::grid_group grid = cg::this_grid();
    const unsigned t = grid.thread_rank();
    data[t] = t + 1;
    auto token = grid.barrier_arrive();
    if (t == 0) seen[3] = 5;
    grid.barrier_wait(static_cast<cg::grid_group::arrival_token &&>(token));
    const unsigned next = data[(t + blockDim.x) % grid.size()];
    grid.sync();
    data[t] = next;
}

template <int kThreads>
__device__ void use_tile(unsigned *out) {
    __shared__ cg::block_tile_memory<256> memory;
    __shared__ unsigned values[256];
    const cg::thread_block block = cg::this_thread_block(memory);
    const auto tile = cg::tiled_partition<kThreads>(block);
    const unsigned t = block.thread_rank(), base = tile.meta_group_rank() * kThreads;
    values[t] = 3 * t;
    tile.sync();
    const unsigned v = values[base + (tile.thread_rank() + 32) % kThreads];
    unsigned *mine = out + 4 * (blockIdx.x * blockDim.x + t);
    mine[0] = v;
    mine[1] = cg::reduce(tile, v, cg::plus<unsigned>());
    mine[2] = tile.shfl(v, 1);
    mine[3] = tile.any(v == 300);
}
extern "C" __global__ void tile64(unsigned *out) { use_tile<64>(out); }
extern "C" __global__ void tile128(unsigned *out) { use_tile<128>(out); }
extern "C" __global__ void tile256(unsigned *out) { use_tile<256>(out); }
