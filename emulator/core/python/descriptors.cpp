#include "python/descriptors.hpp"

#include "ptx/tcgen05/show.hpp"

namespace nb = nanobind;

namespace ptxm::tc {
namespace {

const char* swizzle_name(Swizzle s) {
    static constexpr const char* kNames[] = {"none", "32B", "64B", "128B", "128B of 32B atoms"};
    return kNames[static_cast<u32>(s)];
}

// Of what is refused: the reason, under "wrong".
template <class F>
nb::dict decoded(F decode) {
    nb::dict d;
    try {
        decode(d);
    } catch (const Fault& fault) {
        d["wrong"] = fault.what();
    }
    return d;
}

nb::dict matrix(u64 bits) {
    return decoded([&](nb::dict& d) {
        const MatrixDescriptor m = decode_matrix(bits, "the operand");
        d["start"] = m.start;
        d["leading"] = m.leading;
        d["stride"] = m.stride;
        d["base"] = m.base;
        d["swizzle"] = swizzle_name(m.swizzle);
    });
}

nb::dict instruction(u32 bits, u32 kind, bool ws, bool pair, bool a_tmem, bool sparse, u32 scales) {
    return decoded([&](nb::dict& d) {
        const Instruction i =
            decode_instruction(bits, {static_cast<Kind>(kind), ws, pair, false, a_tmem, sparse, scales});
        static constexpr const char* kAccumulators[] = {"f16", "f32", "s32"};
        d["m"] = i.m;
        d["n"] = i.n;
        d["k"] = i.k;
        d["a"] = type_name(i.a);
        d["b"] = type_name(i.b);
        d["d"] = kAccumulators[static_cast<u32>(i.d)];
        d["negate_a"] = i.negate_a;
        d["negate_b"] = i.negate_b;
        d["a_mn_major"] = i.a_mn_major;
        d["b_mn_major"] = i.b_mn_major;
        d["saturate"] = i.saturate;
    });
}

}  // namespace

void bind_descriptors(nb::module_& module) {
    module.def("decode_matrix", &matrix);
    module.def("decode_instruction", &instruction, nb::arg("bits"), nb::arg("kind"), nb::arg("ws"), nb::arg("pair"),
               nb::arg("a_tmem"), nb::arg("sparse"), nb::arg("scales"));
}

}  // namespace ptxm::tc
