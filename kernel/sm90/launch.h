// How the sm_90a kernels are launched: plain constants, so that kernel, host and tests read one source.
//
// A head_dim has one shape or several, told apart by their rows; harness/kernel_side/choice.py has the rule by which
// one is taken. The first is compiled unless FMHA_ROWS names another.
//
//   grid     (ceil(t * heads / rows), splits, planes); (CTAs, 1, 1) where they draw row tiles or divide all keys evenly
//   block    (threads, 1, 1)
//   dynamic shared memory: shared_bytes
//
// The combine kernel, launched as fmha_launch.h has it, takes the same parameters; so does fmha_combine_sm90_many, with
// a grid of (t * heads, 1, planes), which is faster from 17 splits of few rows on. All kernels may be launched to
// overlap the grid before them (programmatic stream serialization): they wait for it themselves before they touch
// memory, and let the grid behind them start early, which must do the same.
#pragma once

#include <stdint.h>

#include "shapes.h"

struct FmhaSm90Launch {
    int32_t rows;             // query rows of one CTA; box of the map q
    int32_t keys;             // keys of one tile; box of the maps k and v
    int32_t row_groups;       // warpgroups that divide the rows, 64 each
    int32_t column_groups;    // 2: two warpgroups divide head_dim of O, and take turns at the tiles of S
    int32_t boxes_per_unit;   // 64-element boxes of one slot of the ring
    int32_t slots;            // of the ring that K and V share, or of both: a column group has one of its own
    int32_t dense_slots;      // likewise of a dense kernel; with a slot less than fit those at 64 and 128 are faster
    bool overlap;             // a warpgroup multiplies P V beside the softmax of its next tile,
    bool dense_overlap;       // likewise of a dense kernel
    int32_t registers;        // of a consumer thread,
    int32_t heads_registers;  // or beside a producer that knows K/V heads or lists and needs more
    int32_t ctas_per_sm;
};

// What a kernel knows. The less, the less code, which a launch finds cold in the instruction cache.
enum FmhaSm90Kind : int32_t {
    kFmhaSm90Whole,  // everything
    kFmhaSm90Dense,  // no lists; a CTA whose products overlap may walk over several row tiles
    kFmhaSm90Plain,  // neither lists nor windows
};
#ifndef FMHA_KIND
#define FMHA_KIND kFmhaSm90Whole
#endif
constexpr bool kFmhaSm90Lists = FMHA_KIND == kFmhaSm90Whole;
constexpr bool kFmhaSm90Windows = FMHA_KIND != kFmhaSm90Plain;
constexpr bool kFmhaSm90Walks = FMHA_KIND == kFmhaSm90Dense;

#if FMHA_KV_HEADS && FMHA_KIND == 0
#error "lists are for one K/V head"
#endif

// Whether a kernel knows orders that follow from lengths: balanced splits, and the row tiles that packed queries have.
// Others have none of their code.
#ifndef FMHA_BY_LENGTH
#define FMHA_BY_LENGTH 0
#endif
#if FMHA_BY_LENGTH && !(FMHA_KV_HEADS && FMHA_KIND == 1)
#error "orders by length are for dense kernels that know K/V heads"
#endif
constexpr bool kFmhaSm90ByLength = FMHA_BY_LENGTH;

#ifndef FMHA_ROWS
#define FMHA_ROWS 0
#endif

// Which of these balance splits: a head_dim's own shape and the narrow one. Wide and long ones are for more rows than
// decode has; and beside pages a narrow one's producer has no register for it.
#if FMHA_BY_LENGTH && (FMHA_ROWS == 0 || (FMHA_ROWS == 64 && !FMHA_PAGED))
#define FMHA_SM90_BALANCES 1
#else
#define FMHA_SM90_BALANCES 0
#endif
constexpr bool kFmhaSm90Balances = FMHA_SM90_BALANCES;

#ifndef FMHA_SM90_KEYS
// The shape of `rows`, or the head_dim's own where there is none.
constexpr FmhaSm90Launch fmha_sm90_launch(int32_t head_dim, int32_t rows = FMHA_ROWS) {
#define FMHA_SM90_SHAPE(of, asked, ...) \
    if (head_dim == of && rows == asked) return {__VA_ARGS__};
    FMHA_SM90_SHAPES(FMHA_SM90_SHAPE)
#undef FMHA_SM90_SHAPE
    return fmha_sm90_launch(head_dim, 0);
}
#else  // tuning: one shape from the command line
constexpr FmhaSm90Launch fmha_sm90_launch(int32_t, int32_t = FMHA_ROWS) {
    return {.rows = 64 * FMHA_SM90_ROW_GROUPS,
            .keys = FMHA_SM90_KEYS,
            .row_groups = FMHA_SM90_ROW_GROUPS,
            .column_groups = FMHA_SM90_COLUMN_GROUPS,
            .boxes_per_unit = FMHA_SM90_BOXES,
            .slots = FMHA_SM90_SLOTS,
            .dense_slots = FMHA_SM90_SLOTS,
            .overlap = FMHA_SM90_OVERLAP,
            .dense_overlap = FMHA_SM90_OVERLAP,
            .registers = FMHA_SM90_REGISTERS,
            .heads_registers = FMHA_SM90_REGISTERS,
            .ctas_per_sm = FMHA_SM90_CTAS};
}
#endif

constexpr int32_t fmha_sm90_threads(int32_t head_dim, int32_t rows = FMHA_ROWS) {
    const FmhaSm90Launch launch = fmha_sm90_launch(head_dim, rows);
    return 128 * (launch.row_groups * launch.column_groups + 1);
}

constexpr int32_t fmha_sm90_slots(int32_t head_dim, int32_t rows = FMHA_ROWS, int32_t kind = FMHA_KIND) {
    const FmhaSm90Launch launch = fmha_sm90_launch(head_dim, rows);
    return kind == kFmhaSm90Dense ? launch.dense_slots : launch.slots;
}

constexpr bool fmha_sm90_overlap(int32_t head_dim, int32_t rows = FMHA_ROWS, int32_t kind = FMHA_KIND) {
    const FmhaSm90Launch launch = fmha_sm90_launch(head_dim, rows);
    return kind == kFmhaSm90Dense ? launch.dense_overlap : launch.overlap;
}

// Of a consumer thread, in a kernel for one K/V head or for several.
constexpr int32_t fmha_sm90_registers(int32_t head_dim, int32_t rows = FMHA_ROWS, int32_t kind = FMHA_KIND,
                                      bool heads = false) {
    const FmhaSm90Launch launch = fmha_sm90_launch(head_dim, rows);
    return kind == kFmhaSm90Whole || heads ? launch.heads_registers : launch.registers;
}

// Room to align, Q, the ring, the exchange between column groups, barriers.
constexpr int32_t fmha_sm90_shared_bytes(int32_t head_dim, int32_t rows = FMHA_ROWS, int32_t kind = FMHA_KIND) {
    const FmhaSm90Launch launch = fmha_sm90_launch(head_dim, rows);
    const int32_t ring = fmha_sm90_slots(head_dim, rows, kind) * launch.boxes_per_unit * launch.keys * 128;
    const int32_t exchange = launch.column_groups == 2 ? 256 * launch.keys + 64 * 16 : 0;
    return 1024 + launch.rows * head_dim * 2 + ring + exchange + 512;
}
