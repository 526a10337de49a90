// The past of a memory's cells: who touched what last, and what another access makes of it.
#pragma once

#include <array>
#include <bit>
#include <limits>
#include <vector>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "order/clocks.hpp"

namespace ptxm {

struct Access {
    u32 clock = 0;  // 0: none
    u32 pc : 25 = 0;
    u32 strong : 1 = 0;    // atomic, volatile or with memory-ordering semantics: two such never race
    u32 narrow : 1 = 0;    // the same at .cta scope: of one CTA
    u32 observes : 1 = 0;  // of a read: a strong one of what a strong write had left
    u32 kind : 4 = 0;      // AgentKind: the agents of a cluster that is gone are not described anywhere else
    AgentId agent = 0;
    u16 cluster = 0;  // agents are numbered within their cluster; 0 in memory that only one cluster reaches
};
static_assert(sizeof(Access) == 12);

struct Past {
    static constexpr u32 kReaders = 4;
    Access write;
    std::array<Access, kReaders> reads{};  // those from n_reads on are as in a new past
    u32 n_reads = 0;
};
static_assert(std::has_unique_object_representations_v<Past> && sizeof(Past) == 64);

struct Conflict {
    const Access* earlier = nullptr;
    bool earlier_was_write = false;
    bool uninitialised = false;
    bool stale = false;  // a non-coherent load of what this launch has written
};

// Who is accessing now.
struct Accessor {
    AgentId agent;
    u32 clock;
    u32 pc;
    bool write;
    bool strong = false;
    u16 cluster = 0;
    AgentKind kind = AgentKind::warp;
    bool repeats = false;  // writes the value that is there: no conflict with whoever wrote it
    bool narrow = false;   // strong at .cta scope
    bool non_coherent = false;
    u32 lanes = 0;  // of a warp's load or store; 0 where no lane stands out

    bool same_agent(const Access& a) const { return a.agent == agent && a.cluster == cluster; }
    Access access() const {
        Access a;
        a.clock = clock;
        a.pc = pc & 0x1FFFFFF;
        a.strong = strong;
        a.narrow = narrow;
        a.kind = static_cast<u32>(kind) & 0xF;
        a.agent = agent;
        a.cluster = cluster;
        return a;
    }
};

// Whether a strong write follows a weak one of the same agent and epoch: whoever knows of either knows of both, and
// only the weak one races with other strong accesses.
inline bool follows_weak(const Past& past, const Accessor& who) {
    return who.strong && who.write && !past.write.strong && past.write.clock == who.clock && who.same_agent(past.write);
}

// Whether a strong read that saw the last write, which is strong, comes before this access: then the write does,
// however relaxed the two were (PTX ISA 8.9.5, causality order). Of two strong accesses `ordered` says that they do not
// race.
template <class Ordered>
bool write_was_observed(const Past& past, const Accessor& who, Ordered&& ordered) {
    for (u32 i = 0; i < past.n_reads; ++i) {
        const Access& read = past.reads[i];
        if (read.observes && (!(who.strong && read.strong) || who.same_agent(read)) && ordered(read, true)) return true;
    }
    return false;
}

// Policy: bool ordered(const Access& earlier, bool earlier_was_write) for the accessor at hand.
template <class Ordered, class Report>
void touch_past(Past& past, const Accessor& who, bool check_uninitialised, Ordered&& ordered, Report&& report) {
    if (past.write.clock == 0) {
        if (!who.write && check_uninitialised) report(Conflict{nullptr, false, true});
    } else if (who.non_coherent) {
        report(Conflict{&past.write, true, false, true});
    } else if (!who.repeats && !ordered(past.write, true) && !write_was_observed(past, who, ordered)) {
        report(Conflict{&past.write, true, false});
    }
    if (who.write) {
        for (u32 i = 0; i < past.n_reads; ++i)
            if (!ordered(past.reads[i], false)) report(Conflict{&past.reads[i], false, false});
        past = Past{follows_weak(past, who) ? past.write : who.access()};
        return;
    }
    Access read = who.access();
    read.observes = who.strong && past.write.strong && ordered(past.write, true);
    for (u32 i = 0; i < past.n_reads; ++i) {
        if (who.same_agent(past.reads[i])) {
            read.strong = who.strong && past.reads[i].strong;
            read.narrow = who.narrow || past.reads[i].narrow;
            read.observes |= past.reads[i].observes;
            past.reads[i] = read;
            return;
        }
    }
    // A reader that is ordered before this one can be forgotten: whoever is ordered after this read is after that one.
    for (u32 i = 0; i < past.n_reads; ++i) {
        if (ordered(past.reads[i], false)) {
            read.observes |= past.reads[i].observes;
            past.reads[i] = read;
            return;
        }
    }
    if (past.n_reads < Past::kReaders)
        past.reads[past.n_reads++] = read;
    else
        past.reads[who.pc % Past::kReaders] = read;
}

// The distinct pasts of a memory's cells. Each is kept once and has a number: cells whose numbers are equal, and only
// they, have the same past. Number 0 is the past of what nothing has touched.
class Pasts {
public:
    static constexpr u32 kNone = std::numeric_limits<u32>::max();  // no past's number

    // What is long and rare is in access_history.cpp, for each of these vectors is much code in every file that has it.
    Pasts();
    Pasts(Pasts&&) noexcept;
    Pasts& operator=(Pasts&&) noexcept;
    ~Pasts();

    void reset();
    const Past& operator[](u32 number) const { return pasts_[number]; }
    u32 number_of(const Past& past) {
        for (u64 slot = hash(past);; ++slot) {
            u32& entry = table_[slot & (table_.size() - 1)];
            if (entry == kNone) return entry = add(past);
            if (same(pasts_[entry], past)) return entry;
        }
    }

    // What the operation in progress makes of a past.
    void begin_operation() {
        if (++operation_ == 0) {
            std::fill(noted_.begin(), noted_.end(), 0);
            operation_ = 1;
        }
    }
    bool noted(u32 number) const { return noted_[number] == operation_; }
    u32 after(u32 number) const { return after_[number]; }
    void note(u32 number, u32 after) {
        noted_[number] = operation_;
        after_[number] = after;
    }
    // The same for eight numbers, if they are all noted. Numbers are below 2^31; what is not one, is not noted.
    bool replace_noted(u32* numbers) const {
#ifdef __AVX2__
        const auto at = reinterpret_cast<__m256i*>(numbers);
        const __m256i n = _mm256_loadu_si256(at);
        if (_mm256_movemask_ps(_mm256_castsi256_ps(n))) return false;
        const __m256i operations = _mm256_i32gather_epi32(reinterpret_cast<const int*>(noted_.data()), n, 4);
        const __m256i other = _mm256_xor_si256(operations, _mm256_set1_epi32(static_cast<i32>(operation_)));
        if (!_mm256_testz_si256(other, other)) return false;
        _mm256_storeu_si256(at, _mm256_i32gather_epi32(reinterpret_cast<const int*>(after_.data()), n, 4));
        return true;
#else
        static_cast<void>(numbers);
        return false;
#endif
    }

#ifdef __AVX512F__
    // Those of some of 16 numbers that this operation has met, and what it has made of them.
    __mmask16 noted(__mmask16 some, __m512i numbers) const {
        const __m512i none = _mm512_setzero_si512();
        return _mm512_mask_cmpeq_epi32_mask(some, _mm512_mask_i32gather_epi32(none, some, numbers, noted_.data(), 4),
                                            _mm512_set1_epi32(static_cast<i32>(operation_)));
    }
    __m512i after(__mmask16 some, __m512i numbers) const {
        return _mm512_mask_i32gather_epi32(numbers, some, numbers, after_.data(), 4);
    }
#endif

    // Whether it is time to forget the pasts that no cell has any more. `each_number` calls its argument with the
    // number of every cell.
    bool crowded() const { return pasts_.size() - free_.size() >= limit_; }
    template <class EachNumber>
    void forget_unused(EachNumber each_number) {
        std::vector<u8> used(pasts_.size());
        used[0] = true;
        u32 last = 0;  // neighbours mostly have the same past
        std::size_t visited = 0;
        each_number([&](u32 number) {
            visited += 1;
            if (number != last) used[last = number] = true;
        });
        keep(used, visited);
    }

    static bool same(const Past& a, const Past& b) {
        const Words x = std::bit_cast<Words>(a), y = std::bit_cast<Words>(b);
        u64 differences = 0;
        for (u32 k = 0; k < x.size(); ++k) differences |= x[k] ^ y[k];
        return differences == 0;
    }

private:
    using Words = std::array<u64, sizeof(Past) / sizeof(u64)>;
    static constexpr std::size_t kFirstLimit = 512, kFewest = 1024, kMost = 8192;

    static u64 hash(const Past& past) {
        constexpr Words odd = {0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93,
                               0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3};
        const Words words = std::bit_cast<Words>(past);
        u64 sum = 0;
        for (u32 k = 0; k < words.size(); ++k) sum += words[k] * odd[k];
        return (sum ^ sum >> 29) * odd[0] >> 32;
    }

    u32 add(const Past& past);
    // At most half full, until the limit is passed by what one operation adds.
    void make_table(const std::vector<u8>* used = nullptr);
    // Of those that some cell has; `visited` is how many cells there are.
    void keep(const std::vector<u8>& used, std::size_t visited);

    std::vector<Past> pasts_;
    std::vector<u32> noted_, after_;  // by number: the last operation that met it, and what it made of it
    std::vector<u32> free_;
    std::vector<u32> table_;  // numbers by hash
    std::size_t limit_ = 0;
    u32 operation_ = 0;
};

// What one operation does to the cells it covers: cells with the same past have the same to report, which is told
// once, and get the same past.
template <class Ordered, class Report>
class Touch {
public:
    Touch(Pasts& pasts, const Accessor& who, bool check_uninitialised, Ordered ordered, Report report)
        : pasts_(pasts), who_(who), check_uninitialised_(check_uninitialised), ordered_(ordered), report_(report) {
        pasts_.begin_operation();
    }
    // The number of the past that follows `before`.
    u32 operator()(u32 before) {
        if (before == last_before_) return last_after_;
        const u32 after = pasts_.noted(before) ? pasts_.after(before) : follow(before);
        last_before_ = before;
        return last_after_ = after;
    }
    // Of the last call.
    u32 before() const { return last_before_; }
    u32 after() const { return last_after_; }
    // Eight numbers at once, if this operation has met them all.
    bool replace_met(u32* numbers) const { return pasts_.replace_noted(numbers); }
    const Pasts& pasts() const { return pasts_; }

private:
    [[gnu::noinline]] u32 follow(u32 before) {
        Past past = pasts_[before];
        touch_past(past, who_, check_uninitialised_, ordered_, report_);
        const bool alike = who_.write && !follows_weak(pasts_[before], who_);  // these writes leave the same
        u32 after = alike ? written_ : Pasts::kNone;
        if (after == Pasts::kNone) after = Pasts::same(past, pasts_[before]) ? before : pasts_.number_of(past);
        if (alike) written_ = after;
        pasts_.note(before, after);
        return after;
    }

    Pasts& pasts_;
    Accessor who_;
    bool check_uninitialised_;
    Ordered ordered_;
    Report report_;
    u32 last_before_ = Pasts::kNone, last_after_ = 0, written_ = Pasts::kNone;
};

}  // namespace ptxm
