// Where the rows of D lie.
#include "ptx/tcgen05/product/product.hpp"

namespace ptxm::tc {

Rows rows_of(const Mma& op, u32 which, u32 bank) {
    Rows rows;
    for (u32 r = 0; r < op.path.rows; ++r) {
        const u32 lane = op.d_lane + op.path.lane_of(r, bank);
        if (op.disabled[4 * which + lane / 32] >> (lane % 32) & 1) continue;
        rows.row[rows.count] = bank * op.path.rows + r;
        rows.d[rows.count] = op.ctas[which]->tmem.row(lane) + op.d_column;
        rows.lane[rows.count++] = lane;
    }
    return rows;
}

DataPath data_path(const Modifiers& mods, u32 m) {
    if (mods.pair) return m == 256 ? DataPath{'A', 128, 1, false} : DataPath{'B', 64, 2, false};
    if (m == 128) return {'D', 128, 1, false};
    if (m == 32) return {'G', 32, 4, false};
    return mods.ws ? DataPath{'E', 64, 2, false} : DataPath{'F', 64, 1, true};
}

}  // namespace ptxm::tc
