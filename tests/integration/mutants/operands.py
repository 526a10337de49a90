"""Mistakes in what an instruction is given: operands and descriptors."""

from harness.worker.protocol import Configuration
from tests.integration.mutants.model import (
    DESCRIPTORS,
    MMA,
    ROLE,
    TRAITS,
    Edit,
    Mutant,
    Trial,
    mutant,
)

WIDE = Trial(Configuration(512, 32, 200))
TWO_CHUNKS = Trial(Configuration(128, 32, 200))

OPERAND_MUTANTS = (
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

OPERANDS: dict[str, tuple[Mutant, ...]] = {"Operands and descriptors": OPERAND_MUTANTS}
