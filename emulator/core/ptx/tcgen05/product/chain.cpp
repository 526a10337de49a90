// Chains of MMAs that add to the same D: their operands are read when each completes, their products are summed when D
// is looked at, which reads and writes D once or, where the host has them, with its matrix instructions. Sums are the
// same as of one MMA after the other.
#include "machine/machine.hpp"
#include "machine/stopwatch.hpp"
#include "ptx/tcgen05/product/product.hpp"

namespace ptxm::tc {
namespace {

struct Chain : UnsettledSums {
    Chain() {}  // leaves the arrays as they are
    Mma first;
    u32 depth = 0;  // of K
    bool packed = false;
    Packed bf16;  // the operands where `packed`
    alignas(64) float a[2][kTmemLanes * kAPitch];
    alignas(64) float bt[kChainK * kBPitch];
    void settle() override;
};

// f(rows of a bank, CTA of a pair, the bank's first column of B)
template <class F>
void each_bank(const Mma& op, F f) {
    for (u32 which = 0; which < 2 && op.ctas[which]; ++which)
        for (u32 bank = 0; bank < op.path.banks; ++bank)
            f(rows_of(op, which, bank), which, bank * (op.shape.n / op.path.banks));
}

// How many tiles of 16 adjacent rows, up to `most`, start at the r-th.
u32 tiles_of_rows(const Rows& rows, u32 r, u32 most) {
    u32 tiles = 0;
    for (; tiles < most && r + kTileRows <= rows.count; ++tiles, r += kTileRows)
        if (rows.lane[r + kTileRows - 1] != rows.lane[r] + kTileRows - 1) break;
    return tiles;
}

// What the tiles do not do is left to vectors.
class PackedProduct {
public:
    explicit PackedProduct(Chain& chain, const Sums& s)
        : chain_(chain), s_(s), tiles_(s.group), fit_(tiles_fit(chain.bf16, s)) {}

    // Blocks of up to 64 columns, whose part of B fits the first-level cache.
    void multiply(const Rows& rows, u32 which, u32 b_column, u32 columns) {
        constexpr u32 kMost = 4;
        for (u32 column = 0, tiles = 0; column < columns; column += tiles * kBlockColumns) {
            tiles = std::min(kMost, (columns - column) / kBlockColumns);
            const Block block{which, b_column, {column, tiles * kBlockColumns}};
            for (u32 r = 0; r < rows.count;) {
                const u32 found = tiles_of_rows(rows, r, tiles == 1 ? kMost : tiles == 2 ? 2 : 1);
                const u32 high = found == 3 ? 2 : found;
                const RowRange range{r, high ? high * kTileRows : 1};
                if (!fit_ || high == 0 || !with_tiles(rows, range, block, {high, tiles}))
                    with_vectors(rows, range, block);
                r += range.count;
            }
        }
    }

private:
    struct Block {
        u32 which, b_column;
        Columns columns;  // of D
    };

    bool with_tiles(const Rows& rows, const RowRange& range, const Block& block, const TileBlock& shape) const {
        const u32 first = block.columns.first;
        u32* d[4];
        const u16* a[4];
        for (u32 t = 0; t < shape.rows; ++t) {
            const u32 r = range.first + t * kTileRows;
            d[t] = rows.d[r] + first;
            a[t] = chain_.bf16.a[block.which] + rows.row[r] % chain_.bf16.rows * kPackedPitch;
        }
        return tiles_.multiply(s_, shape, d, a, chain_.bf16.b + block.b_column + first);
    }

    void with_vectors(const Rows& rows, const RowRange& range, const Block& block) {
        const u32 which = block.which;
        if (!unpacked_[which]) unpack_a(chain_.bf16, which, s_.depth, chain_.a[which]);
        if (!unpacked_b_) unpack_b(chain_.bf16, s_.depth, chain_.bt);
        unpacked_[which] = unpacked_b_ = true;
        multiply_vectors(s_, Accumulator::f32, rows, range, chain_.a[which], chain_.bt + block.b_column, block.columns);
    }

    Chain& chain_;
    const Sums& s_;
    const Tiles tiles_;
    const bool fit_;
    bool unpacked_[2] = {}, unpacked_b_ = false;
};

void multiply(Chain& chain) {
    const Mma& op = chain.first;
    const Sums s{chain.depth, op.shape.k, op.accumulate, 1.0f / static_cast<float>(1u << op.input_scale)};
    const Stopwatch watch(op.ctas[0]->cluster->machine->stats.product_seconds);
    const u32 columns = op.shape.n / op.path.banks;
    if (chain.packed) {
        PackedProduct product(chain, s);
        return each_bank(
            op, [&](const Rows& rows, u32 which, u32 b_column) { product.multiply(rows, which, b_column, columns); });
    }
    if (op.sums == MmaSums::silicon)
        return each_bank(op, [&](const Rows& rows, u32 which, u32 b_column) {
            multiply_as_silicon(s, op.shape, rows, chain.a[which], chain.bt + b_column, columns);
        });
    each_bank(op, [&](const Rows& rows, u32 which, u32 b_column) {
        multiply_vectors(s, op.shape.d, rows, {0, rows.count}, chain.a[which], chain.bt + b_column, {0, columns});
    });
}

void Chain::settle() {
    for (Cta* cta : first.ctas)
        if (cta) cta->tmem.unsettled = {};
    multiply(*this);
}

// Whether an MMA goes on where the chain is: its D is what the chain's will be. Sums in f16 are rounded after each MMA.
bool continues(const Chain& chain, const Mma& op) {
    const Mma& first = chain.first;
    return op.accumulate && op.input_scale == 0 && op.shape.d == Accumulator::f32 &&
           first.shape.d == Accumulator::f32 && chain.packed == can_pack(op) && op.mods.a_tmem == first.mods.a_tmem &&
           op.shape.k == first.shape.k && chain.depth + op.shape.k <= kChainK && op.shape.n == first.shape.n &&
           op.d_column == first.d_column && op.d_lane == first.d_lane && op.path.layout == first.path.layout &&
           op.disabled == first.disabled && op.ctas == first.ctas;
}

void read_operands(const Mma& op, Chain& chain) {
    if (chain.packed)
        pack_b(op, chain.depth, chain.bf16);
    else
        load_b(op, op.b, chain.bt + chain.depth * kBPitch, kBPitch);
    for (u32 which = 0; which < 2 && op.ctas[which]; ++which) {
        if (chain.packed)
            pack_a(op, which, chain.depth, chain.bf16);
        else
            load_a(op, *op.ctas[which], chain.a[which] + chain.depth, kAPitch);
    }
}

}  // namespace

void execute_float(const Mma& op) {
    Tmem& owner = op.ctas[0]->tmem;
    const auto each_tmem = [&](auto f) {
        for (Cta* cta : op.ctas)
            if (cta) f(cta->tmem);
    };
    if (op.mods.a_tmem) each_tmem([&](Tmem& t) { t.settle(op.a_column, kRowColumns); });
    if (!owner.sums) owner.sums = std::make_shared<Chain>();
    Chain& chain = static_cast<Chain&>(*owner.sums);
    if (owner.unsettled.owner != &owner || !continues(chain, op)) {
        each_tmem([](Tmem& t) { t.settle(0, Tmem::kColumns); });
        chain.first = op;
        chain.depth = 0;
        chain.packed = can_pack(op);
        chain.bf16.magnitudes_a.clear();
        chain.bf16.magnitudes_b.clear();
    }
    read_operands(op, chain);
    chain.depth += op.shape.k;
    each_tmem([&](Tmem& t) { t.unsettled = {&owner, op.d_column, op.shape.n / op.path.banks}; });
}

}  // namespace ptxm::tc
