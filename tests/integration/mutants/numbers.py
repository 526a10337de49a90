"""Mistakes in what is computed: the softmax, the statistics, tails, operands and descriptors."""

from harness.worker.protocol import Configuration
from tests.integration.mutants.model import (
    DESCRIPTORS,
    EVERY_MAXIMUM,
    LOAD,
    MMA,
    OUTPUT,
    ROLE,
    SOFTMAX,
    TRAITS,
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

OPERANDS = (
    mutant(
        "p-store-column",
        "P is stored one column to the right",
        Edit(ROLE, "thread.tmem + Traits::kTmemProbability +", "thread.tmem + Traits::kTmemProbability + 1 +"),
        by="tmem-overwrite-under-mma uninitialised-tmem",
    ),
    mutant(
        "p-read-column",
        "the MMA reads P eight columns to the right",
        Edit(MMA, "tmem + Traits::kTmemProbability + buffer", "tmem + Traits::kTmemProbability + 8 + buffer"),
        by="tmem-overwrite-under-mma uninitialised-tmem",
    ),
    mutant(
        "p-read-step",
        "the MMA steps through P as if a column held one key",
        Edit(MMA, "probability + k * Traits::kMmaK / 2", "probability + k * Traits::kMmaK"),
        by="tmem-overwrite-under-mma uninitialised-tmem",
    ),
    mutant(
        "p-halves",
        "the even key goes to the high half of a column of P",
        Edit(ROLE, "pack_bf16x2(row[2 * i], row[2 * i + 1])", "pack_bf16x2(row[2 * i + 1], row[2 * i])"),
        by="cosine max_error relative_l2",
    ),
    mutant(
        "p-not-swizzled",
        "P is stored in shared memory row by row, without the swizzle it is read with",
        Edit(TRAITS, "((vector ^ (row % 8)) << 4)", "(vector << 4)"),
        by="cosine max_error relative_l2",
        trial=WIDE,
    ),
    mutant(
        "p-one-half",
        "at head_dim 512 both threads of a row store the first half of P",
        Edit(ROLE, "thread.half * kVectors + i", "i"),
        by="race uninitialised-shared",
        trial=WIDE,
    ),
    mutant(
        "p-halves-swapped",
        "at head_dim 512 with P in TMEM each thread puts its own half of P first",
        Edit(ROLE, "row[i + k] = thread.half == 0 ? mine[i + k] : other[k];", "row[i + k] = mine[i + k];"),
        by="cosine max_error relative_l2",
        trial=Trial(Configuration(512, 32, 200, p_path="tmem")),
    ),
    mutant(
        "lane-quarter",
        "a warp addresses its index as its first lane",
        Edit(ROLE, "(threadIdx.x / 32 * 32 << 16)", "(threadIdx.x / 32 << 16)"),
        by="tmem-lane-quarter",
    ),
    mutant(
        "pv-accumulates-first",
        "enable-input-d is set for the first PV too",
        Edit(MMA, "k > 0 || !first_tile", "true"),
        by="uninitialised-tmem",
    ),
    mutant(
        "pv-overwrites",
        "each tile's PV overwrites that of the tiles before",
        Edit(MMA, "k > 0 || !first_tile", "k > 0"),
        by="cosine max_error relative_l2",
    ),
    mutant(
        "qk-accumulates-first",
        "S is added to what its columns held",
        Edit(MMA, "Traits::kScoreInstruction, k > 0)", "Traits::kScoreInstruction, true)"),
        by="uninitialised-tmem",
    ),
    mutant(
        "qk-first-chunk",
        "S is that of the last 64 elements of head_dim: every chunk overwrites the one before",
        Edit(MMA, "Traits::kScoreInstruction, k > 0)", "Traits::kScoreInstruction, k % Traits::kStepsPerChunk > 0)"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=TWO_CHUNKS,
    ),
    mutant(
        "key-step",
        "the K step of Q and K is half as wide as 16 elements",
        Edit(TRAITS, "kKMajorStepBytes = kMmaK * kElementBytes", "kKMajorStepBytes = kMmaK"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
    ),
    mutant(
        "key-chunk",
        "the next chunk of K is sought where Q's would be, behind 64 rows and not 128",
        Edit(
            TRAITS,
            "kKeyChunkBytes = kKeys * kChunkRowBytes;  // of K",
            "kKeyChunkBytes = kKeys / 2 * kChunkRowBytes;  // of K",
        ),
        by="bulk-copy-in-flight",
        trial=TWO_CHUNKS,
    ),
    mutant(
        "value-stride",
        "the stride of V is that of 16 keys",
        Edit(TRAITS, "kMnMajorStrideBytes = 1024", "kMnMajorStrideBytes = 2048"),
        by="bulk-copy-in-flight",
    ),
    mutant(
        "value-leading",
        "V's leading offset is wrong",
        Edit(TRAITS, "kMnMajorLeadingBytes = kKeyChunkBytes", "kMnMajorLeadingBytes = 0"),
        by="cosine max_error relative_l2",
        trial=TWO_CHUNKS,
    ),
    mutant(
        "value-k-major",
        "the instruction descriptor says that V is K-major",
        Edit(
            TRAITS,
            "kRows, kOutputN, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kMn",
            "kRows, kOutputN, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kK",
        ),
        by="bulk-copy-in-flight",
    ),
    mutant(
        "value-part",
        "at head_dim 512 both halves of O are P times the first half of V",
        Edit(MMA, "part * Traits::kPartBytes + k * Traits::kMnMajorStepBytes", "k * Traits::kMnMajorStepBytes"),
        by="cosine max_error relative_l2",
        trial=WIDE,
    ),
    mutant(
        "output-halves",
        "at head_dim 512 the columns of the two halves of the lanes are taken for consecutive",
        Edit(
            TRAITS,
            "column / kPartColumns * kOutputN + half * kPartColumns + column % kPartColumns",
            "half * kThreadElements + column",
        ),
        by="cosine max_error relative_l2",
        trial=WIDE,
    ),
    mutant(
        "key-swizzle",
        "K is read with a 64-byte swizzle",
        Edit(
            MMA,
            "shared.kv(slot), 0, Traits::kKMajorStrideBytes, Swizzle::k128Bytes",
            "shared.kv(slot), 0, Traits::kKMajorStrideBytes, Swizzle::k64Bytes",
        ),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
    ),
    mutant(
        "swizzle-code",
        "a code that no swizzle has",
        Edit(DESCRIPTORS, "k128Bytes = 2", "k128Bytes = 3"),
        by="matrix-descriptor unwritten",
    ),
    mutant(
        "descriptor-advance",
        "a descriptor is advanced in bytes, not in units of 16",
        Edit(DESCRIPTORS, "uint32_t(descriptor) + (bytes >> 4)", "uint32_t(descriptor) + bytes"),
        by="bulk-copy-in-flight overwrite-under-mma shared-out-of-bounds unwritten",
    ),
)

NUMBERS: dict[str, tuple[Mutant, ...]] = {
    "Softmax and statistics": SOFTMAX_MUTANTS,
    "Tails and rows": TAILS,
    "Operands and descriptors": OPERANDS,
}
