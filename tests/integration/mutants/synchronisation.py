"""Mistakes in what orders what: phases, commits, counts, fences and lifetimes."""

from harness.worker.protocol import Configuration
from tests.integration.mutants.model import THREE_TILES, Edit, Mutant, Trial, drop, kernel, mutant

LATE = Trial(THREE_TILES.configuration, "late")
SIXTY_FOUR_TILES = Trial(Configuration(64, 1, 64 * 128))

FENCE_BEFORE = "ptx::tcgen05_fence_before_thread_sync();\n"
FENCE_AFTER = "ptx::tcgen05_fence_after_thread_sync();\n"
ARRIVE = "        ptx::mbarrier_arrive(shared.probability_full(turn.slot));\n"


def wait(barrier: str, parity: str, instead: str = "") -> Edit:
    """Drops the wait for a barrier's phase, or waits for another parity instead."""
    return kernel(
        f"ptx::mbarrier_wait(shared.{barrier}, {parity});",
        f"ptx::mbarrier_wait(shared.{barrier}, {instead});" if instead else "",
    )


PARITIES = (
    mutant(
        "parity-key-full",
        "S_j waits for K's phase of two tiles before",
        wait("key_full(turn.slot)", "turn.parity", "turn.parity ^ 1"),
        by="bulk-copy-in-flight deadlock",
    ),
    mutant(
        "parity-key-empty",
        "TMA waits for the phase that its own tile completes",
        wait("key_empty(turn.slot)", "turn.parity ^ 1", "turn.parity"),
        by="deadlock unwritten",
    ),
    mutant(
        "parity-value-full",
        "P_j V_j waits for V's phase of two tiles before",
        wait("value_full(turn.slot)", "turn.parity", "turn.parity ^ 1"),
        by="deadlock unwritten",
    ),
    mutant(
        "parity-value-empty",
        "TMA waits for the phase that its own tile completes",
        wait("value_empty(turn.slot)", "turn.parity ^ 1", "turn.parity"),
        by="deadlock unwritten",
    ),
    mutant(
        "parity-score-full",
        "the softmax waits for S's phase of two tiles before",
        wait("score_full(turn.slot)", "turn.parity", "turn.parity ^ 1"),
        by="uninitialised-tmem tmem-race lse_error",
    ),
    mutant(
        "parity-probability-full",
        "P_j V_j waits for P's phase of two tiles before",
        wait("probability_full(turn.slot)", "turn.parity", "turn.parity ^ 1"),
        by="uninitialised-tmem tmem-race",
    ),
    mutant(
        "parity-output-full",
        "the rescale waits for the phase that its own tile completes",
        wait("output_full()", "(j - 1) & 1", "j & 1"),
        by="deadlock unwritten",
    ),
)

WAITS = (
    mutant(
        "wait-query-full",
        "S_0 is issued without waiting for Q",
        wait("query_full()", "0"),
        by="bulk-copy-in-flight",
    ),
    mutant(
        "wait-key-full",
        "S_j is issued without waiting for K_j",
        wait("key_full(turn.slot)", "turn.parity"),
        by="bulk-copy-in-flight",
    ),
    mutant(
        "wait-key-empty",
        "K_{j+2} is loaded without waiting for S_j",
        wait("key_empty(turn.slot)", "turn.parity ^ 1"),
        by="mbarrier-over-arrival unwritten",
    ),
    mutant(
        "wait-value-full",
        "P_j V_j is issued without waiting for V_j",
        wait("value_full(turn.slot)", "turn.parity"),
        by="bulk-copy-in-flight",
    ),
    mutant(
        "wait-value-empty",
        "V_{j+2} is loaded without waiting for P_j V_j",
        wait("value_empty(turn.slot)", "turn.parity ^ 1"),
        by="bulk-copy-in-flight cosine relative_l2 max_error",
    ),
    mutant(
        "wait-output-full",
        "O is rescaled without waiting for P_{j-1} V_{j-1}",
        wait("output_full()", "(j - 1) & 1"),
        by="tmem-access-under-mma",
    ),
    mutant(
        "wait-output-full-if-rescaled",
        "rows that never grow fall two phases behind a one-bit parity",
        kernel(
            "            ptx::mbarrier_wait(shared.output_full(), (j - 1) & 1);\n",
            "            if (ptx::any_lane(factor != 1.0f)) {\n"
            "                ptx::mbarrier_wait(shared.output_full(), (j - 1) & 1);\n"
            "            }\n",
        ),
        by="tmem-access-under-mma tmem-race",
        trial=LATE,
    ),
    mutant(
        "wait-last-output",
        "the epilogue reads O without waiting for the last PV",
        wait("output_full()", "(tiles - 1) & 1"),
        by="tmem-access-under-mma cosine relative_l2 max_error",
    ),
    mutant(
        "wait-ld",
        "no wait::ld after tcgen05.ld",
        Edit("ptx/tcgen05.cuh", '    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");\n', ""),
        by="tmem-missing-wait-ld",
    ),
    mutant(
        "wait-st",
        "no wait::st before the arrival for P and O",
        drop("        ptx::tmem_wait_store();\n"),
        by="tmem-missing-wait-st",
    ),
    mutant(
        "wait-st-after-fence",
        "wait::st after the fence that should cover it",
        kernel(
            f"        ptx::tmem_wait_store();\n        {FENCE_BEFORE}",
            f"        {FENCE_BEFORE}        ptx::tmem_wait_store();\n",
        ),
        by="tmem-missing-fence-before",
    ),
    mutant(
        "arrival-before-rescale",
        "probability_full turns before O is rescaled",
        kernel("        if (j > 0) {\n            // Waited", f"{ARRIVE}        if (j > 0) {{\n            // Waited"),
        drop(ARRIVE, before="    }\n\n"),
        by="tmem-access-under-mma tmem-race cosine relative_l2 max_error",
    ),
)

COMMITS = (
    *(
        mutant(
            f"commit-{barrier.replace('_', '-')}",
            f"no commit to {barrier}",
            drop(f"ptx::mma_commit(shared.{barrier}({slot}));"),
            by="deadlock unwritten",
        )
        for barrier, slot in (
            ("score_full", "turn.slot"),
            ("key_empty", "turn.slot"),
            ("value_empty", "turn.slot"),
            ("output_full", ""),
        )
    ),
    mutant(
        "commit-before-output",
        "the commit to output_full precedes the MMAs",
        kernel(
            "    issue_output<Traits>(shared, tmem, turn.slot, j == 0);\n    ptx::mma_commit(shared.output_full());\n",
            "    ptx::mma_commit(shared.output_full());\n    issue_output<Traits>(shared, tmem, turn.slot, j == 0);\n",
        ),
        by="tmem-access-under-mma cosine relative_l2 max_error",
    ),
    mutant(
        "commit-nobody-waits-for",
        "value_empty is committed for slots that are not filled again",
        kernel(
            "    if (j + Traits::kStages < tiles) {\n        ptx::mma_commit(shared.value_empty",
            "    {\n        ptx::mma_commit(shared.value_empty",
        ),
        by="exit-with-work-in-flight",
        trial=LATE,
    ),
)

COUNTS = (
    mutant(
        "arrivals-127",
        "probability_full expects one arrival too few; the surplus is a warp's worth after 31 turns",
        kernel("shared.probability_full(i), Traits::kRows", "shared.probability_full(i), Traits::kRows - 1"),
        by="tmem-race",
        trial=SIXTY_FOUR_TILES,
    ),
    mutant(
        "arrivals-129",
        "probability_full expects one arrival too many",
        kernel("shared.probability_full(i), Traits::kRows", "shared.probability_full(i), Traits::kRows + 1"),
        by="deadlock unwritten",
    ),
    mutant(
        "bytes-one-less",
        "expect_tx announces one byte too few",
        kernel("arrive_expect_tx(full, bytes)", "arrive_expect_tx(full, bytes - 1)"),
        by="deadlock unwritten",
    ),
    mutant(
        "bytes-one-more",
        "expect_tx announces one byte too many",
        kernel("arrive_expect_tx(full, bytes)", "arrive_expect_tx(full, bytes + 1)"),
        by="deadlock unwritten",
    ),
    mutant(
        "bytes-not-expected",
        "the arrival announces no bytes at all",
        kernel("arrive_expect_tx(full, bytes)", "arrive(full)"),
        by="mbarrier-early-completion bulk-copy-in-flight",
    ),
    mutant(
        "one-key-slot",
        "both slots of the K ring are the same memory",
        kernel("kSmemKey + stage * Traits::kKvTileBytes", "kSmemKey"),
        by="bulk-copy-in-flight overwrite-under-mma cosine relative_l2",
    ),
    mutant(
        "one-score-buffer",
        "S_{j+1} goes where the softmax reads S_j",
        kernel("tmem + Traits::kTmemScore + slot * Traits::kScoreColumns", "tmem + Traits::kTmemScore"),
        kernel("quarter + Traits::kTmemScore + turn.slot * Traits::kScoreColumns", "quarter + Traits::kTmemScore"),
        by="tmem-race tmem-access-under-mma",
    ),
    mutant(
        "one-probability-buffer",
        "P_{j+1} goes where the MMA reads P_j",
        kernel(
            "tmem + Traits::kTmemProbability + slot * Traits::kProbabilityColumns",
            "tmem + Traits::kTmemProbability",
        ),
        kernel(
            "quarter + Traits::kTmemProbability + turn.slot * Traits::kProbabilityColumns",
            "quarter + Traits::kTmemProbability",
        ),
        by="tmem-overwrite-under-mma",
    ),
)

FENCES = (
    mutant(
        "proxy-fence",
        "no proxy fence after the barriers' initialisation",
        drop("    ptx::fence_proxy_async();\n"),
        by="mbarrier-missing-fence",
    ),
    mutant(
        "after-fence-scores",
        "no fence::after between the waits and S_j",
        drop(f"{FENCE_AFTER}    ", before="issue_scores"),
        by="mma-missing-fence-after",
    ),
    mutant(
        "after-fence-output",
        "no fence::after between the waits and P_j V_j",
        drop(f"{FENCE_AFTER}    ", before="issue_output"),
        by="mma-missing-fence-after tmem-missing-fence-after",
    ),
    mutant(
        "after-fence-softmax",
        "no fence::after between score_full and the load of S_j",
        drop(f"{FENCE_AFTER}        ", before="float row["),
        by="tmem-missing-fence-after",
    ),
    mutant(
        "after-fence-rescale",
        "no fence::after between output_full and the rescale",
        drop(f"{FENCE_AFTER}            ", before="rescale_output"),
        by="tmem-missing-fence-after",
    ),
    mutant(
        "after-fence-epilogue",
        "no fence::after between output_full and the last load of O",
        drop(f"{FENCE_AFTER}    ", before="float output["),
        by="tmem-missing-fence-after",
    ),
    mutant(
        "after-fence-dealloc",
        "no fence::after between the last CTA barrier and the deallocation",
        drop(f"{FENCE_AFTER}        ", before="ptx::tmem_dealloc"),
        by="tmem-missing-fence-after",
    ),
    mutant(
        "before-fence-arrival",
        "no fence::before ahead of the arrival for P and O",
        drop(f"{FENCE_BEFORE}        ", before="ptx::mbarrier_arrive"),
        by="tmem-missing-fence-before",
    ),
    mutant(
        "before-fence-last-barrier",
        "no fence::before ahead of the last CTA barrier",
        drop(f"{FENCE_BEFORE}    ", before="__syncthreads"),
        by="tmem-missing-fence-before",
    ),
)

LIFETIMES = (
    mutant(
        "syncthreads-first",
        "no CTA barrier between the set-up and its use",
        drop("    __syncthreads();\n", before="    const uint32_t tmem"),
        by="mbarrier-uninitialised uninitialised-shared",
    ),
    mutant(
        "syncthreads-last",
        "no CTA barrier between the last loads of O and the deallocation",
        drop("    __syncthreads();\n", before="    if (warp == kMmaWarp) {"),
        by="tmem-access-under-mma tmem-overwrite-under-mma tmem-unallocated",
    ),
    mutant(
        "dealloc-dropped",
        "tensor memory is not given back",
        drop("        ptx::tmem_dealloc(tmem, Traits::kTmemColumns);\n"),
        by="tmem-leak",
    ),
    mutant(
        "alloc-half",
        "half of tensor memory is allocated",
        kernel(
            "tmem_alloc(shared.tmem_address(), Traits::kTmemColumns)",
            "tmem_alloc(shared.tmem_address(), Traits::kTmemColumns / 2)",
        ),
        by="tmem-unallocated unwritten",
    ),
    mutant(
        "elect-mma",
        "every lane issues the MMAs",
        kernel("if (ptx::elect_one()) {\n            mma_role", "{\n            mma_role"),
        by="mma-issued-by-many unwritten",
    ),
)

SYNCHRONISATION: dict[str, tuple[Mutant, ...]] = {
    "Parities": PARITIES,
    "Waits": WAITS,
    "Commits": COMMITS,
    "Counts, rings and buffers": COUNTS,
    "Fences": FENCES,
    "Set-up and end": LIFETIMES,
}
