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
    void look(Warp& w, const Inst& i, u32 mask) {
        found_.clear();
        turn_to(*w.cta->cluster);
        if ((current_ || seen_) && tells(static_cast<Op>(i.op))) look_at(w, i, mask);
    }
    void keep(Warp& w, const Inst& i, i32 pc, u32 mask) {
        if (!current_) return;
        if (&w != kept_of_) {
            kept_of_ = &w;
            kept_ = &current_->ctas[w.cta->rank][w.index];
        }
        if (tells(static_cast<Op>(i.op)))
            keep_deeds(w, i, pc, mask);
        else
            kept_->steps.push_back({static_cast<u32>(pc), 0});
    }

    const std::vector<std::shared_ptr<timing::ClusterRecording>>& clusters() const { return clusters_; }
    // By the ordinals of clusters, those that are recorded among them.
    const std::map<u64, timing::Glimpse>& glimpsed() const { return glimpses_; }

private:
    void turn_to(const Cluster& cluster) {
        if (cluster.ordinal != current_ordinal_) begin(cluster);
    }
    void begin(const Cluster& cluster);
    // Whether there is more of an instruction than that it was executed.
    static bool tells(Op op) {
        switch (op) {
            case Op::ld:
            case Op::st:
            case Op::ld_sync:
            case Op::st_sync:
            case Op::atom:
            case Op::ldmatrix:
            case Op::stmatrix:
            case Op::mbar_init:
            case Op::mbar_arrive:
            case Op::mbar_expect_tx:
            case Op::mbar_complete_tx:
            case Op::mbar_wait:
            case Op::cp_async_mbar:
            case Op::tma_load:
            case Op::tma_store:
            case Op::bulk_load:
            case Op::bulk_send:
            case Op::bulk_store:
            case Op::clc_try_cancel:
            case Op::cp_async:
            case Op::wgmma:
            case Op::tc_mma:
            case Op::tc_commit:
            case Op::tmem_alloc:
            case Op::bar:
            case Op::bar_red:
            case Op::cluster_arrive:
            case Op::cluster_wait: return true;
            default: return false;
        }
    }
    void look_at(Warp& w, const Inst& i, u32 mask);
    void keep_deeds(Warp& w, const Inst& i, i32 pc, u32 mask);
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
    const Warp* kept_of_ = nullptr;
    timing::WarpRecording* kept_ = nullptr;  // that warp's
    std::vector<timing::Deed> found_;
    u8 own_rank_ = 0;  // of the CTA whose warp is looked at
};

}  // namespace ptxm
