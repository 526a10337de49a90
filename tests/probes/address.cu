// Where shared memory lies: window, start of dynamic memory, ranks in addresses of a cluster.
#include <cstdint>

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

extern __shared__ unsigned char dynamic[];
extern __shared__ __align__(1024) unsigned char dynamic_1024[];

__device__ void report(const void* p, uint32_t* out) {
    const uint64_t generic = reinterpret_cast<uint64_t>(p);
    uint32_t shared;
    asm volatile("{ .reg .pred p; isspacep.shared p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(shared) : "l"(generic));
    out[0] = shared_address(p);
    out[1] = static_cast<uint32_t>(generic) - shared_address(p);  // the window starts at a multiple of 4 GiB
    out[2] = shared;
}

extern "C" __global__ void dynamic_only(uint32_t* out) { report(dynamic, out); }

extern "C" __global__ void after_static(uint32_t* out) {
    __shared__ unsigned char fixed[100];
    fixed[threadIdx.x] = 1;
    report(fixed, out);
    report(dynamic, out + 3);
    out[6] = fixed[threadIdx.x];
}

extern "C" __global__ void aligned_after_static(uint32_t* out) {
    __shared__ unsigned char fixed[100];
    fixed[threadIdx.x] = 1;
    report(fixed, out);
    report(dynamic_1024, out + 3);
    out[6] = fixed[threadIdx.x];
}

extern "C" __global__ void sizes(uint32_t* out) {
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(out[0]));
    asm volatile("mov.u32 %0, %%total_smem_size;" : "=r"(out[1]));
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(out[3]));
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(out[4]));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(out[5]));
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(out[6]));
}

// Own address, both ranks' addresses of it, the ranks read back from them, and a value written by the peer.
extern "C" __global__ void __cluster_dims__(2, 1, 1) ranks(uint32_t* out) {
    __shared__ uint32_t cell[4];
    out += blockIdx.x * 16;
    const uint32_t own = shared_address(cell);
    uint32_t at[2], rank, self;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(self));
    out[0] = self;
    out[1] = own;
    for (uint32_t r = 0; r < 2; ++r) {
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at[r]) : "r"(own), "r"(r));
        asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(at[r]));
        out[2 + 2 * r] = at[r];
        out[3 + 2 * r] = rank;
    }
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(own));
    out[6] = rank;
    const uint64_t generic = reinterpret_cast<uint64_t>(&cell[0]);
    for (uint32_t r = 0; r < 2; ++r) {
        uint64_t there;
        uint32_t inside, cluster;
        asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(generic), "r"(r));
        out[7 + r] = static_cast<uint32_t>(there - (generic - own));
        asm volatile("{ .reg .pred p; isspacep.shared::cta p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(inside) : "l"(there));
        asm volatile("{ .reg .pred p; isspacep.shared::cluster p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(cluster) : "l"(there));
        out[9 + r] = inside | cluster << 1;
    }
    cell[0] = 0;
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(at[1 - self]), "r"(100 + self) : "memory");
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    out[11] = cell[0];
    uint32_t peer;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(peer) : "r"(at[1 - self]) : "memory");
    out[12] = peer;
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}
