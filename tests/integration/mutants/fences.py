"""Mistakes in fences, in set-up and at the end."""

from harness.worker.protocol import Configuration
from tests.integration.mutants.model import (
    EVERY_MAXIMUM,
    LOAD,
    MAP,
    MMA,
    ROLE,
    SETUP,
    Edit,
    Mutant,
    Trial,
    drop,
    mutant,
)

WIDE = Trial(Configuration(512, 32, 300))

FENCE_BEFORE = "ptx::tcgen05_fence_before_thread_sync();\n"
FENCE_AFTER = "ptx::tcgen05_fence_after_thread_sync();\n"
ARRIVE = "    ptx::mbarrier_arrive(shared.probability_full(turn.slot));\n"


KEY, VALUE = "\n    ptx::tcgen05_fence_after", "\n    }\n    ptx::mbarrier_wait(shared.probability_full"  # what follows

FENCE_MUTANTS = (
    mutant(
        "proxy-fence",
        "no proxy fence after the barriers' initialisation",
        drop(MAP, "    ptx::fence_proxy_async();\n"),
        by="mbarrier-missing-fence",
    ),
    mutant(
        "proxy-fence-p",
        "no proxy fence between the stores of P to shared memory and the MMA",
        drop(ROLE, "        ptx::fence_proxy_async();\n"),
        by="missing-proxy-fence",
        trial=WIDE,
    ),
    mutant(
        "proxy-fence-p-after-arrival",
        "the proxy fence comes after the arrival that it should precede",
        drop(ROLE, "        ptx::fence_proxy_async();\n"),
        Edit(ROLE, ARRIVE, f"{ARRIVE}    ptx::fence_proxy_async();\n"),
        by="missing-proxy-fence",
        trial=WIDE,
    ),
    mutant(
        "after-fence-scores",
        "no fence::after between the waits and S_j",
        drop(MMA, f"    {FENCE_AFTER}", before="    issue_scores"),
        by="mma-missing-fence-after",
    ),
    mutant(
        "after-fence-output",
        "no fence::after between the waits and P_j V_j",
        drop(MMA, f"    {FENCE_AFTER}", before="    issue_output"),
        by="mma-missing-fence-after tmem-missing-fence-after",
    ),
    mutant(
        "after-fence-softmax",
        "no fence::after between score_full and the load of S_j",
        drop(ROLE, f"    {FENCE_AFTER}", before="    float row["),
        by="tmem-missing-fence-after",
    ),
    mutant(
        "after-fence-rescale",
        "no fence::after between output_full and the rescale",
        drop(ROLE, f"        {FENCE_AFTER}", before="        rescale_output"),
        EVERY_MAXIMUM,
        by="tmem-missing-fence-after",
    ),
    mutant(
        "after-fence-epilogue",
        "no fence::after between output_full and the last load of O",
        drop(ROLE, f"    {FENCE_AFTER}", before="    store_row"),
        by="tmem-missing-fence-after tmem-missing-fence-before",
    ),
    mutant(
        "after-fence-dealloc",
        "no fence::after between the last CTA barrier and the deallocation",
        drop(SETUP, f"        {FENCE_AFTER}", before="        ptx::tmem_dealloc"),
        by="tmem-missing-fence-after",
    ),
    mutant(
        "before-fence-arrival",
        "no fence::before ahead of the arrival for P and O",
        drop(ROLE, f"    {FENCE_BEFORE}", before="    ptx::mbarrier_arrive"),
        by="tmem-missing-fence-before",
    ),
    mutant(
        "before-fence-last-barrier",
        "no fence::before ahead of the last CTA barrier",
        drop(SETUP, f"    {FENCE_BEFORE}", before="    __syncthreads"),
        by="tmem-missing-fence-before",
    ),
)

LIFETIMES = (
    mutant(
        "syncthreads-first",
        "no CTA barrier between the set-up and its use",
        drop(SETUP, "    __syncthreads();\n", before="    const uint32_t tmem"),
        by="mbarrier-uninitialised race uninitialised-shared unwritten",
    ),
    mutant(
        "syncthreads-last",
        "no CTA barrier between the last loads of O and the deallocation",
        drop(SETUP, "    __syncthreads();\n", before="    if (warp == kMmaWarp) {"),
        by="tmem-access-under-mma tmem-deallocated tmem-overwrite-under-mma",
    ),
    mutant(
        "dealloc-dropped",
        "tensor memory is not given back",
        drop(SETUP, "        ptx::tmem_dealloc(tmem, Traits::kTmemColumns);\n"),
        by="tmem-leak",
    ),
    mutant(
        "alloc-half",
        "half of tensor memory is allocated",
        Edit(
            SETUP,
            "tmem_alloc(shared.tmem_address(), Traits::kTmemColumns)",
            "tmem_alloc(shared.tmem_address(), Traits::kTmemColumns / 2)",
        ),
        by="tmem-unallocated unwritten",
    ),
    mutant(
        "elect-mma",
        "every lane issues the MMAs",
        Edit(SETUP, "if (ptx::elect_one()) {\n            mma_role", "{\n            mma_role"),
        by="mma-issued-by-many unwritten",
    ),
    mutant(
        "elect-load",
        "every lane loads every tile",
        Edit(LOAD, "const bool leader = ptx::elect_one();", "const bool leader = true;"),
        by="mbarrier-over-arrival unwritten",
    ),
)

FENCES: dict[str, tuple[Mutant, ...]] = {
    "Fences": FENCE_MUTANTS,
    "Set-up and end": LIFETIMES,
}
