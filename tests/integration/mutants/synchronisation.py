"""Mistakes in what orders what: phases, waits, commits and counts."""

from harness.worker.protocol import Configuration
from tests.integration.mutants.model import (
    EVERY_MAXIMUM,
    LOAD,
    MAP,
    MMA,
    ROLE,
    TCGEN05,
    THREE_TILES,
    Edit,
    Mutant,
    Trial,
    drop,
    mutant,
)

LATE = Trial(THREE_TILES.configuration, "late")
SIXTY_FOUR_TILES = Trial(Configuration(64, 1, 64 * 128))
WIDE = Trial(Configuration(512, 32, 300))
WIDE_TMEM = Trial(Configuration(512, 32, 300, p_path="tmem"))
WIDE_LATE = Trial(WIDE.configuration, "late")
SHARED_KV = Trial(Configuration(64, 32, 900, kv="shared"))
SPARSE = Trial(Configuration(64, 2, 0, heads=8, topk=300, s_sparse=64))

FENCE_BEFORE = "ptx::tcgen05_fence_before_thread_sync();\n"
ARRIVE = "    ptx::mbarrier_arrive(shared.probability_full(turn.slot));\n"


def wait(file: str, barrier: str, parity: str, instead: str = "", before: str = "") -> Edit:
    """Drops the wait for a barrier's phase, or waits for another parity instead; `before` tells waits apart."""
    found = f"ptx::mbarrier_wait(shared.{barrier}, {parity});{before}"
    return Edit(file, found, (f"ptx::mbarrier_wait(shared.{barrier}, {instead});" if instead else "") + before)


KEY, VALUE = "\n    ptx::tcgen05_fence_after", "\n    }\n    ptx::mbarrier_wait(shared.probability_full"  # what follows

PARITIES = (
    mutant(
        "parity-key-full",
        "S_j waits for the phase of the tile that was in K's slot before",
        wait(MMA, "kv_full(ring.slot)", "ring.parity", "ring.parity ^ 1", before=KEY),
        by="deadlock unwritten",
    ),
    mutant(
        "parity-value-full",
        "P_j V_j waits for the phase of the tile that was in V's slot before",
        wait(MMA, "kv_full(ring.slot)", "ring.parity", "ring.parity ^ 1", before=VALUE),
        by="deadlock unwritten",
    ),
    mutant(
        "parity-kv-empty",
        "TMA waits for the phase that its own tile completes",
        wait(LOAD, "kv_empty(turn.slot)", "turn.parity ^ 1", "turn.parity"),
        by="deadlock unwritten",
    ),
    mutant(
        "parity-score-full",
        "the softmax waits for S's phase of two tiles before",
        wait(ROLE, "score_full(turn.slot)", "turn.parity", "turn.parity ^ 1"),
        by="tmem-access-under-mma tmem-race uninitialised-tmem",
    ),
    mutant(
        "parity-probability-full",
        "P_j V_j waits for P's phase of two tiles before",
        wait(MMA, "probability_full(turn.slot)", "turn.parity", "turn.parity ^ 1"),
        by="deadlock unwritten",
    ),
    mutant(
        "parity-output-full",
        "the rescale waits for the phase that its own tile completes",
        wait(ROLE, "output_full()", "(j - 1) & 1", "j & 1"),
        by="deadlock unwritten",
    ),
)

WAITS = (
    mutant(
        "wait-query-full",
        "S_0 is issued without waiting for Q",
        wait(MMA, "query_full()", "0"),
        by="bulk-copy-in-flight",
    ),
    mutant(
        "wait-key-full",
        "S_j is issued without waiting for K_j",
        wait(MMA, "kv_full(ring.slot)", "ring.parity", before=KEY),
        by="bulk-copy-in-flight",
    ),
    mutant(
        "wait-value-full",
        "P_j V_j is issued without waiting for V_j",
        wait(MMA, "kv_full(ring.slot)", "ring.parity", before=VALUE),
        by="bulk-copy-in-flight",
    ),
    mutant(
        "wait-kv-empty",
        "a slot is filled without waiting for the products that read it",
        wait(LOAD, "kv_empty(turn.slot)", "turn.parity ^ 1"),
        by="mbarrier-over-arrival unwritten",
    ),
    mutant(
        "wait-output-full",
        "O is rescaled without waiting for P_{j-1} V_{j-1}",
        wait(ROLE, "output_full()", "(j - 1) & 1"),
        EVERY_MAXIMUM,
        by="tmem-access-under-mma",
    ),
    mutant(
        "wait-output-full-p-in-shared-memory",
        "P_j is stored in shared memory while P_{j-2} V_{j-2} may still read it",
        wait(ROLE, "output_full()", "(j - 1) & 1"),
        by="tmem-access-under-mma tmem-race",
        trial=WIDE_LATE,
    ),
    mutant(
        "wait-output-full-if-rescaled",
        "rows that never grow fall two phases behind a one-bit parity",
        Edit(
            ROLE,
            "        ptx::mbarrier_wait(shared.output_full(), (j - 1) & 1);\n",
            "        if (ptx::any_lane(factor != 1.0f)) {\n"
            "            ptx::mbarrier_wait(shared.output_full(), (j - 1) & 1);\n"
            "        }\n",
        ),
        by="tmem-access-under-mma tmem-overwrite-under-mma tmem-race",
        trial=LATE,
    ),
    mutant(
        "wait-last-output",
        "the epilogue reads O without waiting for the last PV",
        wait(ROLE, "output_full()", "(work.tiles - 1) & 1"),
        by="tmem-access-under-mma tmem-overwrite-under-mma",
    ),
    mutant(
        "wait-ld",
        "no wait::ld after tcgen05.ld",
        drop(TCGEN05, '    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");\n'),
        by="tmem-missing-wait-ld",
    ),
    mutant(
        "wait-st",
        "no wait::st before the arrival for P and O",
        drop(ROLE, "    ptx::tmem_wait_store();\n"),
        by="tmem-missing-wait-st",
    ),
    mutant(
        "wait-st-after-fence",
        "wait::st after the fence that should cover it",
        drop(ROLE, "    ptx::tmem_wait_store();\n"),
        Edit(ROLE, f"    {FENCE_BEFORE}{ARRIVE}", f"    {FENCE_BEFORE}    ptx::tmem_wait_store();\n{ARRIVE}"),
        by="tmem-missing-fence-before",
    ),
    mutant(
        "arrival-before-rescale",
        "probability_full turns before O is rescaled",
        Edit(ROLE, "    if (j > 0) {\n        // Waited", f"{ARRIVE}    if (j > 0) {{\n        // Waited"),
        drop(ROLE, ARRIVE, before="}\n"),
        by="tmem-missing-fence-before tmem-missing-wait-st",
    ),
    mutant(
        "exchange-barrier",
        "at head_dim 512 the other thread's maximum is read without waiting for it",
        drop(ROLE, "        row_barrier();\n", before="        return combine"),
        by="race uninitialised-shared",
        trial=WIDE,
    ),
    mutant(
        "join-barrier",
        "at head_dim 512 with P in TMEM the other thread's half of P is read without waiting for it",
        drop(ROLE, "    row_barrier();\n", before="#pragma unroll"),
        by="race uninitialised-shared",
        trial=WIDE_TMEM,
    ),
    mutant(
        "exchange-one-buffer",
        "at head_dim 512 a maximum overwrites one that the other thread may not have read",
        Edit(MAP, "(buffer * Traits::kSoftmaxThreads + thread) * 4", "thread * 4"),
        by="race",
        trial=WIDE,
    ),
    mutant(
        "exchange-wrong-partner",
        "at head_dim 512 warps 0 and 1 meet, which have different rows",
        Edit(ROLE, "1 + threadIdx.x / 32 % 2, 64", "1 + threadIdx.x / 64, 64"),
        by="race uninitialised-shared",
        trial=WIDE,
    ),
)

COMMITS = (
    mutant(
        "commit-score-full",
        "no commit to score_full",
        drop(MMA, "    ptx::mma_commit(shared.score_full(buffer));\n"),
        by="deadlock unwritten",
    ),
    mutant(
        "commit-kv-empty",
        "no slot is given back",
        drop(MMA, "        ptx::mma_commit(shared.kv_empty(Turn<Traits::kStages>(use).slot));\n"),
        by="deadlock unwritten",
    ),
    mutant(
        "commit-output-full",
        "no commit to output_full",
        drop(MMA, "    ptx::mma_commit(shared.output_full());\n"),
        by="deadlock unwritten",
    ),
    mutant(
        "commit-before-output",
        "the commit to output_full precedes the MMAs",
        drop(MMA, "    ptx::mma_commit(shared.output_full());\n"),
        Edit(
            MMA,
            "    issue_output<Traits>(shared, tmem, turn.slot",
            "    ptx::mma_commit(shared.output_full());\n    issue_output<Traits>(shared, tmem, turn.slot",
        ),
        by="tmem-access-under-mma tmem-overwrite-under-mma",
    ),
    mutant(
        "commit-shared-kv-with-scores",
        "where V is K, S_j gives the slot back that P_j V_j is going to read",
        Edit(MMA, "    if (!order.shared_kv) {\n        release", "    {\n        release"),
        by="bulk-copy-in-flight",
        trial=SHARED_KV,
    ),
    mutant(
        "commit-nobody-waits-for",
        "slots are given back that are not filled again",
        Edit(MMA, "use + Traits::kStages < order.count()", "true"),
        by="exit-with-work-in-flight",
        trial=LATE,
    ),
)

COUNTS = (
    mutant(
        "arrivals-127",
        "probability_full expects one arrival too few; the surplus is a warp's worth after 31 turns",
        Edit(MAP, "probability_full(i), Traits::kSoftmaxThreads", "probability_full(i), Traits::kSoftmaxThreads - 1"),
        by="mbarrier-split-arrival tmem-race",
        trial=SIXTY_FOUR_TILES,
    ),
    mutant(
        "arrivals-129",
        "probability_full expects one arrival too many",
        Edit(MAP, "probability_full(i), Traits::kSoftmaxThreads", "probability_full(i), Traits::kSoftmaxThreads + 1"),
        by="deadlock unwritten",
    ),
    mutant(
        "bytes-one-less",
        "expect_tx announces one byte too few",
        Edit(LOAD, "expect_tx(full, Traits::kKvTileBytes)", "expect_tx(full, Traits::kKvTileBytes - 1)"),
        by="deadlock unwritten",
    ),
    mutant(
        "bytes-one-more",
        "expect_tx announces one byte too many",
        Edit(LOAD, "expect_tx(full, Traits::kKvTileBytes)", "expect_tx(full, Traits::kKvTileBytes + 1)"),
        by="deadlock unwritten",
    ),
    mutant(
        "bytes-not-expected",
        "the arrival announces no bytes at all",
        Edit(LOAD, "arrive_expect_tx(full, Traits::kKvTileBytes)", "arrive(full)"),
        by="deadlock unwritten",
    ),
    mutant(
        "gather-one-lane",
        "only one lane gathers its rows of a sparse tile",
        Edit(LOAD, "    if (!is_dense(work, n)) {", "    if (!is_dense(work, n) && leader) {"),
        by="deadlock unwritten",
        trial=SPARSE,
    ),
    mutant(
        "one-slot",
        "all slots of the ring are the same memory",
        Edit(MAP, "kSmemKv + slot * Traits::kKvTileBytes", "kSmemKv"),
        by="bulk-copy-in-flight overwrite-under-mma",
    ),
    mutant(
        "one-score-buffer",
        "S_{j+1} goes where the softmax reads S_j",
        Edit(MMA, "tmem + Traits::kTmemScore + buffer * Traits::kScoreColumns", "tmem + Traits::kTmemScore"),
        Edit(
            ROLE,
            "thread.tmem + Traits::kTmemScore + turn.slot * Traits::kScoreColumns",
            "thread.tmem + Traits::kTmemScore",
        ),
        by="tmem-access-under-mma tmem-race",
    ),
    mutant(
        "one-probability-buffer",
        "P_{j+1} goes where the MMA reads P_j",
        Edit(
            MMA,
            "tmem + Traits::kTmemProbability + buffer * Traits::kProbabilityColumns",
            "tmem + Traits::kTmemProbability",
        ),
        Edit(
            ROLE,
            "thread.tmem + Traits::kTmemProbability + buffer * Traits::kProbabilityColumns",
            "thread.tmem + Traits::kTmemProbability",
        ),
        by="tmem-overwrite-under-mma",
    ),
    mutant(
        "one-probability-buffer-in-shared-memory",
        "likewise in shared memory",
        Edit(MAP, "kSmemProbability + buffer * Traits::kProbabilityBytes", "kSmemProbability"),
        by="overwrite-under-mma",
        trial=WIDE,
    ),
)

SYNCHRONISATION: dict[str, tuple[Mutant, ...]] = {
    "Parities": PARITIES,
    "Waits": WAITS,
    "Commits": COMMITS,
    "Counts, rings and buffers": COUNTS,
}
