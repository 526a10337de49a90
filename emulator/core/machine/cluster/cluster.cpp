// To make and to destroy what a cluster holds is much code: here, and not in every file that knows of clusters.
#include "machine/cluster/cluster.hpp"

#include "order/history/linear_history.hpp"

namespace ptxm {

Warp::Warp() = default;
Warp::Warp(Warp&&) noexcept = default;
Warp::~Warp() = default;
Cta::Cta() = default;
Cta::~Cta() = default;
Cluster::Cluster() = default;
Cluster::~Cluster() = default;

AgentId Cluster::new_agent(AgentInfo info) {
    if (agents.size() > std::numeric_limits<AgentId>::max())
        throw Fault("internal", "more than 65536 agents in a cluster: mbarriers initialised over and over");
    agents.push_back(info);
    return static_cast<AgentId>(agents.size() - 1);
}

void note_use(std::vector<Use>& uses, const Use& use) {
    for (Use& u : uses) {
        if (u.agent != use.agent) continue;
        if (use.clock >= u.clock) u = use;
        return;
    }
    uses.push_back(use);
}

}  // namespace ptxm
