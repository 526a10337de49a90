#include "timing/recorder.hpp"

#include <algorithm>
#include <bit>
#include <span>

#include "machine/addresses.hpp"
#include "memory/banks.hpp"
#include "memory/tensor_map/tensor_map.hpp"
#include "ptx/copies/bulk.hpp"
#include "ptx/copies/cp_async.hpp"
#include "ptx/wgmma/operands.hpp"

namespace ptxm {

using timing::Did;

namespace {

constexpr u32 kSector = 32, kLine = 128, kResponse = 16;

template <class F>
void each_lane(u32 mask, F f) {
    for (; mask; mask &= mask - 1) f(static_cast<u32>(std::countr_zero(mask)));
}

u64 address_in(Warp& w, i32 unit, u32 width, u32 lane, i64 offset) {
    return (width == 64 ? w.reg<u64>(unit)[lane] : w.reg<u32>(unit)[lane]) + static_cast<u64>(offset);
}

// What the lanes of a warp touch of global memory together.
class Sectors {
public:
    void add(u64 address, u32 bytes) {
        for (u64 s = address / kSector; s <= (address + bytes - 1) / kSector && n_ < all_.size(); ++s) all_[n_++] = s;
    }
    u32 bytes() {
        std::sort(all_.begin(), all_.begin() + n_);
        n_ = static_cast<u32>(std::unique(all_.begin(), all_.begin() + n_) - all_.begin());
        return kSector * n_;
    }
    std::span<const u64> found() const { return {all_.data(), n_}; }

private:
    std::array<u64, kLanes * 2> all_;
    u32 n_ = 0;
};

// Of the lanes of a bulk store those whose operands no lane before them has: 64 bits in the first unit, 32 in each of
// the `count` others. ptxas turns it into one instruction for the warp, in a loop that takes lanes of equal operands
// together (UTMASTG in a loop of R2UR and BRA.U.ANY), and public epilogues have a whole warp issue it.
u32 distinct_lanes(Warp& w, const i32* units, u32 count, u32 mask) {
    const auto equal = [&](u32 a, u32 b) {
        if (w.reg<u64>(units[0])[a] != w.reg<u64>(units[0])[b]) return false;
        return std::all_of(units + 1, units + 1 + count,
                           [&](i32 unit) { return w.reg<u32>(unit)[a] == w.reg<u32>(unit)[b]; });
    };
    u32 distinct = 0;
    each_lane(mask, [&](u32 l) {
        bool seen = false;
        each_lane(distinct, [&](u32 earlier) { seen = seen || equal(l, earlier); });
        if (!seen) distinct |= 1u << l;
    });
    return distinct;
}

// Tells boxes of a launch from one another.
u64 place_of(const Box& box) {
    u64 place = box.map.address;
    for (i32 start : box.start) place = place * 0x9E3779B97F4A7C15ull + static_cast<u32>(start) + 1;
    return place;
}

// What the copy engine asks L2 for: of each row of a box its lines, however short the row is.
u32 requests_of(const Box& box) {
    const u32 row = box.row_bytes();
    return box.bytes() / row * ((row + kLine - 1) / kLine);
}

u32 requests_of(u32 bytes) { return (bytes + kLine - 1) / kLine; }

u32 accessed_bytes(const Inst& i) {
    const Op op = static_cast<Op>(i.op);
    const u32 values = op == Op::st || op == Op::st_sync ? i.n_src - 1u : std::max<u32>(1, i.n_dst);
    return element_bytes(static_cast<Ty>(i.type)) * values;
}

}  // namespace

void Recorder::begin(const Cluster& cluster) {
    current_ordinal_ = cluster.ordinal;
    kept_of_ = nullptr;
    current_ = nullptr;
    seen_ = glimpsed_.contains(cluster.ordinal) && !has_enough(cluster) ? &glimpses_[cluster.ordinal] : nullptr;
    if (!wanted_.contains(cluster.ordinal)) return;
    for (const auto& c : clusters_)
        if (c->ordinal == cluster.ordinal) {
            current_ = c.get();
            return;
        }
    auto made = std::make_shared<timing::ClusterRecording>();
    made->ordinal = cluster.ordinal;
    for (const auto& cta : cluster.ctas) {
        made->ctas.emplace_back(cta->warps.size());
        for (const Warp& w : cta->warps) made->ctas.back()[w.index].threads = static_cast<u32>(std::popcount(w.live));
    }
    clusters_.push_back(std::move(made));
    current_ = clusters_.back().get();
}

void Recorder::note_global(Warp& w, u64 address, u64 bytes, bool write, u64 place) {
    const Allocation* a = machine_of(w).global.find(address, 1);
    if (!a || !bytes) return;
    if (!place) place = address;
    if (seen_ && !write) {
        const auto found = seen_->first.try_emplace(a->base, w.cta->rank, place).first;
        if (w.cta->rank < found->second.first) found->second = {w.cta->rank, place};
        if (!current_ && has_enough(*w.cta->cluster)) seen_ = nullptr;
    }
    if (!current_) return;
    (write ? current_->written : current_->read)[a->base] += bytes;
    if (!write) current_->pieces[place] = {a->base, bytes};
}

bool Recorder::has_enough(const Cluster& cluster) const {
    if (!glimpsed_.contains(cluster.ordinal) || wanted_.contains(cluster.ordinal) || clusters_.empty()) return false;
    const auto& read = clusters_.front()->read;
    if (read.empty()) return true;
    const auto whole = glimpses_.find(clusters_.front()->ordinal), seen = glimpses_.find(cluster.ordinal);
    if (whole == glimpses_.end() || seen == glimpses_.end()) return false;
    return std::ranges::all_of(read, [&](const auto& item) {
        const auto found = seen->second.first.find(item.first);
        return found != seen->second.first.end() && found->second.first <= whole->second.first.at(item.first).first;
    });
}

// A plain load, store or atomic operation, a matrix of ldmatrix or stmatrix.
void Recorder::access(Warp& w, const Inst& i, u32 mask) {
    const Op op = static_cast<Op>(i.op);
    if (op == Op::ldmatrix || op == Op::stmatrix) {
        const u32 registers = op == Op::ldmatrix ? i.n_dst : i.n_src - 1u;
        return add(Did::shared_access, 0, std::max(1u, registers), 0);
    }
    Space space = space_of(i);
    const bool write = op == Op::st || op == Op::st_sync;
    const i32 unit = w.ops(i)[i.n_dst];
    const u32 width = write ? i.width_dst : i.width_src;  // of the address
    u64 at[kLanes];
    const u32 first = static_cast<u32>(std::countr_zero(mask));
    for (u32 l = 0; l < kLanes; ++l) at[l] = address_in(w, unit, width, mask >> l & 1 ? l : first, i.immediate);
    if (space == Space::generic) space = window_of(at[first]);
    if (space == Space::param || space == Space::constant) return;
    const u32 bytes = accessed_bytes(i);
    if (space == Space::shared_cluster && static_cast<u32>(at[first]) >> kSharedRankShift != w.cta->rank)
        return add(Did::remote_access, 0, bytes * static_cast<u32>(std::popcount(mask)), 0);
    if (space == Space::shared || space == Space::shared_cluster || space == Space::local)
        return add(Did::shared_access, 0, space == Space::local ? 1 : bank_turns(at, mask, bytes), 0);
    Sectors sectors;
    each_lane(mask, [&](u32 l) { sectors.add(at[l], bytes); });
    const u32 moved = sectors.bytes();
    bool again = !write;
    if (current_ && !write)
        for (u64 sector : sectors.found()) again = !current_->lines.insert(sector * kSector / kLine).second && again;
    add(write ? Did::global_write : Did::global_read, 0, moved, again);
    note_global(w, at[first], moved, write);
}

void Recorder::barrier_at(Warp& w, Did what, u64 address, u32 b) {
    if ((address & kWindowMask) == kSharedWindow) address &= ~kWindowMask;
    const SharedRef ref = resolve_shared(w, static_cast<u32>(address), 8, "an mbarrier");
    if (!found_.empty() && what == Did::mbarrier_arrive) {  // of the lanes of a warp, one deed
        timing::Deed& last = found_.back();
        if (last.what == what && last.rank == ref.cta->rank && last.a == ref.offset) {
            last.b += b;
            return;
        }
    }
    add(what, ref.cta->rank, ref.offset, b);
}

void Recorder::mbarrier(Warp& w, const Inst& i, u32 mask) {
    const i32* s = w.ops(i) + i.n_dst;
    const auto place = [&](u32 l) { return address_in(w, s[0], i.width_src, l, i.immediate); };
    switch (static_cast<Op>(i.op)) {
        case Op::mbar_init:
            return each_lane(mask, [&](u32 l) { barrier_at(w, Did::mbarrier_init, place(l), w.reg<u32>(s[1])[l]); });
        case Op::mbar_expect_tx:
            return each_lane(mask, [&](u32 l) { barrier_at(w, Did::mbarrier_expect, place(l), w.reg<u32>(s[1])[l]); });
        case Op::mbar_complete_tx:
            return each_lane(mask,
                             [&](u32 l) { barrier_at(w, Did::mbarrier_expect, place(l), 0u - w.reg<u32>(s[1])[l]); });
        case Op::mbar_arrive:
            return each_lane(mask, [&](u32 l) {
                if (i.mods & kMbarExpectTx) barrier_at(w, Did::mbarrier_expect, place(l), w.reg<u32>(s[1])[l]);
                const bool counted = !(i.mods & kMbarExpectTx) && i.n_src > 1;
                barrier_at(w, Did::mbarrier_arrive, place(l), counted ? w.reg<u32>(s[1])[l] : 1);
            });
        case Op::cp_async_mbar: return each_lane(mask, [&](u32 l) { barrier_at(w, Did::copy_arrive, place(l), 1); });
        default: return;
    }
}

void Recorder::copy(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    switch (static_cast<Op>(i.op)) {
        case Op::tma_load: {
            const i32* after = o + 2 + coordinate_units(i.mods);
            each_lane(mask, [&](u32 l) {
                const Box box = read_loaded_box(w, w.reg<u64>(o[1])[l], o + 2, l, i.mods);
                const u32 bytes = box.data_bytes();
                const SharedRef at = resolve_shared(w, w.reg<u32>(after[0])[l], 8, "an mbarrier");
                note_global(w, box.map.address, bytes, false, place_of(box));
                const u32 requests = requests_of(box);
                if (!(i.mods & kBulkMulticast)) return add(Did::copy_in, at.cta->rank, at.offset, bytes, requests);
                Did what = Did::copy_in;
                for (u32 rank : multicast_ranks(w, w.reg<u16>(after[1])[l])) {
                    add(what, signal_rank(rank, at.cta->rank, i.mods & kTmaPair), at.offset, bytes, requests);
                    found_.back().to = static_cast<u8>(rank);
                    what = Did::copy_also;
                }
            });
            return;
        }
        case Op::bulk_load:
            return each_lane(mask, [&](u32 l) {
                note_global(w, w.reg<u64>(o[1])[l], w.reg<u32>(o[2])[l], false);
                barrier_at(w, Did::copy_in, w.reg<u32>(o[3])[l], w.reg<u32>(o[2])[l]);
                found_.back().c = requests_of(w.reg<u32>(o[2])[l]);
            });
        case Op::bulk_send:
            return each_lane(mask,
                             [&](u32 l) { barrier_at(w, Did::copy_in, w.reg<u32>(o[3])[l], w.reg<u32>(o[2])[l]); });
        case Op::bulk_store:
            return each_lane(distinct_lanes(w, o, 2, mask), [&](u32 l) {
                note_global(w, w.reg<u64>(o[0])[l], w.reg<u32>(o[2])[l], true);
                add(Did::copy_out, 0, 0, w.reg<u32>(o[2])[l], requests_of(w.reg<u32>(o[2])[l]));
            });
        case Op::tma_store:
            return each_lane(distinct_lanes(w, o, 1 + coordinate_units(i.mods), mask), [&](u32 l) {
                const Box box = read_box(w, w.reg<u64>(o[0])[l], o + 2, l, i.mods);
                note_global(w, box.map.address, box.bytes(), true);
                add(Did::copy_out, 0, 0, box.bytes(), requests_of(box));
            });
        case Op::clc_try_cancel:
            if (current_) current_->claims = true;
            return each_lane(mask, [&](u32 l) {
                const SharedRef at = resolve_shared(w, w.reg<u32>(o[1])[l], 8, "an mbarrier");
                const bool all = i.mods & kBulkMulticast;
                for (const auto& cta : w.cta->cluster->ctas)
                    if (all || cta.get() == w.cta) add(Did::response, cta->rank, at.offset, kResponse);
            });
        default: {  // cp.async
            Sectors read;
            each_lane(mask, [&](u32 l) {
                const u32 bytes = source_bytes(w, i, l);
                note_global(w, source_address(w, i, l), bytes, false);
                if (bytes) read.add(source_address(w, i, l), bytes);
            });
            return add(Did::copy_async, 0, 0, read.bytes());
        }
    }
}

void Recorder::matrix(Warp& w, const Inst& i, u32 mask) {
    const i32* o = w.ops(i);
    if (static_cast<Op>(i.op) == Op::wgmma) {
        const WgmmaShape s = wgmma_shape(i);
        const u32 a_bytes = s.a_registers ? 0 : 64 * kWgmmaKBytes;
        return add(Did::matrix, 0, 64u << 16 | s.n, a_bytes + s.n * s.b_k_bytes());
    }
    // tcgen05.mma: rows and columns from the instruction descriptor (PTX ISA 9.7.16.4.2).
    const u32 bits = w.reg<u32>(o[3])[std::countr_zero(mask)];
    const u32 n = (bits >> 17 & 0x3F) << 3, m = (bits >> 24 & 0x1F) << 4;
    const bool in_tmem = i.mods & kTcATmem, pair = i.mods & kTcPair;
    const u32 ctas = pair ? 2 : 1;
    add(Did::matrix, (in_tmem ? 1u : 0u) | (pair ? 2u : 0u), m << 16 | n,
        (in_tmem ? 0 : m / ctas * 32) + n / ctas * 32);
}

void Recorder::look_at(Warp& w, const Inst& i, u32 mask) {
    own_rank_ = static_cast<u8>(w.cta->rank);
    const i32* s = w.ops(i) + i.n_dst;
    switch (static_cast<Op>(i.op)) {
        case Op::ld:
        case Op::st:
        case Op::ld_sync:
        case Op::st_sync:
        case Op::atom:
        case Op::ldmatrix:
        case Op::stmatrix: return access(w, i, mask);
        case Op::mbar_init:
        case Op::mbar_arrive:
        case Op::mbar_expect_tx:
        case Op::mbar_complete_tx:
        case Op::cp_async_mbar: return mbarrier(w, i, mask);
        case Op::tma_load:
        case Op::tma_store:
        case Op::bulk_load:
        case Op::bulk_send:
        case Op::bulk_store:
        case Op::clc_try_cancel:
        case Op::cp_async: return copy(w, i, mask);
        case Op::wgmma:
        case Op::tc_mma: return matrix(w, i, mask);
        case Op::tc_commit:
            return each_lane(mask, [&](u32 l) {
                u64 address = address_in(w, s[0], i.width_src, l, 0);
                if (!(i.mods & kTcMulticast)) return barrier_at(w, Did::commit, address, 0);
                for (u32 rank = 0; rank < w.cta->cluster->ctas.size(); ++rank)
                    if (w.reg<u16>(s[1])[l] >> rank & 1)
                        add(Did::commit, rank, static_cast<u32>(address) & kSharedOffsetMask, 0);
            });
        case Op::bar:
        case Op::bar_red: {
            const u32 lane = static_cast<u32>(std::countr_zero(mask));
            const u32 count = i.mods & kBarHasCount ? w.reg<u32>(s[1])[lane] : 0;
            return add(Did::barrier, i.mods & kBarArriveOnly ? 1 : 0, w.reg<u32>(s[0])[lane], count);
        }
        case Op::cluster_arrive: return add(Did::cluster_arrive, 0, 0, static_cast<u32>(std::popcount(mask)));
        case Op::cluster_wait: return add(Did::cluster_wait, 0, 0, w.cta->cluster->barrier.phase);
        default: return;
    }
}

void Recorder::keep_deeds(Warp& w, const Inst& i, i32 pc, u32 mask) {
    if (static_cast<Op>(i.op) == Op::mbar_wait) {
        const i32* o = w.ops(i);
        if (!(w.pred(o[0]) & mask)) return;  // a poll that failed
        const u32 lane = static_cast<u32>(std::countr_zero(w.pred(o[0]) & mask));
        u64 address = address_in(w, o[1], i.width_src, lane, i.immediate);
        if ((address & kWindowMask) == kSharedWindow) address &= ~kWindowMask;
        const SharedRef ref = resolve_shared(w, static_cast<u32>(address), 8, "an mbarrier");
        u32 phases = ref.cta->mbarriers.at(ref.offset).phase;
        if (!(i.mods & kMbarParity))
            phases = static_cast<u32>(w.reg<u64>(o[2])[lane]) + 1;
        else if ((phases & 1) == (w.reg<u32>(o[2])[lane] & 1))
            phases -= 1;  // the barrier has moved on since
        add(Did::mbarrier_wait, ref.cta->rank, ref.offset, phases);
    }
    if (static_cast<Op>(i.op) == Op::tmem_alloc && !w.cta->rank)
        current_->tensor_columns += w.reg<u32>(w.ops(i)[1])[std::countr_zero(mask)];
    u32 first = 0;
    if (!found_.empty()) {
        first = static_cast<u32>(kept_->deeds.size()) + 1;
        for (timing::Deed& d : found_) d.more = &d != &found_.back();
        kept_->deeds.insert(kept_->deeds.end(), found_.begin(), found_.end());
    }
    kept_->steps.push_back({static_cast<u32>(pc), first});
}

}  // namespace ptxm
