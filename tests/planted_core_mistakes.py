"""The list of tests/planted_core.py: what one may get wrong in an instruction's numbers, in a barrier, in a rule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mistake:
    """`old`, which the file of emulator/core has once, becomes `new`; `tests` are what could notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


EMULATOR = "tests/emulator"
INTEGERS = (f"{EMULATOR}/scalar/test_scalar_integers.py",)
FLOATING = (f"{EMULATOR}/scalar/test_scalar_floating.py",)
CONVERSION = (f"{EMULATOR}/scalar/test_scalar_conversion.py",)
MUFU = (f"{EMULATOR}/scalar/test_mufu.py",)
WARPS = (f"{EMULATOR}/machine/test_member_masks.py", f"{EMULATOR}/machine/test_groups.py")
CLUSTERS = (f"{EMULATOR}/machine/test_clusters.py", f"{EMULATOR}/machine/test_released_clusters.py")
ATOMICS = (f"{EMULATOR}/memory/test_scalar_atomics.py",)
MATRICES = (f"{EMULATOR}/mma/test_matrix_move.py", f"{EMULATOR}/mma/test_warp_mma.py")
WGMMA = (f"{EMULATOR}/mma/test_wgmma.py",)
COPIES = (f"{EMULATOR}/copies",)
TENSOR = tuple(
    f"{EMULATOR}/tcgen05/test_tcgen05_{name}.py" for name in ("memory", "layouts", "sums", "silicon", "mma", "order")
)
ORDER = (f"{EMULATOR}/order", f"{EMULATOR}/test_hazards.py", f"{EMULATOR}/mma/test_matrix_kernels.py")
TEXTURES = (f"{EMULATOR}/textures",)

MISTAKES = (
    Mistake(
        "the upper half of a signed product as an unsigned one's in a chain of carries",
        "ptx/scalar/integer_extended.cpp",
        "                is_signed ? static_cast<Wide>(static_cast<__int128>(static_cast<S>(a[l])) *",
        "                false ? static_cast<Wide>(static_cast<__int128>(static_cast<S>(a[l])) *",
        INTEGERS,
    ),
    Mistake(
        "a borrow in place of the carry of a + ~b",
        "ptx/scalar/integer_extended.cpp",
        "carry_out |= static_cast<u32>(r >> (8 * sizeof(U)) & 1) << l;",
        "carry_out |= static_cast<u32>((r >> (8 * sizeof(U)) & 1) ^ subtracts) << l;",
        INTEGERS,
    ),
    Mistake(
        "lanes whose guard is false lose their carry",
        "ptx/scalar/integer_extended.cpp",
        "w.pred(o[1]) = (w.pred(o[1]) & ~m) | (carry_out & m);",
        "w.pred(o[1]) = carry_out;",
        INTEGERS,
    ),
    Mistake(
        "a product is flushed by its size after rounding",
        "ptx/scalar/floating_directed.cpp",
        "if (std::fabs(static_cast<double>(a) * static_cast<double>(b)) < 0x1p-126)",
        "if (std::fabs(result) < 0x1p-126f)",
        FLOATING,
    ),
    Mistake(
        "a power of two is rounded up to the next as ue8m0",
        "ptx/scalar/convert_narrow.cpp",
        "((mods & 3) == kRp && !power ? 1 : 0);",
        "((mods & 3) == kRp ? 1 : 0);",
        CONVERSION,
    ),
    Mistake(
        "a scale of 0xFF is a number",
        "ptx/scalar/convert_narrow.cpp",
        "    if (scale == 0xFF) n.nan = true;\n",
        "",
        CONVERSION,
    ),
    Mistake(
        "both elements of a pair have the first one's scale",
        "ptx/scalar/convert_narrow.cpp",
        "widen(s, source >> of & mask, scales >> 8, i.mods);",
        "widen(s, source >> of & mask, scales & 0xFF, i.mods);",
        CONVERSION,
    ),
    Mistake(
        "the fraction of s2f6 has seven bits",
        "ptx/scalar/convert_narrow.cpp",
        "    n.exponent = -6;\n",
        "    n.exponent = -7;\n",
        CONVERSION,
    ),
    Mistake(
        "lg2 negates a negative sum in place of complementing it",
        "numbers/mufu.cpp",
        "const i64 magnitude = sum < 0 ? -sum - 4 : sum;",
        "const i64 magnitude = sum < 0 ? -sum : sum;",
        MUFU,
    ),
    Mistake(
        "a mirrored quadrant of sin takes the negative of its place",
        "numbers/mufu.cpp",
        "quadrant & 1 ? ~place & kFraction : place & kFraction",
        "quadrant & 1 ? -place & kFraction : place & kFraction",
        MUFU,
    ),
    Mistake(
        "tanh is its argument for an octave more",
        "numbers/mufu.cpp",
        "if (exponent < kBias - 8) return x;",
        "if (exponent < kBias - 7) return x;",
        MUFU,
    ),
    Mistake(
        "atom.inc goes one further",
        "ptx/memory/atomics.cpp",
        "case Atom::inc: return a >= b ? T{0}",
        "case Atom::inc: return a > b ? T{0}",
        ATOMICS,
    ),
    Mistake(
        "members of a warp meet under any mask",
        "machine/warp/meeting.cpp",
        "same_instruction(inst_at(w, f.pc), i) && members_of(w, f) == members;",
        "same_instruction(inst_at(w, f.pc), i);",
        WARPS,
    ),
    Mistake(
        "a .sync waits for lanes that have exited",
        "machine/warp/meeting.cpp",
        "if (m.lanes != (members & w.live)) {",
        "if (m.lanes != members) {",
        WARPS,
    ),
    Mistake(
        "the last row of a transposed 16 x 16 matrix is another lane's",
        "ptx/mma/matrix_move.cpp",
        "return {lane % 4 * 4 + k, lane / 4 + 8 * r};",
        "return {lane % 4 * 4 + k, lane / 4 * 2 + r};",
        MATRICES,
    ),
    Mistake(
        "products of eight bits are summed at once",
        "ptx/mma/warp_mma.cpp",
        "if (container_bits(s.a) != 8) return add(s.stored(), a, k, s.c, d);",
        "if (container_bits(s.a) != 4) return add(s.stored(), a, k, s.c, d);",
        (*MATRICES, f"{EMULATOR}/mma/test_sparse_mma.py"),
    ),
    Mistake(
        "wgmma keeps one bit less where the sum fits 32 bits",
        "ptx/wgmma/sums.cpp",
        "static_cast<i32>(~0u << (24 - precision.kept))",
        "static_cast<i32>(~0u << (25 - precision.kept))",
        WGMMA,
    ),
    Mistake(
        "bits below an f16's sum are not sticky",
        "numbers/aligned_sum.cpp",
        "    if (kept != sum) bits |= 1;\n",
        "",
        (*MATRICES, *TENSOR),
    ),
    Mistake(
        "groups of four bits are truncated where D is as large as the largest product",
        "ptx/tcgen05/product/silicon/four_bits.cpp",
        "if (exponent >= largest) return sum_below(e, c, exponent);",
        "if (exponent > largest) return sum_below(e, c, exponent);",
        TENSOR,
    ),
    Mistake(
        "a group that lies below D has the others' window",
        "ptx/tcgen05/product/silicon/four_bits.cpp",
        "const int end = below ? std::max(unit, exponent - kWindow) : unit;",
        "const int end = unit;",
        TENSOR,
    ),
    Mistake(
        "D is aligned to products with their scales",
        "ptx/tcgen05/product/silicon/silicon.cpp",
        "if (!std::isnan(scale[j])) lower(c, j, std::ilogb(scale[j]));",
        "if (!std::isnan(scale[j])) c.value[j] /= scale[j];",
        TENSOR,
    ),
    Mistake(
        "the second half of 64 rows is copied to the first one's lanes",
        "ptx/tcgen05/tensor_copy.cpp",
        "return r / 32 * 64 + r % 32;",
        "return r;",
        TENSOR,
    ),
    Mistake(
        "six bits of a container come from the next",
        "ptx/tcgen05/operands/format.cpp",
        "const u8* s = source + k / 4 * 3;",
        "const u8* s = source + k / 4 * 4;",
        TENSOR,
    ),
    Mistake(
        "where a swizzle's pattern starts is not read",
        "ptx/tcgen05/operands/descriptor.cpp",
        "d.base = d.swizzle == Swizzle::none ? 0 : at(49, 3);",
        "d.base = 0;",
        TENSOR,
    ),
    Mistake(
        "the 64-byte swizzle of an operand is the 32-byte one",
        "ptx/tcgen05/operands/descriptor.cpp",
        "case 4: d.swizzle = Swizzle::b64; break;",
        "case 4: d.swizzle = Swizzle::b32; break;",
        TENSOR,
    ),
    Mistake(
        "tcgen05.shift moves the last row too",
        "ptx/tcgen05/tensor_copy.cpp",
        "for (u32 r = 0; r < 31; ++r)",
        "for (u32 r = 0; r < 32; ++r)",
        TENSOR,
    ),
    Mistake(
        "a phase completes with bytes still to come",
        "ptx/barriers/mbarrier.cpp",
        "if (bar.pending != 0 || bar.tx != 0) return;",
        "if (bar.pending != 0 || bar.tx > 0) return;",
        (*CLUSTERS, *COPIES, *ORDER),
    ),
    Mistake(
        "a copy of an earlier phase counts for this one",
        "ptx/barriers/mbarrier.cpp",
        "if (bar.phase == issued_phase && bar.in_flight) bar.in_flight -= 1;",
        "if (bar.in_flight) bar.in_flight -= 1;",
        (*COPIES, *ORDER),
    ),
    Mistake(
        "arrive_drop lowers this phase alone",
        "ptx/barriers/mbarrier_ops.cpp",
        "if (i.mods & kMbarDrop) t.bar->expected -= std::min(count, t.bar->expected);",
        "if (i.mods & kMbarDrop) t.bar->expected -= 0;",
        (*COPIES, *ORDER, *CLUSTERS),
    ),
    Mistake(
        "a named barrier counts a warp once that has exited in part",
        "ptx/barriers/named_barrier.cpp",
        "if (completes_warp) b.arrived += kLanes;",
        "if (completes_warp) b.arrived += 0;",
        (f"{EMULATOR}/machine", *ORDER),
    ),
    Mistake(
        "lanes that exit stay counted at the cluster barrier",
        "ptx/barriers/cluster_barrier.cpp",
        "cluster.barrier.arrived -= static_cast<u32>(std::popcount(w.cluster_arrived & exited));",
        "",
        CLUSTERS,
    ),
    Mistake(
        "wait_group.read waits for what is written",
        "ptx/copies/bulk_group.cpp",
        "if (!read) view->raise(bulk.writes, clock);",
        "view->raise(bulk.writes, clock);",
        (*COPIES, *ORDER),
    ),
    Mistake(
        "a bulk group is complete once it was read",
        "ptx/copies/bulk_group.cpp",
        "return (read ? bulk.read_front : bulk.written_front) >= needed;",
        "return bulk.read_front >= needed;",
        (*COPIES, *ORDER),
    ),
    Mistake(
        "cp.async of a warp come in order",
        "order/conflicts/conflicts.cpp",
        "        kind == AgentKind::bulk_load || kind == AgentKind::bulk_store || kind == AgentKind::cp_async;",
        "        kind == AgentKind::bulk_load || kind == AgentKind::bulk_store;",
        (*ORDER, f"{EMULATOR}/copies/test_cp_async.py"),
    ),
    Mistake(
        "strong accesses at .cta scope never race",
        "order/conflicts/conflicts.cpp",
        "(!(earlier.narrow || who.narrow) || same_cta(w, earlier, who))",
        "true",
        (*ORDER, *ATOMICS),
    ),
    Mistake(
        "the async proxy of global memory knows what that of shared memory does",
        "order/conflicts/conflicts.cpp",
        "const VectorClock& fenced = proxy == Proxy::async_global ? w.clocks.async_global : w.clocks.async;",
        "const VectorClock& fenced = w.clocks.async;",
        (*ORDER, *COPIES),
    ),
    Mistake(
        "a strided store of lanes covers what lies between",
        "order/conflicts/lane_races.cpp",
        "if (now.ascends && before.size == now.size && before.at == now.at) return;",
        "if (now.ascends) return;",
        ORDER,
    ),
    Mistake(
        "a store to tensor memory after a load of another warp is ordered",
        "order/conflicts/tensor_memory_conflicts.cpp",
        "return e.agent == who.agent || w.clocks.tc.get(e.agent) >= e.clock;",
        "return e.agent == who.agent || w.clocks.generic.get(e.agent) >= e.clock;",
        (*TENSOR, *ORDER),
    ),
    Mistake(
        "fence.proxy.async of shared memory is one of global memory",
        "order/clocks.cpp",
        "    if (!global) {\n",
        "    if (!global && !shared) {\n",
        (*ORDER, *COPIES),
    ),
    Mistake(
        "who waits for a copy need not wait for its exit",
        "order/conflicts/cta_exit.cpp",
        "if (w.clocks.generic.get(bulk.reads) < bulk.used)",
        "if (w.clocks.generic.get(bulk.reads) + 1 < bulk.used)",
        (*ORDER, *COPIES),
    ),
    Mistake(
        "a filtered sum of a plane is cut at its own point",
        "ptx/textures/filter.cpp",
        "const i32 point = std::min(near.point, far.point);",
        "const i32 point = std::max(near.point, far.point);",
        TEXTURES,
    ),
    Mistake(
        "the corner behind is rounded, not the one in front",
        "ptx/textures/filter.cpp",
        "const i32 left_front = product(left, kWhole - behind[1])",
        "const i32 left_front = left - product(left, behind[1])",
        TEXTURES,
    ),
)
