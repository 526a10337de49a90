"""Mistakes in what is computed: the softmax, the statistics, tails, operands and descriptors."""

from harness.worker.protocol import Configuration
from tests.integration.mutants.model import Edit, Mutant, Trial, kernel, mutant

RAGGED = Trial(Configuration(64, 77, 200))
ONE_KEY = Trial(Configuration(64, 32, 1))
ONE_KEY_SHORT = Trial(Configuration(64, 77, 255))
TWO_HEADS = Trial(Configuration(64, 32, 384, batch=2))


def softmax(old: str, new: str) -> Edit:
    return Edit("softmax.cuh", old, new)


def traits(old: str, new: str) -> Edit:
    return Edit("traits.cuh", old, new)


def descriptors(old: str, new: str) -> Edit:
    return Edit("descriptors.cuh", old, new)


SOFTMAX = (
    mutant(
        "rescale-dropped",
        "O is not rescaled when the maximum grows",
        kernel("            rescale_output<Traits>(output_address, factor);\n", ""),
        by="cosine relative_l2 max_error",
    ),
    mutant(
        "rescale-inverted",
        "O is divided by the factor",
        kernel("output[i] * factor", "output[i] / factor"),
        by="cosine relative_l2 max_error",
    ),
    mutant(
        "rescale-if-larger",
        "the vote asks for factors above one, which there are none of",
        kernel("any_lane(factor != 1.0f)", "any_lane(factor > 1.0f)"),
        by="cosine relative_l2 max_error",
    ),
    mutant(
        "rescale-if-all",
        "O is rescaled only when every row of the warp grew",
        kernel("!ptx::any_lane(factor != 1.0f)", "ptx::any_lane(factor == 1.0f)"),
        by="cosine relative_l2 max_error",
    ),
    mutant(
        "rescale-without-vote",
        "lanes that grew enter the warp-wide tcgen05.ld without the others",
        kernel("!ptx::any_lane(factor != 1.0f)", "factor == 1.0f"),
        by="deadlock",
    ),
    mutant(
        "sum-not-rescaled",
        "row_sum without the rescale factor",
        softmax("fmaf(state.sum, factor, sum_of(row))", "state.sum + sum_of(row)"),
        by="relative_l2 lse_error row_sum_error",
    ),
    mutant(
        "max-of-this-tile",
        "the maximum is this tile's, not the running one; O and LSE are right nevertheless",
        softmax("fmaxf(state.max, max_of(row))", "max_of(row)"),
        by="row_max_error row_sum_error",
    ),
    mutant(
        "max-from-zero",
        "the running maximum starts at 0, above that of rows with negative scores only",
        softmax("max = -kInfinity;", "max = 0.0f;"),
        by="row_max_error row_sum_error",
        trial=ONE_KEY,
    ),
    mutant(
        "max-unscaled",
        "row_max in units of q.k",
        kernel("state.max * params.scale", "state.max"),
        by="lse_error row_max_error",
    ),
    mutant(
        "scale-twice",
        "the scale is folded in twice",
        kernel("params.scale * kLog2E", "params.scale * params.scale * kLog2E"),
        by="cosine relative_l2 max_error lse_error row_sum_error",
    ),
    mutant(
        "lse-base-2",
        "LSE in base 2",
        kernel("row_max + ptx::log2(state.sum) * kLn2", "row_max * kLog2E + ptx::log2(state.sum)"),
        by="lse_error",
    ),
)

TAILS = (
    mutant(
        "mask-dropped",
        "keys past s_k are not masked",
        kernel("            mask_tail(row, valid_keys);\n", ""),
        by="relative_l2 lse_error row_sum_error",
        trial=RAGGED,
    ),
    mutant(
        "mask-one-short",
        "the last key is masked as well",
        softmax("i < valid_keys ?", "i < valid_keys - 1 ?"),
        by="relative_l2 lse_error row_sum_error",
        trial=RAGGED,
    ),
    mutant(
        "mask-one-long",
        "the first key past s_k, a zero, is not masked",
        softmax("i < valid_keys ?", "i <= valid_keys ?"),
        by="lse_error row_sum_error",
        trial=RAGGED,
    ),
    mutant(
        "mask-unless-one",
        "a last tile that lacks one key is not masked",
        kernel("valid_keys < Traits::kKeys", "valid_keys < Traits::kKeys - 1"),
        by="lse_error row_sum_error",
        trial=ONE_KEY_SHORT,
    ),
    mutant(
        "tile-dropped",
        "the number of tiles is rounded down",
        kernel("(params.s_k + Traits::kKeys - 1) / Traits::kKeys", "params.s_k / Traits::kKeys"),
        by="relative_l2 lse_error row_max_error row_sum_error",
        trial=RAGGED,
    ),
    mutant(
        "rows-all-stored",
        "rows past t are stored",
        kernel("if (row >= rows) {", "if (false) {"),
        by="global-out-of-bounds",
    ),
    mutant(
        "rows-one-more",
        "row t is stored: the next head's first row, or past the end",
        kernel("if (row >= rows) {", "if (row > rows) {"),
        by="race global-out-of-bounds",
        trial=TWO_HEADS,
    ),
    mutant(
        "rows-one-less",
        "the last row is not stored",
        kernel("if (row >= rows) {", "if (row + 1 >= rows) {"),
        by="unwritten",
    ),
    mutant(
        "head-not-loaded",
        "every head reads the first one's Q, K and V",
        kernel("full, 0, row, blockIdx.z)", "full, 0, row, 0)"),
        by="cosine relative_l2 max_error lse_error",
        trial=TWO_HEADS,
    ),
    mutant(
        "value-row",
        "V tiles start one key late",
        kernel(
            "shared.value_full(turn.slot), Traits::kKvTileBytes,\n                  j * Traits::kKeys",
            "shared.value_full(turn.slot), Traits::kKvTileBytes,\n                  j * Traits::kKeys + 1",
        ),
        by="cosine relative_l2 max_error",
    ),
)

OPERANDS = (
    mutant(
        "p-store-column",
        "P is stored one column to the right",
        kernel("quarter + Traits::kTmemProbability +", "quarter + Traits::kTmemProbability + 1 +"),
        by="uninitialised-tmem cosine relative_l2 max_error",
    ),
    mutant(
        "p-read-column",
        "the MMA reads P eight columns to the right",
        kernel("tmem + Traits::kTmemProbability + slot", "tmem + Traits::kTmemProbability + 8 + slot"),
        by="uninitialised-tmem cosine relative_l2 max_error",
    ),
    mutant(
        "p-read-step",
        "the MMA steps through P as if a column held one key",
        kernel("probability + k * Traits::kMmaK / 2", "probability + k * Traits::kMmaK"),
        by="uninitialised-tmem cosine relative_l2 max_error",
    ),
    mutant(
        "p-halves",
        "the even key goes to the high half of a column of P",
        kernel("pack_bf16x2(row[2 * i], row[2 * i + 1])", "pack_bf16x2(row[2 * i + 1], row[2 * i])"),
        by="cosine relative_l2 max_error",
    ),
    mutant(
        "lane-quarter",
        "a warp addresses its index as its first lane",
        kernel("(threadIdx.x / kWarpThreads * kWarpThreads << 16)", "(threadIdx.x / kWarpThreads << 16)"),
        by="tmem-lane-quarter",
    ),
    mutant(
        "pv-accumulates-first",
        "enable-input-d is set for the first PV too",
        kernel("k > 0 || !first_tile", "true"),
        by="uninitialised-tmem",
    ),
    mutant(
        "pv-overwrites",
        "each tile's PV overwrites that of the tiles before",
        kernel("k > 0 || !first_tile", "k > 0"),
        by="cosine relative_l2 max_error",
    ),
    mutant(
        "qk-accumulates-first",
        "S is added to what its columns held",
        kernel("Traits::kScoreInstruction, k > 0)", "Traits::kScoreInstruction, true)"),
        by="uninitialised-tmem lse_error row_max_error",
    ),
    mutant(
        "key-step",
        "the K step of Q and K is half as wide as 16 elements",
        traits("kKMajorStepBytes = kMmaK * kElementBytes", "kKMajorStepBytes = kMmaK"),
        by="cosine relative_l2 max_error lse_error row_max_error",
    ),
    mutant(
        "value-stride",
        "the stride of V is that of 16 keys",
        traits("kMnMajorStrideBytes = 1024", "kMnMajorStrideBytes = 2048"),
        by="uninitialised-shared bulk-copy-in-flight cosine relative_l2 max_error",
    ),
    mutant(
        "value-k-major",
        "the instruction descriptor says that V is K-major",
        traits(
            "kRows, kHeadDim, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kMn",
            "kRows, kHeadDim, Accumulator::kF32, Operand::kBf16, Operand::kBf16, Major::kK, Major::kK",
        ),
        by="shared-out-of-bounds",
    ),
    mutant(
        "key-swizzle",
        "K is read with a 64-byte swizzle",
        kernel(
            "shared.key(slot), 0, Traits::kKMajorStrideBytes, Swizzle::k128Bytes",
            "shared.key(slot), 0, Traits::kKMajorStrideBytes, Swizzle::k64Bytes",
        ),
        by="cosine relative_l2 max_error lse_error row_max_error",
    ),
    mutant(
        "swizzle-code",
        "a code that no swizzle has",
        descriptors("k128Bytes = 2", "k128Bytes = 3"),
        by="matrix-descriptor unwritten",
    ),
    mutant(
        "descriptor-advance",
        "a descriptor is advanced in bytes, not in units of 16",
        descriptors("uint32_t(descriptor) + (bytes >> 4)", "uint32_t(descriptor) + bytes"),
        by="shared-out-of-bounds",
    ),
)

NUMBERS: dict[str, tuple[Mutant, ...]] = {
    "Softmax and statistics": SOFTMAX,
    "Tails and heads": TAILS,
    "Operands and descriptors": OPERANDS,
}
