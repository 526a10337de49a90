// The decoded program: what the Python front hands to the core.
//
// Registers live in 128-byte units, one 32-bit word a lane; a 64-bit register takes two adjacent units, a 128-bit one
// four, a predicate one (its first word is the 32-lane mask). Constants and special registers are units too, filled
// when a warp starts, so that every operand is a unit index.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "isa/operations.hpp"

namespace ptxm {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

constexpr u32 kLanes = 32;
constexpr u32 kFullMask = 0xFFFFFFFFu;
constexpr u32 kUnitBytes = 128;

// The types that instructions name, with the bits of a register that holds one: 8-bit values are in 16-bit registers.
// What an element of a matrix is, ElementType of numbers/formats.hpp says; why these are two tables stands there.
// clang-format off
#define PTXM_TYPES(X)                                                                                                \
    X(none, 0) X(b8, 16) X(u8_, 16) X(s8, 16) X(b16, 16) X(u16_, 16) X(s16, 16) X(f16, 16) X(bf16, 16)               \
    X(b32, 32) X(u32_, 32) X(s32, 32) X(f32, 32) X(b64, 64) X(u64_, 64) X(s64, 64) X(f64, 64) X(b128, 128)           \
    X(pred, 1) X(f16x2, 32) X(bf16x2, 32) X(f32x2, 64) X(tf32, 32) X(e4m3x2, 16) X(e5m2x2, 16) X(e2m1x2, 16)         \
    X(e2m3x2, 16) X(e3m2x2, 16) X(ue8m0x2, 16) X(s2f6x2, 16) X(u16x2, 32) X(s16x2, 32)
// clang-format on

enum class Ty : u8 {
#define PTXM_ENUM(name, bits) name,
    PTXM_TYPES(PTXM_ENUM)
#undef PTXM_ENUM
};

enum class Op : u16 {
#define PTXM_ENUM(name, ...) name,
    PTXM_OPS(PTXM_ENUM)
#undef PTXM_ENUM
};

// Modifier bits of Inst::mods. Fields overlap where the operations that use them differ.
enum Mods : u32 {
    kRn = 0,
    kRz = 1,
    kRm = 2,
    kRp = 3,
    kRoundInt = 0x4,
    kFtz = 1u << 3,
    kSat = 1u << 4,
    kRelu = 1u << 5,
    kNan = 1u << 6,
    kCmpShift = 8,
    kCmpMask = 0x1Fu << 8,
    kBoolShift = 13,
    kBoolMask = 0x3u << 13,
    kBoolNegated = 1u << 15,
    kSpaceShift = 8,
    kSpaceMask = 0x7u << 8,
    kBarArriveOnly = 1u << 8,
    kBarHasCount = 1u << 9,
    kMbarBlocking = 1u << 16,
    kMbarParity = 1u << 17,
    kMbarRelaxed = 1u << 18,
    kMbarExpectTx = 1u << 19,
    kFenceShared = 1u << 8,
    kFenceGlobal = 1u << 9,
    kShflShift = 8,
    kVoteShift = 8,
    kTmaDimShift = 8,
    kTmaGather4 = 1u << 11,  // tile::gather4 and tile::scatter4
    kTmaPair = 1u << 12,     // cta_group::2
    kTmaIm2col = 1u << 14,   // .im2col, .im2col_no_offs
    kBulkMulticast = 1u << 13,
    kBulkRead = 1u << 14,  // wait_group.read
    kReduceShift = 16,     // Reduction, of cp.reduce and bar.red
    kBarLanes = 1u << 10,  // without .aligned
    kBarNegated = 1u << 11,
    kMbarNoComplete = 1u << 20,
    kMbarDrop = 1u << 21,
    kClusterRelaxed = 1u << 8,
    kSetmaxnregDec = 1u << 8,
    kTcATmem = 1u << 9,
    kTcShapeShift = 16,
    kRna = 1u << 7,         // cvt: to nearest, ties away from zero
    kSatfinite = 1u << 8,   // cvt
    kScaled = 1u << 9,      // cvt: the last source has two exponents to multiply by
    kApprox = 1u << 8,      // div and the transcendental functions
    kFull = 1u << 9,        // div
    kXorsignAbs = 1u << 8,  // min, max
    kOob = 1u << 8,         // fma
    kAbs = 1u << 9,         // three-input min, max
    kCarryIn = 1u << 8,
    kCarryOut = 1u << 9,
    kAcquire = 1u << 11,  // ld, st, atom, above the state space
    kRelease = 1u << 12,
    kCtaScope = 1u << 13,
    kValidated = 1u << 14,    // ld: of what a compare-and-swap will compare
    kNonCoherent = 1u << 15,  // ld: .nc
    kSequential = 1u << 14,   // fence: .sc
    kUnread = 1u << 15,       // atom: no instruction of the kernel reads its result
    kAtomShift = 16,
    // Textures and surfaces; the component is tld4's
    kImageDimShift = 0,
    kImageLayered = 1u << 2,
    kImageSurface = 1u << 3,
    kTexFloat = 1u << 4,  // of coordinates
    kTexGather = 1u << 5,
    kTexComponentShift = 6,
    kSurfaceShift = 6,  // what an access outside does
    // tcgen05: any; mma; ld and st; cp; commit
    kTcPair = 1u << 10,
    kTcKindShift = 0,
    kTcWs = 1u << 3,
    kTcAShift = 1u << 4,
    kTcDisable = 1u << 5,
    kTcZeroMask = 1u << 6,
    kTcSparse = 1u << 7,
    kTcScalesShift = 12,
    kTcInputScaleShift = 20,
    kTcPack = 1u << 5,
    kTcReduceShift = 20,
    kTcReduceAbs = 1u << 22,
    kTcReduceNan = 1u << 23,
    kTcUnpackShift = 12,
    kTcMulticast = 1u << 5,
};

enum class Atom : u8 { add, and_, or_, xor_, min, max, inc, dec, exch, cas };

enum class Space : u8 { generic, global, shared, shared_cluster, local, param, constant };
enum class Reduction : u8 { none, add, min, max, inc, dec, and_, or_, xor_, popc };
enum class Cmp : u8 { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
enum class TmemShape : u8 { s32x32b, s16x64b, s16x128b, s16x256b, s16x32bx2 };
enum class CopyShape : u8 { s128x256b, s4x256b, s128x128b, s64x128b_02_13, s64x128b_01_23, s32x128b };

struct Warp;
struct Inst;
// next: on to the next instruction; jump: the handler has set the pc; stay: the fragment waits, is gone, or tries
// again.
enum class Flow : u8 { next, jump, stay };
using Handler = Flow (*)(Warp&, const Inst&, u32 mask);

// What an instruction keeps busy. Of memory: by its state space, `other` being generic, local, and parameters.
// clang-format off
#define PTXM_CLASSES(X)                                                                                          \
    X(integer) X(floating) X(transcendental) X(conversion) X(control) X(exchange) X(shared_memory) X(global_memory) \
        X(other_memory) X(barrier) X(copy) X(matrix) X(tensor_memory)
// clang-format on

enum class InstructionClass : u8 {
#define PTXM_ENUM(name) name,
    PTXM_CLASSES(PTXM_ENUM)
#undef PTXM_ENUM
};
#define PTXM_ONE(name) +1
constexpr u32 kClasses = 0 PTXM_CLASSES(PTXM_ONE);
#undef PTXM_ONE

// As the decoder lays them out, 48 bytes, then what the core adds.
struct InstRecord {
    u16 op;
    u8 type;
    u8 type2;
    u8 width_dst;  // bits of a destination register
    u8 width_src;  // bits of the first source register
    u8 n_dst;
    u8 aligned;  // the instruction needs every live lane of the warp
    i32 guard;   // unit of the guard predicate, -1 for none
    u8 guard_negated;
    u8 arrays;  // of a load or store: the number, from 1, of what its address was computed from in Program::arrays
    u16 n_src;
    u32 mods;
    u32 operands;  // first index into Program::operands: destinations, then sources
    i32 target;
    i32 reconverge;  // pc of the immediate post-dominator of a branch, -1 for none
    u32 line;        // in the PTX text
    u8 kind;         // the core's: InstructionClass
    i64 immediate;   // address offset and the like
};
static_assert(sizeof(InstRecord) == 48);

struct Inst : InstRecord {
    Handler handler = nullptr;
    const i32* first_operand = nullptr;  // in Program::operands
};

// What the device runtime does in one step; a record's immediate names it.
#define PTXM_DEVICE_CALLS(X) \
    X(parameters)            \
    X(launch) X(make_stream) X(make_event) X(drop) X(record) X(wait) X(last_error) X(fail) X(attribute) X(limit) X(text)
enum class DeviceCall : u8 {
#define PTXM_ENUM(name) name,
    PTXM_DEVICE_CALLS(PTXM_ENUM)
#undef PTXM_ENUM
};

enum class ConstKind : u8 { bits32, bits64, shared32, shared64, special, pred };

struct ConstRecord {
    u32 unit;
    u8 kind;
    u8 special;  // index into Special when kind is special
    u16 pad;
    u64 bits;
};
static_assert(sizeof(ConstRecord) == 16);

// clang-format off
#define PTXM_SPECIALS(X)                                                                                               \
    X(tid_x)                                                                                                           \
    X(tid_y)                                                                                                           \
    X(tid_z)                                                                                                           \
    X(ntid_x)                                                                                                          \
    X(ntid_y) X(ntid_z) X(ctaid_x) X(ctaid_y) X(ctaid_z) X(nctaid_x) X(nctaid_y) X(nctaid_z) X(laneid) X(warpid)       \
        X(nwarpid) X(lanemask_eq) X(lanemask_lt) X(lanemask_le) X(lanemask_gt) X(lanemask_ge) X(cluster_ctarank)       \
            X(cluster_nctarank) X(cluster_ctaid_x) X(cluster_ctaid_y) X(cluster_ctaid_z) X(cluster_nctaid_x)           \
                X(cluster_nctaid_y) X(cluster_nctaid_z) X(clusterid_x) X(clusterid_y) X(clusterid_z) X(nclusterid_x)   \
                    X(nclusterid_y) X(nclusterid_z) X(dynamic_smem_size) X(total_smem_size) X(smid) X(nsmid) X(gridid) \
                        X(warp_size)
// clang-format on

// is_explicit_cluster is a predicate: a value of all ones or zero in each lane is one.
// clang-format off
#define PTXM_MORE_SPECIALS(X)                                                                                   \
    X(aggr_smem_size)                                                                                           \
    X(is_explicit_cluster)                                                                                      \
    X(reserved_smem_offset_begin)                                                                               \
    X(reserved_smem_offset_end) X(reserved_smem_offset_cap) X(reserved_smem_offset_0) X(reserved_smem_offset_1) \
        X(envreg1) X(envreg2) X(zero)
// clang-format on

enum class Special : u8 {
#define PTXM_ENUM(name) name,
    PTXM_SPECIALS(PTXM_ENUM) PTXM_MORE_SPECIALS(PTXM_ENUM)
#undef PTXM_ENUM
};

// Arrays in shared memory that an address may have been computed from: offsets, in ascending order.
struct Arrays {
    struct Array {
        u32 begin, end;
    };
    std::vector<Array> list;
    std::string names;
    bool hold(u64 begin, u64 end) const {
        for (const Array& a : list)
            if (begin >= a.begin && end <= a.end) return true;
        return false;
    }
};

struct Program {
    std::vector<Inst> insts;
    std::vector<i32> operands;
    std::vector<ConstRecord> consts;
    std::vector<Arrays> arrays;
    u32 units = 0;          // registers and constants
    u32 shared_static = 0;  // bytes of .shared variables that are not dynamic
    u32 local_bytes = 0;    // a thread
    u32 param_bytes = 0;
    bool asks_for_reserved = false;  // reads a %reserved_smem_offset: it may use that memory
    // A launch has shown that its clusters touch what others write: their order matters.
    std::unique_ptr<std::atomic<bool>> communicates = std::make_unique<std::atomic<bool>>(false);
};

// Sets handler and class. Throws std::invalid_argument when the core has no handler: decoder and core disagree.
void bind(Inst& inst);

}  // namespace ptxm
