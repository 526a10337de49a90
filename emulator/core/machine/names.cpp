#include "machine/names.hpp"

#include "machine/machine.hpp"

namespace ptxm {
namespace {

// The place in the cluster's CTAs; nothing where there is one.
std::string of_cta(const Cluster& cluster, u32 rank) {
    return cluster.ctas.size() > 1 ? format(" of CTA %u", cluster.ctas[rank]->linear) : std::string();
}

}  // namespace

std::string name_of(const Cta& cta) {
    const auto& grid = cta.cluster->machine->launch->grid;
    std::string name = format("CTA %u", cta.linear);
    if (grid[1] > 1 || grid[2] > 1) name += format(" (%u, %u, %u)", cta.id[0], cta.id[1], cta.id[2]);
    if (cta.cluster->ctas.size() > 1) name += format(", rank %u of its cluster", cta.rank);
    return name;
}

std::string shared_place(const Cta& cta, u32 offset) {
    return format("shared 0x%x of %s", offset, name_of(cta).c_str());
}

std::string shared_extent(const Cta& cta) {
    const Machine& m = *cta.cluster->machine;
    return format(
        "%s has [0x%x, 0x%zx): %u bytes of its own arrays, and the launch gave %u bytes of dynamic shared "
        "memory",
        name_of(cta).c_str(), kSharedStart, cta.shared.size(), m.program->shared_static, m.launch->dynamic_shared);
}

std::string describe_agent(const Cluster& cluster, AgentId id) {
    const AgentInfo& a = cluster.agents[id];
    const std::string where = of_cta(cluster, a.cta);
    const char* cta = where.c_str();
    switch (a.kind) {
        case AgentKind::warp: return format("warp %u%s", a.warp, cta);
        case AgentKind::tmem_ld: return format("a tcgen05.ld of warp %u%s", a.warp, cta);
        case AgentKind::tmem_st: return format("a tcgen05.st of warp %u%s", a.warp, cta);
        case AgentKind::tensor: return format("the tensor core (issued by warp %u%s)", a.warp, cta);
        case AgentKind::bulk_load:
            return format("a bulk copy that completes on the mbarrier at shared 0x%x%s", a.detail, cta);
        case AgentKind::phase: return format("the mbarrier at shared 0x%x%s", a.detail, cta);
        case AgentKind::cluster_barrier: return "the cluster barrier";
        case AgentKind::bulk_store:
        case AgentKind::bulk_store_read: return format("a bulk store of warp %u%s", a.warp, cta);
        case AgentKind::cp_async: return format("a cp.async of warp %u%s", a.warp, cta);
        case AgentKind::warpgroup: return format("wgmma of the warpgroup of warps %u-%u%s", a.warp, a.warp + 3u, cta);
    }
    return "?";
}

}  // namespace ptxm
