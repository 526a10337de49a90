// Operands of the tensor core as numbers: rows of A, and B transposed.
#include "machine/cluster/cluster.hpp"
#include "ptx/tcgen05/product/product.hpp"

namespace ptxm::tc {

[[gnu::noinline]] u8* gathered() {
    alignas(64) static thread_local u8 bytes[kMaxN * kRowBytes];
    return bytes;
}

namespace {

template <class T>
void load_b_as(const Mma& op, const SharedOperand& b, T* bt, u32 pitch) {
    const u32 n = op.shape.n, k = op.shape.k, parts = op.ctas[1] ? 2 : 1;
    if (has_columns(b)) {
        const u32 step = kChunk / container_bytes(op.shape.b);
        for (u32 p = 0; p < parts; ++p) {
            const Chunks chunks = chunks_of(*op.ctas[p], b);
            decode_chunks(op.shape.b, chunks.memory, chunks.offsets, {k, step, pitch}, bt + p * (n / parts));
        }
    } else {
        u8* rows = gathered();
        for (u32 p = 0; p < parts; ++p) gather(*op.ctas[p], b, rows + p * (n / parts) * kRowBytes);
        decode_transposed(op.shape.b, rows, n, bt, pitch);
    }
    if (op.shape.negate_b)
        for (u32 e = 0; e < k; ++e)
            for (u32 j = 0; j < n; ++j) bt[e * pitch + j] = -bt[e * pitch + j];
    if (!op.has_mask) return;
    for (u32 j = 0; j < n; ++j)
        if (op.mask.zero[j])
            for (u32 e = 0; e < k; ++e) bt[e * pitch + j] = 0;
}

// Both halves of the rows of A in tensor memory, of every bank.
void find_in_tmem(const Mma& op, Tmem& t, AChunks& out) {
    const u8* base = reinterpret_cast<const u8*>(t.row(0));
    const u32 n = op.path.rows * op.path.banks;
    for (u32 r = 0; r < n; ++r) {
        // .ashift: every row but the last of tensor memory takes the one below it.
        u32 lane = op.d_lane + op.path.lane_of(r % op.path.rows, r / op.path.rows);
        if (op.mods.a_shift && lane + 1 < kTmemLanes) ++lane;
        const u32 at = (lane * Tmem::kPitch + op.a_column) * static_cast<u32>(sizeof(u32));
        out.offsets[2 * r] = at;
        out.offsets[2 * r + 1] = at + kChunk;
    }
    out.chunks = {base, {out.offsets.data(), 2 * n}};
}

}  // namespace

void find_a(const Mma& op, Cta& cta, AChunks& out) {
    if (op.mods.a_tmem) return find_in_tmem(op, cta.tmem, out);
    if (!op.a.mn_major && !is_padded(op.shape.a)) {
        out.chunks = chunks_of(cta, op.a);
        return;
    }
    gather(cta, op.a, gathered());
    for (u32 c = 0; c < 2 * op.path.rows; ++c) out.offsets[c] = c * kChunk;
    out.chunks = {gathered(), {out.offsets.data(), 2 * op.path.rows}};
}

namespace {

template <class T>
void load_a_as(const Mma& op, Cta& cta, T* out, u32 pitch) {
    AChunks a;
    find_a(op, cta, a);
    const ChunkGrid grid{2, pitch, op.shape.k / 2};
    const u32 rows = op.path.rows * op.path.banks, found = static_cast<u32>(a.chunks.offsets.size()) / 2;
    for (u32 r = 0; r < rows; r += found)
        decode_chunks(op.shape.a, a.chunks.memory, a.chunks.offsets, grid, out + r * pitch);
    if (op.shape.negate_a)
        for (u32 r = 0; r < rows; ++r)
            for (u32 k = 0; k < op.shape.k; ++k) out[r * pitch + k] = -out[r * pitch + k];
}

}  // namespace

void load_a(const Mma& op, Cta& cta, float* out, u32 pitch) { load_a_as(op, cta, out, pitch); }
void load_a(const Mma& op, Cta& cta, i32* out, u32 pitch) { load_a_as(op, cta, out, pitch); }
void load_b(const Mma& op, const SharedOperand& b, float* bt, u32 pitch) { load_b_as(op, b, bt, pitch); }
void load_b(const Mma& op, const SharedOperand& b, i32* bt, u32 pitch) { load_b_as(op, b, bt, pitch); }

}  // namespace ptxm::tc
