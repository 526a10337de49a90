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

}  // namespace ptxm
