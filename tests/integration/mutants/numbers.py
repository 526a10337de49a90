"""Mistakes in what is computed: the softmax, the statistics and tails."""

from harness.worker.protocol import Configuration
from tests.integration.mutants.model import (
    EVERY_MAXIMUM,
    LOAD,
    OUTPUT,
    ROLE,
    SOFTMAX,
    WORK,
    Edit,
    Mutant,
    Trial,
    drop,
    mutant,
)

RAGGED = Trial(Configuration(64, 77, 200))
ONE_KEY = Trial(Configuration(64, 32, 1))
ONE_KEY_SHORT = Trial(Configuration(64, 77, 255))
TWO_ENTRIES = Trial(Configuration(64, 32, 384, batch=2))
WIDE = Trial(Configuration(512, 32, 200))
TWO_CHUNKS = Trial(Configuration(128, 32, 200))

SOFTMAX_MUTANTS = (
    mutant(
        "rescale-dropped",
        "O is not rescaled when the anchor moves",
        drop(ROLE, "        rescale_output<Traits>(thread.tmem + Traits::kTmemOutput, factor);\n"),
        EVERY_MAXIMUM,
        by="cosine max_error relative_l2",
    ),
    mutant(
        "rescale-inverted",
        "O is divided by the factor",
        Edit(ROLE, "output[i] * factor", "output[i] / factor"),
        EVERY_MAXIMUM,
        by="cosine max_error relative_l2",
    ),
    mutant(
        "rescale-if-larger",
        "the vote asks for factors above one, which there are none of",
        Edit(ROLE, "any_lane(factor != 1.0f)", "any_lane(factor > 1.0f)"),
        EVERY_MAXIMUM,
        by="cosine max_error relative_l2",
    ),
    mutant(
        "rescale-if-all",
        "O is rescaled only when every row of the warp grew",
        Edit(ROLE, "!ptx::any_lane(factor != 1.0f)", "ptx::any_lane(factor == 1.0f)"),
        EVERY_MAXIMUM,
        by="cosine max_error relative_l2",
    ),
    mutant(
        "rescale-without-vote",
        "lanes that grew enter the warp-wide tcgen05.ld without the others",
        Edit(ROLE, "!ptx::any_lane(factor != 1.0f)", "factor == 1.0f"),
        EVERY_MAXIMUM,
        by="deadlock unwritten",
    ),
    mutant(
        "rescale-first-columns",
        "only the first 64 columns of O are rescaled",
        Edit(
            ROLE,
            "column < Traits::kOutputColumns; column += kOutputChunk) {\n        float output[kOutputChunk];",
            "column < kOutputChunk; column += kOutputChunk) {\n        float output[kOutputChunk];",
        ),
        EVERY_MAXIMUM,
        by="cosine max_error relative_l2",
        trial=TWO_CHUNKS,
    ),
    mutant(
        "anchor-follows-max",
        "below the threshold the anchor moves all the same, and what was accumulated does not",
        Edit(
            SOFTMAX,
            "        return 1.0f;\n    }\n    const float factor",
            "        state.anchor = top;\n        return 1.0f;\n    }\n    const float factor",
        ),
        by="cosine lse_error max_error relative_l2 row_sum_error",
    ),
    mutant(
        "sum-not-rescaled",
        "row_sum without the rescale factor",
        drop(SOFTMAX, "    state.sum *= factor;\n"),
        EVERY_MAXIMUM,
        by="cosine lse_error max_error relative_l2 row_sum_error",
    ),
    mutant(
        "anchor-not-undone",
        "row_sum stays relative to the anchor; O and LSE with it, so that LSE is wrong and O / row_sum right",
        Edit(ROLE, "const float sum = state.sum * shift;", "const float sum = state.sum;"),
        by="cosine lse_error max_error relative_l2 row_sum_error",
    ),
    mutant(
        "output-at-anchor",
        "O stays relative to the anchor, row_sum does not",
        Edit(ROLE, "float factor = shift;", "float factor = 1.0f;"),
        by="cosine max_error relative_l2",
    ),
    mutant(
        "max-of-this-tile",
        "the maximum is this tile's, not the running one",
        Edit(SOFTMAX, "fmaxf(state.max, tile_max)", "tile_max"),
        by="row_max_error row_sum_error",
    ),
    mutant(
        "max-from-zero",
        "the running maximum starts at 0, above that of rows with negative scores only",
        Edit(SOFTMAX, "max = -kInfinity;", "max = 0.0f;"),
        by="row_max_error row_sum_error",
        trial=ONE_KEY,
    ),
    mutant(
        "max-unscaled",
        "row_max in units of q.k",
        Edit(ROLE, "state.max * params.scale;", "state.max;"),
        by="lse_error row_max_error",
    ),
    mutant(
        "scale-twice",
        "the scale is folded in twice",
        Edit(ROLE, "scale_log2 = params.scale * kLog2E", "scale_log2 = params.scale * params.scale * kLog2E"),
        by="cosine lse_error max_error relative_l2 row_sum_error",
    ),
    mutant(
        "lse-base-2",
        "LSE in base 2",
        Edit(OUTPUT, "max + ptx::log2(sum) * kLn2", "max * kLog2E + ptx::log2(sum)"),
        by="lse_error",
    ),
    mutant(
        "half-a-row-s-maximum",
        "at head_dim 512 the threads of a row take their own half's maximum",
        Edit(
            ROLE, "exchange<Traits>(shared, turn.slot, max_of(row), ", "(max_of(row)); [[maybe_unused]] auto unused = ("
        ),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=WIDE,
    ),
    mutant(
        "half-a-row-s-sum",
        "at head_dim 512 row_sum is that of one half of the keys",
        Edit(ROLE, "[](float a, float b) { return a + b; }", "[](float a, float) { return a; }"),
        by="cosine lse_error max_error relative_l2 row_sum_error",
        trial=WIDE,
    ),
)

TAILS = (
    mutant(
        "mask-dropped",
        "what a row does not see of a tile is not masked",
        drop(ROLE, "    mask_tile<Traits>(work, thread, n, entries, row);\n"),
        by="cosine lse_error max_error relative_l2 row_sum_error",
        trial=RAGGED,
    ),
    mutant(
        "mask-one-short",
        "the first key is masked as well",
        Edit(ROLE, "thread.visible.first - key - column", "thread.visible.first + 1 - key - column"),
        by="cosine lse_error max_error relative_l2 row_sum_error",
        trial=RAGGED,
    ),
    mutant(
        "mask-one-long",
        "the last key before the range, a zero, is not masked",
        Edit(ROLE, "thread.visible.first - key - column", "thread.visible.first - 1 - key - column"),
        by="lse_error row_sum_error",
        trial=RAGGED,
    ),
    mutant(
        "mask-unless-one",
        "a first tile that lacks one key is not masked",
        Edit(WORK, "key < work.all_rows.first ||", "key + 1 < work.all_rows.first ||"),
        by="lse_error row_sum_error",
        trial=ONE_KEY_SHORT,
    ),
    mutant(
        "mask-half-column",
        "at head_dim 512 both halves of the lanes are masked as if they held the first keys",
        Edit(ROLE, "const int column = thread.half * Traits::kThreadKeys;", "const int column = 0;"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=WIDE,
    ),
    mutant(
        "tile-dropped",
        "the number of tiles is rounded down",
        Edit(WORK, "ceil_div(last.end - first.first, keys)", "(last.end - first.first) / keys"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=RAGGED,
    ),
    mutant(
        "tiles-from-the-start",
        "tiles start with the first key that is seen, and the last one passes the end",
        Edit(WORK, "work.dense.end - (work.dense_tiles - tile) * keys", "work.dense.first + tile * keys"),
        Edit(WORK, " || key + keys > work.all_rows.end", ""),
        by="cosine lse_error max_error relative_l2 row_sum_error",
        trial=RAGGED,
    ),
    mutant(
        "rows-all-stored",
        "rows past the last are stored",
        Edit(ROLE, "stored = thread.row < work.rows", "stored = true"),
        by="global-out-of-bounds unwritten",
    ),
    mutant(
        "rows-one-more",
        "one row past the last is stored: the next batch entry's first, or past the end",
        Edit(ROLE, "thread.row < work.rows", "thread.row <= work.rows"),
        by="global-out-of-bounds race unwritten",
        trial=TWO_ENTRIES,
    ),
    mutant(
        "rows-one-less",
        "the last row is not stored",
        Edit(ROLE, "thread.row < work.rows", "thread.row + 1 < work.rows"),
        by="cosine lse_error max_error nonfinite_mismatches relative_l2 row_max_error row_sum_error unwritten",
    ),
    mutant(
        "entry-not-loaded",
        "every batch entry reads the first one's Q",
        Edit(LOAD, "work.first_row, work.batch, policy", "work.first_row, 0, policy"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=TWO_ENTRIES,
    ),
    mutant(
        "value-tile",
        "V is one tile ahead of P",
        Edit(WORK, "is_value(use) ? use / 2 - 1", "is_value(use) ? use / 2"),
        by="cosine max_error relative_l2",
    ),
)

NUMBERS: dict[str, tuple[Mutant, ...]] = {
    "Softmax and statistics": SOFTMAX_MUTANTS,
    "Tails and rows": TAILS,
}
