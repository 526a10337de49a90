#include <iterator>

#include "findings/finding.hpp"
#include "isa/handlers.hpp"

namespace ptxm {
namespace {

using Kind = InstructionClass;

struct Family {
    Handler (*bind)(const InstRecord&);
    Kind kind;
};

// Who is asked, in this order, of an operation that types and rounding share out.
constexpr Family kArithmetic[] = {
    {bind_approximate, Kind::transcendental},
    {bind_directed, Kind::floating},
    {bind_float, Kind::floating},
    {bind_half, Kind::floating},
    {bind_extra_integer, Kind::integer},
    {bind_bits, Kind::integer},
    {bind_integer, Kind::integer},
};

const Family* arithmetic(const InstRecord& r) {
    for (const Family& family : kArithmetic)
        if (family.bind(r)) return &family;
    return nullptr;
}

}  // namespace

// Operations of which several files have handlers: by the type, an integer file or a floating one.
// clang-format off
#define PTXM_OPS_arithmetic(X)                                                                                     \
    X(add, by_binder, arithmetic)                                                                                  \
    X(sub, by_binder, arithmetic)                                                                                  \
    X(min, by_binder, arithmetic)                                                                                  \
    X(max, by_binder, arithmetic)                                                                                  \
    X(abs, by_binder, arithmetic, "abs{.s16|.s32|.s64|.f64} d, a; abs[.ftz]{.f32|.f16|.bf16|.f16x2|.bf16x2} d, a") \
    X(neg, by_binder, arithmetic, "neg{.s16|.s32|.s64|.f64} d, a; neg[.ftz]{.f32|.f16|.bf16|.f16x2|.bf16x2} d, a") \
    X(setp, by_binder, arithmetic)                                                                                 \
    X(fma, floating, arithmetic)                                                                                   \
    X(mul, floating, arithmetic)                                                                                   \
    X(rcp, by_binder, arithmetic)                                                                                  \
    X(rsqrt, by_binder, arithmetic)                                                                                \
    X(sqrt, by_binder, arithmetic)                                                                                 \
    X(div_f, by_binder, arithmetic)                                                                                \
    X(set, floating, arithmetic)
// clang-format on

Handler bind_arithmetic(const InstRecord& r) {
    const Family* family = arithmetic(r);
    return family ? family->bind(r) : nullptr;
}

namespace {

Kind memory_class(const InstRecord& r) {
    switch (static_cast<Space>(r.mods >> kSpaceShift & 7)) {
        case Space::shared:
        case Space::shared_cluster: return Kind::shared_memory;
        case Space::global:
        case Space::constant: return Kind::global_memory;
        default: return Kind::other_memory;
    }
}

// What a row of PTXM_OPS has for a class.
enum class RowKind : u8 {
#define PTXM_ENUM(name) name,
    PTXM_CLASSES(PTXM_ENUM)
#undef PTXM_ENUM
        by_space,
    by_binder
};

struct Row {
    Handler (*bind)(const InstRecord&);
    RowKind kind;
};

constexpr Row kRows[] = {
#define PTXM_ROW(name, kind, binder, ...) {bind_##binder, RowKind::kind},
    PTXM_OPS(PTXM_ROW)
#undef PTXM_ROW
};

Kind class_of(const InstRecord& r, RowKind kind) {
    switch (kind) {
        case RowKind::by_space: return memory_class(r);
        case RowKind::by_binder: return arithmetic(r)->kind;
        default: return static_cast<Kind>(kind);
    }
}

}  // namespace

void bind(Inst& i) {
    const Row* row = i.op < std::size(kRows) ? &kRows[i.op] : nullptr;
    const Handler handler = row ? row->bind(i) : nullptr;
    if (!handler)
        throw std::invalid_argument(format("line %u: no handler for operation %u, types %u and %u, widths %u and %u",
                                           i.line, i.op, i.type, i.type2, i.width_dst, i.width_src));
    i.handler = handler;
    i.kind = static_cast<u8>(class_of(i, row->kind));
}

}  // namespace ptxm
