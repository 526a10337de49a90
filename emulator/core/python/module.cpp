// The nanobind face of the core: programs in, launches run, findings out.
#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <memory>

#include "machine/grid/grid.hpp"
#include "machine/grid/grid_tree.hpp"
#include "machine/machine.hpp"
#include "ptx/memory/generic_access.hpp"
#include "ptx/mma/matrix.hpp"
#include "ptx/tcgen05/product/fast/host_tiles.hpp"
#include "python/descriptors.hpp"
#include "python/python_observer.hpp"
#include "timing/recorder.hpp"
#include "timing/replay.hpp"

namespace nb = nanobind;
using namespace ptxm;

namespace ptxm {
extern const char kCoreSources[];  // sources.cpp
}

namespace {

template <class T>
std::vector<T> records(const nb::bytes& raw) {
    if (raw.size() % sizeof(T)) throw std::invalid_argument("record table of a wrong size");
    std::vector<T> out(raw.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), raw.data(), raw.size());
    return out;
}

Program make_program(const nb::bytes& insts, const nb::bytes& operands, const nb::bytes& consts, u32 units,
                     u32 shared_static, u32 local_bytes, u32 param_bytes,
                     const std::vector<std::pair<std::string, std::vector<std::pair<u32, u32>>>>& arrays) {
    Program p;
    for (const InstRecord& r : records<InstRecord>(insts)) {
        Inst i;
        static_cast<InstRecord&>(i) = r;
        bind(i);
        p.insts.push_back(i);
    }
    p.operands = records<i32>(operands);
    for (Inst& i : p.insts) i.first_operand = p.operands.data() + i.operands;
    p.consts = records<ConstRecord>(consts);
    p.units = units;
    p.shared_static = shared_static;
    p.local_bytes = local_bytes;
    p.param_bytes = param_bytes;
    for (const auto& [names, parts] : arrays) {
        Arrays a;
        a.names = names;
        for (const auto& [begin, end] : parts) a.list.push_back({begin, end});
        p.arrays.push_back(std::move(a));
    }
    for (const ConstRecord& c : p.consts) {
        const Special s = static_cast<Special>(c.special);
        p.asks_for_reserved |= static_cast<ConstKind>(c.kind) == ConstKind::special &&
                               s >= Special::reserved_smem_offset_begin && s <= Special::reserved_smem_offset_1;
    }
    return p;
}

void write_memory(Machine& m, u64 address, const nb::bytes& data) {
    Allocation* a = m.global.find_for_host(address, data.size());
    if (!a)
        throw std::out_of_range(format("write of %zu bytes at 0x%llx: %s", data.size(), (unsigned long long)address,
                                       m.global.describe(address).c_str()));
    std::memcpy(a->data.get() + (address - a->base), data.data(), data.size());
    a->written.add(address - a->base, address - a->base + data.size());
}

void zero_memory(Machine& m, u64 address, u64 size) {
    Allocation* a = m.global.find_for_host(address, size);
    if (!a)
        throw std::out_of_range(format("zeros for %llu bytes at 0x%llx: %s", (unsigned long long)size,
                                       (unsigned long long)address, m.global.describe(address).c_str()));
    std::memset(a->data.get() + (address - a->base), 0, size);
    a->written.add(address - a->base, address - a->base + size);
}

nb::bytes read_memory(Machine& m, u64 address, u64 size) {
    Allocation* a = m.global.find_for_host(address, size);
    if (!a)
        throw std::out_of_range(format("read of %llu bytes at 0x%llx: %s", (unsigned long long)size,
                                       (unsigned long long)address, m.global.describe(address).c_str()));
    return nb::bytes(reinterpret_cast<const char*>(a->data.get() + (address - a->base)), size);
}

u64 add_image(Machine& m, const nb::bytes& image) { return m.global.images().add(records<Image>(image).at(0)); }

// Copies: the machine's own are gone at its next launch.
std::vector<Finding> findings_of(const Machine& m) { return m.launch_findings.list(); }

std::vector<Finding> run(Machine& m, const Program& program, std::array<u32, 3> grid, std::array<u32, 3> block,
                         std::array<u32, 3> cluster, u32 dynamic_shared, const nb::bytes& params, u64 workspace,
                         bool programmatic, u32 first_plane, u32 number, std::vector<u32> beside, bool overlaps,
                         u32 after, std::string name, std::string stream) {
    std::ranges::sort(beside);
    Launch launch{grid,
                  block,
                  cluster,
                  dynamic_shared,
                  records<u8>(params),
                  workspace,
                  programmatic,
                  first_plane,
                  overlaps,
                  number,
                  std::move(beside),
                  after,
                  std::move(name),
                  std::move(stream)};
    {
        nb::gil_scoped_release release;
        m.run(program, launch);
    }
    return findings_of(m);
}

// What a host's work accesses: addresses, sizes, whether it writes, and the verb of it.
std::vector<Finding> work_for_host(Machine& m, u32 number, std::vector<u32> beside, std::string name,
                                   std::string stream,
                                   const std::vector<std::tuple<u64, u64, bool, std::string>>& accesses) {
    Launch work;
    work.overlaps = true;
    work.number = number;
    std::ranges::sort(beside);
    work.beside = std::move(beside);
    work.name = std::move(name);
    work.stream = std::move(stream);
    std::vector<HostAccess> all;
    for (const auto& [address, size, write, verb] : accesses) all.push_back({address, size, write, verb.c_str()});
    m.work_for_host(work, all);
    return findings_of(m);
}

// The grid that `next_grid` has told.
std::vector<Finding> run_next(Machine& m, const Program& program) {
    {
        nb::gil_scoped_release release;
        m.run_next(program);
    }
    return findings_of(m);
}

// As CUDA C++ has it, of a name that its compiler has made.
std::string readable(const std::string& name) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> made(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status),
                                                           std::free);
    return made ? made.get() : name;
}

// Forgets the kernels that an earlier launch might launch.
void begin_kernels(Machine& m, const std::string& host) {
    m.tree->kernels.clear();
    m.tree->host = readable(host);
}

void add_kernel(Machine& m, u64 address, const std::string& name, u32 param_bytes, u32 max_threads,
                std::array<u32, 3> required_block, std::array<u32, 3> cluster, u32 shared_static, u32 most_shared,
                std::string refused) {
    m.tree->kernels[address] = {readable(name), param_bytes,   max_threads, required_block,
                                cluster,        shared_static, most_shared, std::move(refused)};
}

nb::tuple running_grid(const Machine& m) {
    const DeviceGrid& grid = m.tree->at(m.tree->running());
    return nb::make_tuple(m.tree->name_of(grid), m.tree->name_of(m.tree->at(grid.parent)), grid.launch.grid,
                          grid.launch.block);
}

u32 resident_clusters(const Machine& m, const Program& program, std::array<u32, 3> block, std::array<u32, 3> cluster,
                      u32 dynamic_shared) {
    return resident_limit(m.multiprocessors, program, Launch{{1, 1, 1}, block, cluster, dynamic_shared, {}, 0, false});
}

nb::list printed_by(const Machine& m) {
    nb::list out;
    for (const Printed& p : m.launch_findings.printed())
        out.append(nb::make_tuple(p.error, nb::bytes(p.text.data(), p.text.size())));
    return out;
}

// Bytes that nobody has written stay so where they are copied to.
void copy_memory(Machine& m, u64 to, u64 from, u64 size) {
    Allocation *source = m.global.find_for_host(from, size), *target = m.global.find_for_host(to, size);
    if (!source || !target) {
        const u64 address = source ? to : from;
        throw std::out_of_range(format("copy of %llu bytes at 0x%llx: %s", (unsigned long long)size,
                                       (unsigned long long)address, m.global.describe(address).c_str()));
    }
    const u64 begin = from - source->base, at = to - target->base;
    std::vector<std::pair<u64, u64>> gaps;
    source->written.each_gap(begin, begin + size, [&](u64 a, u64 b) { gaps.emplace_back(a - begin, b - begin); });
    std::memmove(target->data.get() + at, source->data.get() + begin, size);
    u64 done = 0;
    for (const auto& [a, b] : gaps) {
        if (a > done) target->written.add(at + done, at + a);
        done = b;
    }
    if (size > done) target->written.add(at + done, at + size);
}

nb::dict stats_of(const Machine& m) {
    nb::dict d;
    d["warp_instructions"] = m.stats.warp_instructions;
    d["mma"] = m.stats.mma;
    d["bulk_loads"] = m.stats.bulk_loads;
    d["bulk_load_bytes"] = m.stats.bulk_load_bytes;
    d["bulk_stores"] = m.stats.bulk_stores;
    d["bulk_store_bytes"] = m.stats.bulk_store_bytes;
    d["async_operations"] = m.stats.async_ops;
    d["barrier_waits"] = m.stats.barrier_waits;
    d["bank_conflicts"] = m.stats.bank_conflicts;
#define PTXM_COUNT(name) d[#name "_instructions"] = m.stats.executed[static_cast<u32>(InstructionClass::name)];
    PTXM_CLASSES(PTXM_COUNT)
#undef PTXM_COUNT
    d["threads"] = m.stats.threads;
    d["grids"] = m.tree->size();
    d["seconds"] = m.stats.seconds;
    d["product_seconds"] = m.stats.product_seconds;
    if (m.interleaving) {
        d["steps"] = m.search.taken;
        d["interleaving"] = m.interleaving->digest();
    }
    return d;
}

timing::Times times_of(const nb::dict& given) {
    timing::Times t;
    std::size_t known = 0;
#define PTXM_TIME(name)                                                                          \
    if (!given.contains(#name)) throw std::invalid_argument("no value for the constant " #name); \
    t.name = nb::cast<double>(given[#name]);                                                     \
    known += 1;
    PTXM_TIMES(PTXM_TIME)
#undef PTXM_TIME
    if (known != given.size()) throw std::invalid_argument("constants that the timing model does not have");
    return t;
}

constexpr const char* kCauseNames[] = {
#define PTXM_CAUSE(name) #name,
    PTXM_CAUSES(PTXM_CAUSE)
#undef PTXM_CAUSE
};

nb::dict by_cause(const std::array<double, timing::kCauses>& values) {
    nb::dict d;
    for (u32 k = 0; k < timing::kCauses; ++k) d[kCauseNames[k]] = values[k];
    return d;
}

nb::list spans(const std::vector<timing::Wait>& all) {
    nb::list out;
    for (const timing::Wait& s : all)
        out.append(nb::make_tuple(s.cta, s.warp, s.pc, s.from, s.to, kCauseNames[static_cast<u32>(s.cause)],
                                  s.by == timing::kNobody ? nb::object(nb::none()) : nb::object(nb::int_(s.by)),
                                  s.place));
    return out;
}

const timing::ClusterRecording* recorded(const Recorder& recorder, u64 ordinal) {
    const auto& all = recorder.clusters();
    const auto it = std::ranges::find_if(all, [&](const auto& c) { return c->ordinal == ordinal; });
    if (it == all.end())
        throw std::invalid_argument(format("cluster %llu was not recorded", (unsigned long long)ordinal));
    return it->get();
}

nb::dict replay(const Recorder& recorder, const Program& program, const std::vector<u64>& ordinals,
                const nb::dict& constants, double sms, double from_l2, double from_hbm, double waits, double to_hbm,
                bool traced, const std::vector<i64>& ranks) {
    std::vector<const timing::ClusterRecording*> clusters;
    for (u64 ordinal : ordinals) clusters.push_back(recorded(recorder, ordinal));
    timing::Result r;
    const timing::Times times = times_of(constants);
    if (!ranks.empty() && ranks.size() != program.insts.size())
        throw std::invalid_argument("a rank for each instruction is wanted, or none");
    {
        nb::gil_scoped_release release;
        r = timing::replay(program, clusters, times, {sms, from_l2, from_hbm, waits, to_hbm}, traced, ranks);
    }
    nb::dict d;
    d["cycles"] = r.cycles;
    d["forced"] = r.forced;
    d["before"] = r.before;
    d["sms"] = r.sms;
    d["cta_ends"] = r.cta_ends;
    d["busy"] = by_cause(r.busy);
    nb::list warps;
    for (const timing::WarpTime& w : r.warps)
        warps.append(nb::make_tuple(w.cta, w.warp, w.start, w.end, w.instructions, by_cause(w.waited)));
    d["warps"] = warps;
    d["waits"] = spans(r.waits);
    d["operations"] = spans(r.operations);
    d["issuers"] = r.issuers;
    return d;
}

// Of what the cluster `one` read, by allocation, the part that `other` read as well.
nb::dict shared_reads(const Recorder& recorder, u64 one, u64 other) {
    const auto of = [&](u64 ordinal) -> const timing::ClusterRecording& { return *recorded(recorder, ordinal); };
    std::unordered_map<u64, std::pair<double, double>> found;  // bytes, and those of them that both read
    for (const auto& [place, piece] : of(one).pieces) {
        auto& [all, both] = found[piece.base];
        all += static_cast<double>(piece.bytes);
        if (of(other).pieces.contains(place)) both += static_cast<double>(piece.bytes);
    }
    nb::dict out;
    for (const auto& [base, bytes] : found) out[nb::int_(base)] = bytes.second / bytes.first;
    return out;
}

// Of each cluster of which that is known, by its ordinal: the first piece that it reads of each allocation.
nb::dict first_reads(const Recorder& recorder) {
    nb::dict out;
    for (const auto& [ordinal, glimpse] : recorder.glimpsed()) {
        nb::dict first;
        for (const auto& [base, piece] : glimpse.first) first[nb::int_(base)] = piece.second;
        out[nb::int_(ordinal)] = first;
    }
    return out;
}

nb::list recorded_clusters(const Recorder& recorder) {
    nb::list out;
    for (const auto& c : recorder.clusters()) {
        nb::dict d, read, written;
        for (const auto& [base, bytes] : c->read) read[nb::int_(base)] = bytes;
        for (const auto& [base, bytes] : c->written) written[nb::int_(base)] = bytes;
        // The first that did the same, which takes as long.
        d["like"] =
            (*std::ranges::find_if(recorder.clusters(), [&](const auto& o) { return o->ctas == c->ctas; }))->ordinal;
        d["ordinal"] = c->ordinal;
        d["read"] = read;
        d["written"] = written;
        nb::list warps;
        u64 steps = 0;
        for (const auto& cta : c->ctas)
            for (const auto& w : cta) steps += w.steps.size();
        d["instructions"] = steps;
        d["tensor_columns"] = c->tensor_columns;
        d["claims"] = c->claims;
        out.append(d);
    }
    return out;
}

// Names that C++ keeps for itself have an underscore behind them.
std::string python_name(std::string_view name) {
    return std::string(name.substr(0, name.size() - name.ends_with('_')));
}

template <class E>
void add_name(nb::dict& d, const char* name, E value) {
    d[python_name(name).c_str()] = static_cast<u32>(value);
}

// How Python packs a record: a field's place, and its type as the struct module writes it.
template <class T>
constexpr const char* kFormat = std::is_signed_v<T> ? (sizeof(T) == 4 ? "i" : "q")
                                : sizeof(T) == 1    ? "B"
                                : sizeof(T) == 2    ? "H"
                                : sizeof(T) == 4    ? "I"
                                                    : "Q";
#define PTXM_FIELD(record, field) \
    fields.append(nb::make_tuple(#field, offsetof(record, field), kFormat<decltype(record::field)>))

nb::list inst_fields() {
    nb::list fields;
    PTXM_FIELD(InstRecord, op);
    PTXM_FIELD(InstRecord, type);
    PTXM_FIELD(InstRecord, type2);
    PTXM_FIELD(InstRecord, width_dst);
    PTXM_FIELD(InstRecord, width_src);
    PTXM_FIELD(InstRecord, n_dst);
    PTXM_FIELD(InstRecord, aligned);
    PTXM_FIELD(InstRecord, guard);
    PTXM_FIELD(InstRecord, guard_negated);
    PTXM_FIELD(InstRecord, arrays);
    PTXM_FIELD(InstRecord, n_src);
    PTXM_FIELD(InstRecord, mods);
    PTXM_FIELD(InstRecord, operands);
    PTXM_FIELD(InstRecord, target);
    PTXM_FIELD(InstRecord, reconverge);
    PTXM_FIELD(InstRecord, line);
    PTXM_FIELD(InstRecord, immediate);
    return fields;
}

nb::list const_fields() {
    nb::list fields;
    PTXM_FIELD(ConstRecord, unit);
    PTXM_FIELD(ConstRecord, kind);
    PTXM_FIELD(ConstRecord, special);
    PTXM_FIELD(ConstRecord, bits);
    return fields;
}
#undef PTXM_FIELD

}  // namespace

NB_MODULE(_core, module) {
    module.attr("SOURCES") = nb::str(kCoreSources);
    nb::dict ops, syntax, specials, types, widths;
#define PTXM_NAME(name, kind, binder, ...) \
    add_name(ops, #name, Op::name);        \
    if (const char* text = "" __VA_ARGS__; *text) syntax[python_name(#name).c_str()] = text;
    PTXM_OPS(PTXM_NAME)
#undef PTXM_NAME
#define PTXM_NAME(name) add_name(specials, #name, Special::name);
    PTXM_SPECIALS(PTXM_NAME)
    PTXM_MORE_SPECIALS(PTXM_NAME)
#undef PTXM_NAME
#define PTXM_NAME(name, bits)         \
    add_name(types, #name, Ty::name); \
    add_name(widths, #name, bits);
    PTXM_TYPES(PTXM_NAME)
#undef PTXM_NAME
    nb::dict mods;
    const std::pair<const char*, u32> mod_names[] = {{"rn", kRn},
                                                     {"rz", kRz},
                                                     {"rm", kRm},
                                                     {"rp", kRp},
                                                     {"round_int", kRoundInt},
                                                     {"ftz", kFtz},
                                                     {"sat", kSat},
                                                     {"relu", kRelu},
                                                     {"nan", kNan},
                                                     {"cmp_shift", kCmpShift},
                                                     {"bool_shift", kBoolShift},
                                                     {"bool_negated", kBoolNegated},
                                                     {"space_shift", kSpaceShift},
                                                     {"bar_arrive_only", kBarArriveOnly},
                                                     {"bar_has_count", kBarHasCount},
                                                     {"mbar_blocking", kMbarBlocking},
                                                     {"mbar_parity", kMbarParity},
                                                     {"mbar_relaxed", kMbarRelaxed},
                                                     {"mbar_expect_tx", kMbarExpectTx},
                                                     {"fence_shared", kFenceShared},
                                                     {"fence_global", kFenceGlobal},
                                                     {"shfl_shift", kShflShift},
                                                     {"vote_shift", kVoteShift},
                                                     {"tma_dim_shift", kTmaDimShift},
                                                     {"tc_a_tmem", kTcATmem},
                                                     {"tc_shape_shift", kTcShapeShift},
                                                     {"rna", kRna},
                                                     {"satfinite", kSatfinite},
                                                     {"scaled", kScaled},
                                                     {"approx", kApprox},
                                                     {"full", kFull},
                                                     {"oob", kOob},
                                                     {"xorsign_abs", kXorsignAbs},
                                                     {"abs", kAbs},
                                                     {"carry_in", kCarryIn},
                                                     {"carry_out", kCarryOut},
                                                     {"acquire", kAcquire},
                                                     {"validated", kValidated},
                                                     {"unread", kUnread},
                                                     {"non_coherent", kNonCoherent},
                                                     {"sequential", kSequential},
                                                     {"release", kRelease},
                                                     {"cta_scope", kCtaScope},
                                                     {"atom_shift", kAtomShift},
                                                     {"tc_pair", kTcPair},
                                                     {"tc_kind_shift", kTcKindShift},
                                                     {"tc_ws", kTcWs},
                                                     {"tc_a_shift", kTcAShift},
                                                     {"tc_disable", kTcDisable},
                                                     {"tc_zero_mask", kTcZeroMask},
                                                     {"tc_sparse", kTcSparse},
                                                     {"tc_scales_shift", kTcScalesShift},
                                                     {"tc_input_scale_shift", kTcInputScaleShift},
                                                     {"tc_pack", kTcPack},
                                                     {"tc_reduce_shift", kTcReduceShift},
                                                     {"tc_reduce_abs", kTcReduceAbs},
                                                     {"tc_reduce_nan", kTcReduceNan},
                                                     {"tc_unpack_shift", kTcUnpackShift},
                                                     {"tc_multicast", kTcMulticast},
                                                     {"image_dim_shift", kImageDimShift},
                                                     {"image_layered", kImageLayered},
                                                     {"image_surface", kImageSurface},
                                                     {"tex_float", kTexFloat},
                                                     {"tex_gather", kTexGather},
                                                     {"tex_component_shift", kTexComponentShift},
                                                     {"surface_shift", kSurfaceShift}};
    for (const auto& [name, value] : mod_names) mods[name] = value;
    const std::pair<const char*, u32> cluster_mods[] = {{"tma_gather4", kTmaGather4},
                                                        {"tma_pair", kTmaPair},
                                                        {"tma_im2col", kTmaIm2col},
                                                        {"bulk_multicast", kBulkMulticast},
                                                        {"bulk_read", kBulkRead},
                                                        {"reduce_shift", kReduceShift},
                                                        {"bar_lanes", kBarLanes},
                                                        {"bar_negated", kBarNegated},
                                                        {"mbar_no_complete", kMbarNoComplete},
                                                        {"mbar_drop", kMbarDrop},
                                                        {"cluster_relaxed", kClusterRelaxed},
                                                        {"setmaxnreg_dec", kSetmaxnregDec}};
    for (const auto& [name, value] : cluster_mods) mods[name] = value;
    for (const auto& [name, value] : kMatrixModNames) mods[name] = value;
    nb::dict element_types;
#define PTXM_NAME(name, format, bits) add_name(element_types, #name, ElementType::name);
    PTXM_ELEMENT_TYPES(PTXM_NAME)
#undef PTXM_NAME
    nb::dict spaces, const_kinds;
    const std::pair<const char*, Space> space_names[] = {{"generic", Space::generic},
                                                         {"global", Space::global},
                                                         {"shared", Space::shared},
                                                         {"shared::cta", Space::shared},
                                                         {"shared::cluster", Space::shared_cluster},
                                                         {"local", Space::local},
                                                         {"param", Space::param},
                                                         {"const", Space::constant}};
    for (const auto& [name, space] : space_names) spaces[name] = static_cast<u32>(space);
    add_name(const_kinds, "bits32", ConstKind::bits32);
    add_name(const_kinds, "bits64", ConstKind::bits64);
    add_name(const_kinds, "shared32", ConstKind::shared32);
    add_name(const_kinds, "shared64", ConstKind::shared64);
    add_name(const_kinds, "special", ConstKind::special);
    add_name(const_kinds, "pred", ConstKind::pred);
    module.attr("CONST_FIELDS") = const_fields();
    module.attr("CONST_KINDS") = const_kinds;
    module.attr("CONST_RECORD_BYTES") = sizeof(ConstRecord);
    module.attr("INST_FIELDS") = inst_fields();
    module.attr("INST_RECORD_BYTES") = sizeof(InstRecord);
    module.attr("SPACES") = spaces;
    module.attr("ELEMENT_TYPES") = element_types;
    module.attr("MODS") = mods;
    module.attr("OPS") = ops;
    module.attr("SPECIALS") = specials;
    module.attr("SYNTAX") = syntax;
    module.attr("TYPES") = types;
    module.attr("WIDTHS") = widths;
    nb::dict device_calls;
#define PTXM_NAME(name) add_name(device_calls, #name, DeviceCall::name);
    PTXM_DEVICE_CALLS(PTXM_NAME)
#undef PTXM_NAME
    module.attr("DEVICE_CALLS") = device_calls;
    module.attr("PARAM_WINDOW") = kParamWindow;
    module.attr("SHARED_START") = kSharedStart;
    module.attr("CALL_PARAMS") = kCallParams;

    module.def("readable", &readable);
    module.def("host_has_tiles", &host_has_tiles);
    module.def("allow_host_tiles", &allow_host_tiles);

    nb::class_<Program>(module, "Program")
        .def(nb::new_(&make_program), nb::arg("insts"), nb::arg("operands"), nb::arg("consts"), nb::arg("units"),
             nb::arg("shared_static"), nb::arg("local_bytes"), nb::arg("param_bytes"), nb::arg("arrays"));
    // Every field of the struct, as it is named there: tests/emulator/test_reports.py compares.
    nb::class_<Finding>(module, "Finding")
        .def_ro("rule", &Finding::rule)
        .def_prop_ro("severity", [](const Finding& f) { return f.severity == Severity::error ? "error" : "warning"; })
        .def_ro("message", &Finding::message)
        .def_ro("pc", &Finding::pc)
        .def_ro("other_pc", &Finding::other_pc)
        .def_ro("other_launch", &Finding::other_launch)
        .def_ro("cta", &Finding::cta)
        .def_ro("warp", &Finding::warp)
        .def_ro("count", &Finding::count)
        .def_ro("details", &Finding::details);
    nb::class_<Recorder>(module, "Recorder")
        .def_prop_ro("clusters", &recorded_clusters)
        .def_prop_ro("first_reads", &first_reads)
        .def("shared_reads", &shared_reads, nb::arg("one"), nb::arg("other"))
        .def("replay", &replay, nb::arg("program"), nb::arg("ordinals"), nb::arg("constants"), nb::arg("sms"),
             nb::arg("from_l2"), nb::arg("from_hbm"), nb::arg("waits"), nb::arg("to_hbm"), nb::arg("traced"),
             nb::arg("ranks") = std::vector<i64>{});
    nb::class_<Machine>(module, "Machine")
        .def(nb::init<>())
        .def_rw("recorded", &Machine::recorded)
        .def_rw("glimpsed", &Machine::glimpsed)
        .def_rw("only_recorded", &Machine::only_recorded)
        .def_rw("counter", &Machine::counter)
        .def_ro("recorder", &Machine::recorder)
        .def_rw("seed", &Machine::seed)
        .def_prop_rw(
            "depth", [](const Machine& m) { return m.search.depth; },
            [](Machine& m, u32 depth) { m.search.depth = depth; })
        .def_prop_rw(
            "steps", [](const Machine& m) { return m.search.steps; },
            [](Machine& m, u64 steps) { m.search.steps = steps; })
        .def_rw("checks", &Machine::checks)
        .def_rw("watched", &Machine::watched)
        .def_prop_ro("executed", [](const Machine& m) { return nb::bytes(m.executed.data(), m.executed.size()); })
        .def_rw("threads", &Machine::threads)
        .def_rw("max_instructions", &Machine::max_instructions)
        .def_prop_rw(
            "heap_limit", [](Machine& m) { return m.global.heap().limit; },
            [](Machine& m, u64 bytes) { m.global.heap().limit = bytes; })
        .def_rw("multiprocessors", &Machine::multiprocessors)
        .def_prop_rw(
            "schedule", [](const Machine& m) { return static_cast<u32>(m.schedule); },
            [](Machine& m, u32 s) { m.schedule = static_cast<Schedule>(s); })
        .def_prop_rw(
            "profile", [](const Machine& m) { return static_cast<u32>(m.profile); },
            [](Machine& m, u32 p) { m.profile = static_cast<Profile>(p); })
        .def_prop_rw(
            "mma_sums", [](const Machine& m) { return static_cast<u32>(m.mma_sums); },
            [](Machine& m, u32 s) { m.mma_sums = static_cast<MmaSums>(s); })
        .def("allocate",
             [](Machine& m, u64 size, std::string name) { return m.global.allocate(size, std::move(name)); })
        .def("reserve", [](Machine& m, u64 size) { return m.global.reserve(size); })
        .def("back",
             [](Machine& m, u64 address, u64 size, std::string name) { m.global.back(address, size, std::move(name)); })
        .def("release", [](Machine& m, u64 address) { m.global.release(address); })
        .def("add_image", &add_image)
        .def("drop_image", [](Machine& m, u64 handle) { return m.global.images().drop(handle); })
        .def("write", &write_memory)
        .def("zero", &zero_memory)
        .def("read", &read_memory)
        .def("copy", &copy_memory)
        .def_prop_ro("printed", &printed_by)
        .def("run", &run, nb::arg("program"), nb::arg("grid"), nb::arg("block"), nb::arg("cluster"),
             nb::arg("dynamic_shared"), nb::arg("params"), nb::arg("workspace"), nb::arg("programmatic"),
             nb::arg("first_plane"), nb::arg("number"), nb::arg("beside"), nb::arg("overlaps"), nb::arg("after"),
             nb::arg("name"), nb::arg("stream"))
        .def("work_for_host", &work_for_host, nb::arg("number"), nb::arg("beside"), nb::arg("name"), nb::arg("stream"),
             nb::arg("accesses"))
        .def("next_grid", &Machine::next_grid)
        .def("run_next", &run_next, nb::arg("program"))
        .def_prop_ro("running_grid", &running_grid)
        .def("begin_kernels", &begin_kernels, nb::arg("host"))
        .def("add_kernel", &add_kernel, nb::arg("address"), nb::arg("name"), nb::arg("param_bytes"),
             nb::arg("max_threads"), nb::arg("required_block"), nb::arg("cluster"), nb::arg("shared_static"),
             nb::arg("most_shared"), nb::arg("refused"))
        .def("set_attribute", [](Machine& m, u32 attribute, u32 value) { m.tree->attributes[attribute] = value; })
        .def_prop_rw(
            "pending_limit", [](const Machine& m) { return m.tree->pending_limit; },
            [](Machine& m, u32 launches) { m.tree->pending_limit = launches; })
        .def("resident_clusters", &resident_clusters, nb::arg("program"), nb::arg("block"), nb::arg("cluster"),
             nb::arg("dynamic_shared"))
        .def_prop_ro("stats", &stats_of);
    bind_observer(module);
    tc::bind_descriptors(module);
}
