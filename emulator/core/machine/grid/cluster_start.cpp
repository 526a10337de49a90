#include "machine/grid/cluster_start.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "machine/grid/grid_tree.hpp"
#include "machine/machine.hpp"
#include "order/history/linear_history.hpp"

namespace ptxm {
namespace {

u32 special_value(Special s, const Launch& launch, const Program& program, const Cta& cta, u32 warp, u32 lane) {
    const auto& b = launch.block;
    const auto& g = launch.grid;
    const auto& c = launch.cluster;
    const u32 thread = warp * kLanes + lane;
    switch (s) {
        case Special::tid_x: return thread % b[0];
        case Special::tid_y: return thread / b[0] % b[1];
        case Special::tid_z: return thread / b[0] / b[1];
        case Special::ntid_x: return b[0];
        case Special::ntid_y: return b[1];
        case Special::ntid_z: return b[2];
        case Special::ctaid_x: return cta.id[0];
        case Special::ctaid_y: return cta.id[1];
        case Special::ctaid_z: return cta.id[2];
        case Special::nctaid_x: return g[0];
        case Special::nctaid_y: return g[1];
        case Special::nctaid_z: return g[2];
        case Special::laneid: return lane;
        case Special::warpid: return warp;
        case Special::nwarpid: return (b[0] * b[1] * b[2] + kLanes - 1) / kLanes;
        case Special::lanemask_eq: return 1u << lane;
        case Special::lanemask_lt: return (1u << lane) - 1;
        case Special::lanemask_le: return (2u << lane) - 1;
        case Special::lanemask_gt: return ~((2u << lane) - 1);
        case Special::lanemask_ge: return ~((1u << lane) - 1);
        case Special::cluster_ctarank: return cta.rank;
        case Special::cluster_nctarank: return c[0] * c[1] * c[2];
        case Special::cluster_ctaid_x: return cta.id[0] % c[0];
        case Special::cluster_ctaid_y: return cta.id[1] % c[1];
        case Special::cluster_ctaid_z: return cta.id[2] % c[2];
        case Special::cluster_nctaid_x: return c[0];
        case Special::cluster_nctaid_y: return c[1];
        case Special::cluster_nctaid_z: return c[2];
        case Special::clusterid_x: return cta.id[0] / c[0];
        case Special::clusterid_y: return cta.id[1] / c[1];
        case Special::clusterid_z: return cta.id[2] / c[2];
        case Special::nclusterid_x: return g[0] / c[0];
        case Special::nclusterid_y: return g[1] / c[1];
        case Special::nclusterid_z: return g[2] / c[2];
        case Special::dynamic_smem_size: return launch.dynamic_shared;
        // In units of 128 bytes, as an H100 says.
        case Special::total_smem_size: return (program.shared_static + launch.dynamic_shared + 127) / 128 * 128;
        case Special::smid: return cta.linear % 148;
        case Special::nsmid: return 148;
        case Special::gridid: return 1;
        case Special::warp_size: return kLanes;
        // What the driver reports for sm_100: the first kilobyte of shared memory is the system's.
        case Special::aggr_smem_size: return kSharedStart + program.shared_static + launch.dynamic_shared;
        case Special::is_explicit_cluster: return c[0] * c[1] * c[2] > 1 ? ~0u : 0;
        // The values of an H100; a CTA's shared addresses begin at its rank.
        case Special::reserved_smem_offset_begin:
        case Special::reserved_smem_offset_0:
        case Special::reserved_smem_offset_1: return cta.shared_address(0);
        case Special::reserved_smem_offset_end: return cta.shared_address(kReservedShared);
        case Special::reserved_smem_offset_cap: return kSharedStart;
        // Where a cooperative launch has its workspace.
        case Special::envreg1: return static_cast<u32>(launch.workspace >> 32);
        case Special::envreg2: return static_cast<u32>(launch.workspace);
        case Special::zero: return 0;
    }
    return 0;
}

template <class T>
void fill(Warp& w, i32 unit, T value) {
    std::fill_n(w.reg<T>(unit), kLanes, value);
}

void fill_constants(Warp& w, const Program& program, const Launch& launch) {
    for (const ConstRecord& c : program.consts) {
        const i32 unit = static_cast<i32>(c.unit);
        w.initialised[c.unit] = kFullMask;
        switch (static_cast<ConstKind>(c.kind)) {
            case ConstKind::bits32: fill(w, unit, static_cast<u32>(c.bits)); break;
            case ConstKind::bits64: fill(w, unit, c.bits); break;
            case ConstKind::shared32: fill(w, unit, w.cta->shared_address(static_cast<u32>(c.bits))); break;
            case ConstKind::shared64: fill(w, unit, u64{w.cta->shared_address(static_cast<u32>(c.bits))}); break;
            case ConstKind::special:
                for (u32 l = 0; l < kLanes; ++l)
                    w.reg<u32>(unit)[l] =
                        special_value(static_cast<Special>(c.special), launch, program, *w.cta, w.index, l);
                break;
            case ConstKind::pred: w.pred(unit) = c.bits ? kFullMask : 0; break;
        }
    }
}

// The large parts of CTAs that are gone: to clear them is cheaper than to have the system map new ones.
struct Storage {
    std::vector<u8> shared;
    std::unique_ptr<LinearShadow> shared_shadow;
    Tmem tmem;
};
struct RegisterFile {
    std::unique_ptr<u8[]> bytes;
    std::size_t size;
};
constexpr std::size_t kSpares = 8, kSpareRegisterFiles = 32;
thread_local std::vector<Storage> spares;
thread_local std::vector<RegisterFile> spare_register_files;  // all of one size

std::size_t register_file_bytes(const Program& program) { return std::size_t{program.units} * kUnitBytes + 64; }

std::unique_ptr<u8[]> take_register_file(std::size_t size) {
    if (!spare_register_files.empty() && spare_register_files.back().size != size) spare_register_files.clear();
    if (spare_register_files.empty()) return std::make_unique<u8[]>(size);
    std::unique_ptr<u8[]> bytes = std::move(spare_register_files.back().bytes);
    spare_register_files.pop_back();
    std::memset(bytes.get(), 0, size);
    return bytes;
}

void keep_register_file(Warp& w) {
    const std::size_t size = register_file_bytes(*w.program);
    if (!spare_register_files.empty() && spare_register_files.back().size != size) spare_register_files.clear();
    if (spare_register_files.size() < kSpareRegisterFiles)
        spare_register_files.push_back({std::move(w.register_file), size});
}

void take_storage(Cta& cta, u32 shared_bytes) {
    if (spares.empty()) {
        cta.shared.resize(shared_bytes);
        cta.shared_shadow = std::make_unique<LinearShadow>(shared_bytes);
        return;
    }
    Storage s = std::move(spares.back());
    spares.pop_back();
    s.shared.assign(shared_bytes, 0);
    s.shared_shadow->reset(shared_bytes);
    s.tmem.reset();
    cta.shared = std::move(s.shared);
    cta.shared_shadow = std::move(s.shared_shadow);
    cta.tmem = std::move(s.tmem);
}

void keep_storage(Cta& cta) {
    cta.tmem.unsettled = {};  // nobody has looked at it
    if (spares.size() < kSpares)
        spares.push_back({std::move(cta.shared), std::move(cta.shared_shadow), std::move(cta.tmem)});
}

void start_warp(Cta& cta, Warp& w, u32 index, u32 threads, const Program& program, const Launch& launch) {
    Cluster& cluster = *cta.cluster;
    w.cta = &cta;
    w.program = &program;
    w.index = index;
    const u32 lanes = std::min(kLanes, threads - index * kLanes);
    w.live = lanes == kLanes ? kFullMask : (1u << lanes) - 1;
    w.register_file = take_register_file(register_file_bytes(program));
    w.registers =
        reinterpret_cast<u8*>((reinterpret_cast<std::uintptr_t>(w.register_file.get()) + 63) & ~std::uintptr_t{63});
    w.initialised.assign(program.units, 0);
    w.local.assign(std::size_t{kLanes} * program.local_bytes, kPoison);
    if (cluster.machine->checks) w.local_written.assign(w.local.size(), 0);
    Fragment f;
    f.mask = w.live;
    w.fragments.push_back(f);
    const auto agent = [&](AgentKind kind) {
        return cluster.new_agent({kind, static_cast<u16>(cta.rank), static_cast<u16>(index), 0});
    };
    const AgentId self = agent(AgentKind::warp), ld = agent(AgentKind::tmem_ld), st = agent(AgentKind::tmem_st);
    w.clocks.begin(self, ld, st, agent(AgentKind::tensor));
    w.clocks.cluster = cluster.number;
    if (const auto& complete = cluster.machine->complete_at_start(); !complete.empty())
        w.clocks.learn_launches(complete);
    // What the thread that launched the grid had done, and knew.
    if (const Machine& m = *cluster.machine; m.tree)
        if (const auto& known = m.tree->at(m.tree->running()).known) w.clocks.acquire(*known);
    w.clocks.by_lane = cluster.machine->checks && cluster.machine->profile == Profile::strict;
    w.time = index;
    fill_constants(w, program, launch);
}

}  // namespace

std::unique_ptr<Cluster> make_cluster(Machine& m, const std::array<u32, 3>& first, u16 number) {
    const Launch& launch = *m.launch;
    const Program& program = *m.program;
    auto cluster = std::make_unique<Cluster>();
    cluster->machine = &m;
    cluster->number = number;
    cluster->ordinal = ordinal_of(launch, first);
    cluster->random.seed(m.seed + 0x9E3779B97F4A7C15ull * cluster->ordinal);
    const auto& c = launch.cluster;
    const u32 threads = launch.block[0] * launch.block[1] * launch.block[2];
    for (u32 z = 0; z < c[2]; ++z) {
        for (u32 y = 0; y < c[1]; ++y) {
            for (u32 x = 0; x < c[0]; ++x) {
                auto cta = std::make_unique<Cta>();
                cta->cluster = cluster.get();
                cta->rank = static_cast<u32>(cluster->ctas.size());
                cta->id = {first[0] + x, first[1] + y, first[2] + z};
                cta->linear = (cta->id[2] * launch.grid[1] + cta->id[1]) * launch.grid[0] + cta->id[0];
                const u32 bytes = kSharedStart + program.shared_static + launch.dynamic_shared;
                take_storage(*cta, bytes);
                cta->reserved = program.asks_for_reserved ? kReservedShared : 0;
                cta->warps.resize((threads + kLanes - 1) / kLanes);
                cluster->ctas.push_back(std::move(cta));
            }
        }
    }
    for (auto& cta : cluster->ctas) {
        for (u32 k = 0; k < cta->warps.size(); ++k) start_warp(*cta, cta->warps[k], k, threads, program, launch);
        cta->live_warps = static_cast<u32>(cta->warps.size());
        cluster->live_warps += cta->live_warps;
    }
    return cluster;
}

void Machine::retire(Cluster& cluster) {
    if (!cluster.findings.empty()) told_.emplace_back(cluster.ordinal, std::move(cluster.findings));
    cluster.findings = {};
    findings = nullptr;
    for (auto& cta : cluster.ctas) {
        for (const i32 owner : cta->tmem.owner) tensor_columns -= owner ? Tmem::kGranule : 0;
        keep_storage(*cta);
        for (Warp& w : cta->warps) keep_register_file(w);
    }
}

}  // namespace ptxm
