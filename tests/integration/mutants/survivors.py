"""Changes that no trial turns red, each with the reason. A test runs them: one that turns red becomes a mutant."""

from dataclasses import dataclass

from tests.integration.mutants.model import EVERY_MAXIMUM, LOAD, MMA, SETUP, SOFTMAX, WORK, Edit, drop


@dataclass(frozen=True, slots=True)
class Survivor:
    name: str
    changes: str
    why: str
    edits: tuple[Edit, ...]


SURVIVORS = (
    Survivor(
        "threshold-zero",
        "O is rescaled whenever the maximum grows",
        "equivalent but for the time, and for roundings: the anchor is undone in the epilogue, wherever it was",
        (EVERY_MAXIMUM,),
    ),
    Survivor(
        "anchor-contracted",
        "the shift from the anchor to the maximum rounds twice",
        "within every limit unless logits are in the thousands",
        (
            Edit(
                SOFTMAX,
                "-fmaf(state.max, scale_log2, -state.anchor)",
                "state.anchor - __fmul_rn(state.max, scale_log2)",
            ),
        ),
    ),
    Survivor(
        "mask-always",
        "every dense tile is masked",
        "equivalent but for the time",
        (Edit(WORK, "return key < work.all_rows.first ||", "return true || key < work.all_rows.first ||"),),
    ),
    Survivor(
        "relinquish-dropped",
        "the permit to allocate is kept",
        "equivalent for one CTA an SM; a second one waits for the deallocation either way, since all columns are taken",
        (drop(SETUP, "        ptx::tmem_relinquish_alloc_permit();\n"),),
    ),
    Survivor(
        "syncwarp-first",
        "no __syncwarp after the set-up",
        "the CTA barrier that follows is .aligned, and the machine reconverges a warp there",
        (drop(SETUP, "    __syncwarp();\n", before="    // Publishes"),),
    ),
    Survivor(
        "syncwarp-last",
        "no __syncwarp after the roles",
        "the CTA barrier that follows is .aligned, and the machine reconverges a warp there",
        (drop(SETUP, "    __syncwarp();\n", before="\n"),),
    ),
    Survivor(
        "base-not-aligned",
        "the base of shared memory is not rounded up to 1024",
        "the machine starts dynamic shared memory at a multiple of 1024, which no launch promises",
        (Edit(SETUP, "(shared_base + kAlignment - 1) & ~(kAlignment - 1)", "shared_base"),),
    ),
    Survivor(
        "prefetch-dropped",
        "tensor maps are not prefetched",
        "equivalent but for the latency of the first copies",
        (drop(SETUP, "        prefetch_tensor_maps(params, work);\n"),),
    ),
    Survivor(
        "policy-swapped",
        "K and V that several CTAs read are the first to leave L2",
        "equivalent but for the traffic: a policy is a hint",
        (Edit(LOAD, "gridDim.x > 1 ?", "gridDim.x == 1 ?"),),
    ),
    Survivor(
        "key-commit-nobody-waits-for",
        "K's slot is given back even if it is not filled again",
        "equivalent: commits complete in order, this one before the last output_full, on which the epilogue waits",
        (
            Edit(
                MMA,
                "        release<Traits>(shared, order, order.key(j));",
                "        ptx::mma_commit(shared.kv_empty(ring.slot));",
            ),
        ),
    ),
)
