// Notes what warps execute, for the clusters that were asked for.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "machine/machine.hpp"
#include "timing/recording.hpp"

namespace ptxm {

class Recorder {
public:
    Recorder(std::set<u64> wanted, std::set<u64> glimpsed)
        : wanted_(std::move(wanted)), glimpsed_(std::move(glimpsed)) {}

    bool records(u64 ordinal) const { return wanted_.contains(ordinal); }
    bool wants(u64 ordinal) const { return records(ordinal) || glimpsed_.contains(ordinal); }
    // Whether no more has to be seen of a cluster: it is not recorded, and from every allocation that the first
    // recorded one reads the CTA has read that comes first there.
    bool has_enough(const Cluster& cluster) const;
    // What the instruction is about to do. `keep` follows if it has been executed, and not if it has to be tried again.
    void look(Warp& w, const Inst& i, u32 mask);
    void keep(Warp& w, const Inst& i, i32 pc, u32 mask);

    const std::vector<std::shared_ptr<timing::ClusterRecording>>& clusters() const { return clusters_; }
    // By the ordinals of clusters, those that are recorded among them.
    const std::map<u64, timing::Glimpse>& glimpsed() const { return glimpses_; }

private:
    void turn_to(const Cluster& cluster);
    void add(timing::Did what, u32 rank, u32 a, u32 b, u32 c = 0) {
        found_.push_back({what, static_cast<u8>(rank), own_rank_, false, a, b, c});
    }
    void access(Warp& w, const Inst& i, u32 mask);
    void barrier_at(Warp& w, timing::Did what, u64 address, u32 b);
    void mbarrier(Warp& w, const Inst& i, u32 mask);
    void copy(Warp& w, const Inst& i, u32 mask);
    void matrix(Warp& w, const Inst& i, u32 mask);
    void note_global(Warp& w, u64 address, u64 bytes, bool write, u64 place = 0);

    std::set<u64> wanted_, glimpsed_;
    std::map<u64, timing::Glimpse> glimpses_;
    timing::Glimpse* seen_ = nullptr;  // of the cluster whose warp is looked at; null where nothing more has to be seen
    std::vector<std::shared_ptr<timing::ClusterRecording>> clusters_;
    timing::ClusterRecording* current_ = nullptr;
    u64 current_ordinal_ = ~0ull;
    std::vector<timing::Deed> found_;
    u8 own_rank_ = 0;  // of the CTA whose warp is looked at
};

}  // namespace ptxm
