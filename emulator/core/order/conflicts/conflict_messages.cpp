#include "order/conflicts/conflict_messages.hpp"

#include "machine/cluster/cluster.hpp"
#include "machine/names.hpp"

namespace ptxm {

std::string Wording::agent(const Cluster& cluster, AgentId id) const {
    return wanted_ ? describe_agent(cluster, id) : std::string();
}

}  // namespace ptxm
