// Groups beyond the warp: grid.sync() of a cooperative launch, and tiles of several warps.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

// Every thread hands its number on to the one a block before it, `turns` times; then what the grid says of itself.
extern "C" __global__ void rotate(int* out, int turns) {
    const cg::grid_group grid = cg::this_grid();
    const unsigned t = static_cast<unsigned>(grid.thread_rank()), n = static_cast<unsigned>(grid.size());
    out[t] = static_cast<int>(t * t);
    for (int turn = 0; turn < turns; ++turn) {
        grid.sync();
        const int next = out[(t + blockDim.x) % n];
        grid.sync();
        out[t] = next;
    }
    grid.sync();
    int* told = out + n + 6 * t;
    told[0] = static_cast<int>(grid.num_blocks());
    told[1] = static_cast<int>(grid.num_threads());
    told[2] = static_cast<int>(grid.block_rank());
    told[3] = grid.is_valid();
    told[4] = static_cast<int>(grid.group_dim().x);
    told[5] = out[n - 1 - t];
}

// The same with the arrival and the wait apart.
extern "C" __global__ void rotate_split(int* out, int turns) {
    cg::grid_group grid = cg::this_grid();
    const unsigned t = static_cast<unsigned>(grid.thread_rank()), n = static_cast<unsigned>(grid.size());
    out[t] = static_cast<int>(t * t);
    for (int turn = 0; turn < turns; ++turn) {
        auto token = grid.barrier_arrive();
        out[n + t] = turn;
        grid.barrier_wait(static_cast<cg::grid_group::arrival_token&&>(token));
        const int next = out[(t + blockDim.x) % n];
        grid.sync();
        out[t] = next;
    }
}

constexpr int kColumns = 10;

template <int N>
__device__ void several(const int* in, int* out) {
    __shared__ cg::block_tile_memory<512> memory;
    __shared__ int values[512];
    const cg::thread_block block = cg::this_thread_block(memory);
    const auto g = cg::tiled_partition<N>(block);
    const int t = static_cast<int>(block.thread_rank()), rank = static_cast<int>(g.thread_rank());
    const int v = in[t];
    values[t] = v;
    g.sync();
    int* mine = out + kColumns * t;
    mine[0] = values[t - rank + (rank + 33) % N];
    mine[1] = g.shfl(v, N - 1);
    mine[2] = g.any(v == 5);
    mine[3] = g.all(v < 990);
    mine[4] = cg::reduce(g, v, cg::plus<int>());
    mine[5] = cg::reduce(g, v, cg::greater<int>());
    mine[6] = cg::inclusive_scan(g, v, cg::plus<int>());
    mine[7] = cg::exclusive_scan(g, v, cg::plus<int>());
    mine[8] = static_cast<int>(g.meta_group_rank() * 100 + g.meta_group_size());
    // A tile of a tile: its warps, and halves of them.
    const auto warp = cg::tiled_partition<32>(g);
    mine[9] = cg::reduce(cg::tiled_partition<16>(warp), v, cg::less<int>()) + warp.shfl(v, 3);
}

#define TILES(N) \
    extern "C" __global__ void several##N(const int* in, int* out) { several<N>(in, out); }
TILES(64)
TILES(128)
TILES(256)
TILES(512)
