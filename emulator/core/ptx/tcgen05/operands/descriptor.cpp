// Descriptors of the tcgen05 family (PTX ISA 9.7.16.4) and the rules on them, each rule in one table row.
#include "ptx/tcgen05/tcgen05.hpp"

namespace ptxm::tc {
namespace {

constexpr u32 bit(u32 n) { return 1u << n; }

// PTX ISA 9.7.16.4.2 (fields), 9.7.16.10.1 (transpose, negate), 9.7.16.2.1 (shapes).
struct KindRow {
    const char* name;
    u32 k;
    u32 types;         // codes of atype and btype
    u32 accumulators;  // codes of dtype
    bool negate, scaled;
};
constexpr KindRow kKinds[] = {
    {"f16", 16, bit(0) | bit(1), bit(0) | bit(1), true, false},
    {"tf32", 8, bit(2), bit(1), true, false},
    {"f8f6f4", 32, bit(0) | bit(1) | bit(3) | bit(4) | bit(5), bit(0) | bit(1), true, false},
    {"i8", 32, bit(0) | bit(1), bit(2), false, false},
    {"mxf8f6f4", 32, bit(0) | bit(1) | bit(3) | bit(4) | bit(5), 0, true, true},
    {"mxf4", 64, bit(1), 0, true, true},
    {"mxf4nvf4", 64, bit(1), 0, true, true},
};

const KindRow& row_of(Kind k) { return kKinds[static_cast<u32>(k)]; }

ElementType format_of(Kind kind, u32 code) {
    switch (kind) {
        case Kind::f16: return code ? ElementType::bf16 : ElementType::f16;
        case Kind::tf32: return ElementType::tf32;
        case Kind::i8: return code ? ElementType::s8 : ElementType::u8;
        case Kind::mxf4:
        case Kind::mxf4nvf4: return ElementType::e2m1x2;
        default: {
            constexpr ElementType formats[] = {ElementType::e4m3, ElementType::e5m2, ElementType::e4m3,
                                               ElementType::e2m3, ElementType::e3m2, ElementType::e2m1};
            return formats[code];
        }
    }
}

bool transposes(ElementType f) {
    switch (f) {
        case ElementType::e2m3:
        case ElementType::e3m2:
        case ElementType::e2m1:
        case ElementType::e2m1x2: return false;
        default: return true;
    }
}

[[noreturn]] void refuse(u32 bits, const std::string& why) {
    throw Fault("instruction-descriptor", format("0x%08x: %s", bits, why.c_str()));
}

u32 field(u32 bits, u32 low, u32 width) { return bits >> low & ((1u << width) - 1); }

void decode_plain(u32 bits, const Modifiers& mods, const KindRow& row, Instruction& i) {
    i.selector = field(bits, 0, 2);
    if (i.selector && !mods.sparse) refuse(bits, "a sparsity selector in a dense instruction");
    if (i.selector > (metadata_width(mods.kind) == 1 ? 1u : 0u))
        refuse(bits, format("sparsity selector %u; the metadata of kind::%s does not have it", i.selector, row.name));
    if (field(bits, 3, 1) && mods.kind != Kind::i8) refuse(bits, "saturation belongs to kind::i8");
    if (!(row.accumulators >> field(bits, 4, 2) & 1))
        refuse(bits, format("D type %u is not one of kind::%s", field(bits, 4, 2), row.name));
    if (field(bits, 6, 1) || field(bits, 23, 1)) refuse(bits, "reserved bits are set");
    i.k_bit = field(bits, 29, 1);
    i.d = static_cast<Accumulator>(field(bits, 4, 2));
    i.saturate = field(bits, 3, 1);
    i.m = field(bits, 24, 5) << 4;
    const u32 shift = field(bits, 30, 2);
    if (shift && !mods.ws) refuse(bits, "the maximum shift belongs to .ws");
    i.max_shift = shift ? 4u << shift : 0;
}

void decode_scaled(u32 bits, const Modifiers& mods, const KindRow& row, Instruction& i) {
    const bool narrow = mods.kind != Kind::mxf8f6f4;
    if (field(bits, 0, 2) || field(bits, 3, 1) || field(bits, 6, 1) || field(bits, 24, 3) ||
        (narrow ? field(bits, 12, 1) : field(bits, 31, 1)))
        refuse(bits, "reserved bits are set");
    if (narrow && field(bits, 31, 1)) refuse(bits, "K = 96 belongs to sm_103a");
    i.d = Accumulator::f32;
    i.m = field(bits, 27, 2) << 7;
    i.scales_e8m0 = field(bits, 23, 1);
    i.scale_b_id = field(bits, 4, 2);
    i.scale_a_id = field(bits, 29, 2);
    const bool may_be_e4m3 = mods.kind == Kind::mxf4nvf4 && mods.scales == 4;
    if (!i.scales_e8m0 && !may_be_e4m3)
        refuse(bits, format("kind::%s with %u scales a row has scales of type ue8m0 (bit 23)", row.name, mods.scales));
    for (u32 id : {i.scale_a_id, i.scale_b_id})
        if (id % mods.scales)
            refuse(bits, format("scale factor id %u; %u scales a row start at multiples of %u", id, mods.scales,
                                mods.scales));
}

// PTX ISA 9.7.16.2.1, table of shapes, and 9.7.16.10.1 for the transposed 8-bit B.
void check_shape(u32 bits, const Modifiers& mods, const Instruction& i) {
    const bool scaled = row_of(mods.kind).scaled;
    const auto one_of = [](u32 x, std::initializer_list<u32> set) {
        return std::find(set.begin(), set.end(), x) != set.end();
    };
    const bool m_ok = mods.ws     ? one_of(i.m, {32, 64, 128})
                      : mods.pair ? one_of(i.m, {128, 256})
                      : scaled    ? i.m == 128
                                  : one_of(i.m, {64, 128});
    if (!m_ok)
        refuse(bits, format("M = %u is no shape of kind::%s%s with cta_group::%u", i.m, row_of(mods.kind).name,
                            mods.ws ? " .ws" : "", mods.pair ? 2 : 1));
    u32 step = mods.pair ? 16 : 8;
    if (mods.kind == Kind::i8) step = mods.pair ? 32 : i.n > 32 ? 16 : 8;
    if (i.b_mn_major && container_bytes(i.b) == 1) step = mods.pair ? 32 : 16;
    const bool n_ok = mods.ws ? one_of(i.n, {64, 128, 256}) : i.n && i.n <= kMaxN && i.n % step == 0;
    if (!n_ok)
        refuse(bits, format("N = %u is no shape of kind::%s%s with M = %u%s", i.n, row_of(mods.kind).name,
                            mods.ws ? " .ws" : "", i.m, mods.ws ? "" : format(": steps of %u to 256", step).c_str()));
    if (scaled && mods.pair && i.m == 128)
        refuse(bits,
               "block scaling of M = 128 over a CTA pair is not modelled: the ISA does not say where its scales lie");
    if (mods.sparse && (mods.ws ? i.n == 256 : mods.pair ? i.m != 256 : i.m != 128))
        refuse(bits, mods.ws ? "N = 256 is no shape of a sparse .ws"
                             : format("sparse with M = %u is not modelled: where its metadata lies is not known", i.m));
    if (mods.a_shift && i.m != 128 && i.m != 256) refuse(bits, ".ashift needs M = 128 or 256");
}

}  // namespace

const char* kind_name(Kind k) { return row_of(k).name; }

Instruction decode_instruction(u32 bits, const Modifiers& mods) {
    const KindRow& row = row_of(mods.kind);
    Instruction i{};
    i.kind = mods.kind;
    i.k = row.k;
    if (field(bits, 2, 1) != mods.sparse)
        refuse(bits, mods.sparse ? "the sparsity bit is not set in a tcgen05.mma.sp"
                                 : "the sparsity bit is set in a dense tcgen05.mma");
    const u32 a = field(bits, 7, 3), b = field(bits, 10, row.k == 64 ? 2 : 3);
    if (!(row.types >> a & 1) || !(row.types >> b & 1))
        refuse(bits, format("A type %u, B type %u; kind::%s has no such type", a, b, row.name));
    i.a = format_of(mods.kind, a);
    i.b = format_of(mods.kind, b);
    i.negate_a = field(bits, 13, 1);
    i.negate_b = field(bits, 14, 1);
    if ((i.negate_a || i.negate_b) && !row.negate) refuse(bits, format("kind::%s does not negate", row.name));
    i.a_mn_major = field(bits, 15, 1);
    i.b_mn_major = field(bits, 16, 1);
    if ((i.a_mn_major && !transposes(i.a)) || (i.b_mn_major && !transposes(i.b)))
        refuse(bits, "4-bit and 6-bit types are K-major: their transpose bits must be 0");
    if (i.a_mn_major && mods.a_tmem) refuse(bits, "A from tensor memory is K-major: its transpose bit must be 0");
    i.n = field(bits, 17, 6) << 3;
    if (row.scaled)
        decode_scaled(bits, mods, row, i);
    else
        decode_plain(bits, mods, row, i);
    check_shape(bits, mods, i);
    return i;
}

MatrixDescriptor decode_matrix(u64 bits, const char* which) {
    const auto at = [&](u32 low, u32 width) { return static_cast<u32>(bits >> low & ((1ull << width) - 1)); };
    const auto refuse_matrix = [&](const std::string& why) {
        throw Fault("matrix-descriptor",
                    format("descriptor of %s (0x%016llx): %s", which, (unsigned long long)bits, why.c_str()));
    };
    if (at(46, 3) != 1)
        refuse_matrix(format("bits 46-48 are %u, sm_100 needs 1 in this field, which is constant", at(46, 3)));
    if (at(14, 2) || at(30, 2) || at(53, 8)) refuse_matrix("reserved bits are set");
    if (at(52, 1)) refuse_matrix("the absolute address mode of the leading dimension belongs to sm_103a");
    MatrixDescriptor d;
    d.start = at(0, 14) << 4;
    d.leading = at(16, 14) << 4;
    d.stride = at(32, 14) << 4;
    switch (at(61, 3)) {
        case 0: d.swizzle = Swizzle::none; break;
        case 1: d.swizzle = Swizzle::b128_atom32; break;
        case 2: d.swizzle = Swizzle::b128; break;
        case 4: d.swizzle = Swizzle::b64; break;
        case 6: d.swizzle = Swizzle::b32; break;
        default: refuse_matrix(format("swizzle code %u is invalid", at(61, 3)));
    }
    // Without a swizzle there is no pattern to start: the field is not valid then, and Triton sets it all the same.
    d.base = d.swizzle == Swizzle::none ? 0 : at(49, 3);
    return d;
}

namespace {}  // namespace

// PTX ISA 9.7.16.10.3: type size, major-ness and swizzle.
void check_layout(const MatrixDescriptor& d, ElementType f, Kind kind, bool mn_major, const char* which) {
    const bool atom32 = d.swizzle == Swizzle::b128_atom32;
    if (!mn_major && atom32)
        throw Fault("matrix-descriptor",
                    format("%s is K-major; a 128-byte swizzle of 32-byte atoms has no K-major atom "
                           "(PTX ISA 9.7.16.10.6)",
                           which));
    if (!mn_major) return;
    if (f == ElementType::tf32 && !atom32)
        throw Fault(
            "matrix-descriptor",
            format("%s is MN-major of 32-bit elements: only a 128-byte swizzle of 32-byte atoms allows it", which));
    if (f != ElementType::tf32 && atom32)
        throw Fault("matrix-descriptor",
                    format("%s is MN-major of kind::%s: a 128-byte swizzle of 32-byte atoms is for 32-bit elements",
                           which, kind_name(kind)));
}

// A 1 in the mask zeroes a column. The ISA's table of this descriptor swaps the texts of its two spans: its examples,
// and CuTe's MaskAndShiftB, agree that "skip" columns are zero and "use" columns are read.
ColumnMask decode_column_mask(u64 bits, const Instruction& i) {
    const auto at = [&](u32 low, u32 width) { return static_cast<u32>(bits >> low & ((1ull << width) - 1)); };
    if (at(36, 3) || at(62, 2))
        throw Fault("zero-column-mask", format("0x%016llx: reserved bits are set", (unsigned long long)bits));
    ColumnMask mask;
    mask.shift = at(56, 6);
    const u32 limit = i.m == 32 ? std::min(16u, i.max_shift) : i.max_shift;
    if (mask.shift > limit)
        throw Fault("zero-column-mask",
                    format("column shift %u; M = %u and the instruction descriptor's maximum shift allow %u",
                           mask.shift, i.m, limit));
    if (!at(39, 1)) return mask;
    const u32 skip = at(40, 8) + 1, use = at(48, 8) + 1, parts = 128 / i.m, columns = i.n / parts;
    for (u32 part = 0; part < parts; ++part) {
        bool zero = at(32 + part, 1);
        u32 left = zero ? skip : use;
        const u32 start = at(8 * part, 8);
        if (start >= left)
            throw Fault("zero-column-mask",
                        format("start count %u of sub-mask %u skips its first span of %u", start, part, left));
        left -= start;
        for (u32 c = 0; c < columns; ++c) {
            mask.zero[part * columns + c] = zero;
            if (--left == 0) {
                zero = !zero;
                left = zero ? skip : use;
            }
        }
    }
    return mask;
}

}  // namespace ptxm::tc
