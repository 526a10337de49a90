// Cooperative groups smaller than a warp, and CUB's warp primitives over fewer lanes: what each thread gets from them.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

namespace cg = cooperative_groups;

template <class Group>
__device__ void collect(const Group& g, int v, int* out) {
    const unsigned n = g.num_threads(), rank = g.thread_rank();
    out[0] = static_cast<int>(rank);
    out[1] = static_cast<int>(n);
    out[2] = g.shfl(v, 1 % n);
    out[3] = g.shfl_up(v, 1);
    out[4] = g.shfl_down(v, 1);
    out[5] = static_cast<int>(g.ballot(v & 1));
    out[6] = g.any(v % 5 == 0);
    out[7] = g.all(v & 1);
    out[8] = static_cast<int>(g.match_any(v & 3));
    int same = 0;
    out[9] = static_cast<int>(g.match_all(v & 16, same));
    out[10] = same;
    out[11] = cg::reduce(g, v, cg::plus<int>());
    out[12] = cg::reduce(g, v, cg::greater<int>());
    out[13] = cg::inclusive_scan(g, v, cg::plus<int>());
    out[14] = cg::exclusive_scan(g, v, cg::plus<int>());
    g.sync();
}

constexpr int kColumns = 15;

// `late`: the groups of a warp come one after the other, in loops of their own length, and half of them in a branch.
template <int N>
__device__ void tile(const int* in, int* out, int late) {
    const auto g = cg::tiled_partition<N>(cg::this_thread_block());
    const int i = static_cast<int>(threadIdx.x);
    int v = in[i];
    if (!late) return collect(g, v, out + i * kColumns);
    for (unsigned turn = 0; turn < g.meta_group_rank() * 3 % 7; ++turn) v = v * 3 + 1;
    if (g.meta_group_rank() & 1)
        collect(g, v, out + i * kColumns);
    else
        collect(g, v + 1, out + i * kColumns);
}

#define TILES(N) \
    extern "C" __global__ void tile##N(const int* in, int* out, int late) { tile<N>(in, out, late); }
TILES(1)
TILES(2)
TILES(4)
TILES(8)
TILES(16)
TILES(32)

extern "C" __global__ void labeled(const int* in, int* out, int labels) {
    const int i = static_cast<int>(threadIdx.x);
    const auto g = cg::labeled_partition(cg::coalesced_threads(), static_cast<unsigned>(in[i]) % labels);
    collect(g, in[i], out + i * kColumns);
}

extern "C" __global__ void binary(const int* in, int* out, int bit) {
    const int i = static_cast<int>(threadIdx.x);
    const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    const auto g = cg::binary_partition(tile, (in[i] & bit) != 0);
    collect(g, in[i], out + i * kColumns);
}

extern "C" __global__ void coalesced(const int* in, int* out, int bit) {
    const int i = static_cast<int>(threadIdx.x);
    if (in[i] & bit) {
        collect(cg::coalesced_threads(), in[i], out + i * kColumns);
    } else if (in[i] & 2 * bit) {
        collect(cg::coalesced_threads(), in[i] + 1, out + i * kColumns);
    }
}

template <int N>
__device__ void with_cub(const int* in, int* out) {
    using Reduce = cub::WarpReduce<int, N>;
    using Scan = cub::WarpScan<int, N>;
    constexpr int kThreads = 64;
    __shared__ typename Reduce::TempStorage reduce[kThreads / N];
    __shared__ typename Scan::TempStorage scan[kThreads / N];
    const int i = static_cast<int>(threadIdx.x), group = i / N;
    const int sum = Reduce(reduce[group]).Sum(in[i]);  // valid in the first lane of a group
    __syncwarp();
    int before = 0, total = 0;
    Scan(scan[group]).ExclusiveSum(in[i], before, total);
    out[3 * i] = i % N ? 0 : sum;
    out[3 * i + 1] = before;
    out[3 * i + 2] = total;
}

#define WARPS(N) \
    extern "C" __global__ void cub##N(const int* in, int* out, int) { with_cub<N>(in, out); }
WARPS(2)
WARPS(4)
WARPS(8)
WARPS(16)
WARPS(32)

// Instructions in both branches that one meeting of the warp takes: legal since sm_70.
extern "C" __global__ void branches(const int* in, int* out, int bit) {
    __shared__ int slots[64];
    const int i = static_cast<int>(threadIdx.x), v = in[i];
    int across, votes;
    if (v & bit) {
        slots[i] = v;
        __syncwarp();
        across = __shfl_xor_sync(~0u, slots[i ^ 1], 1);
        votes = static_cast<int>(__ballot_sync(~0u, v & 1));
    } else {
        slots[i] = -v;
        __syncwarp();
        across = __shfl_xor_sync(~0u, slots[i ^ 1] * 2, 1);
        votes = static_cast<int>(__ballot_sync(~0u, !(v & 1)));
    }
    out[2 * i] = across;
    out[2 * i + 1] = votes;
}
