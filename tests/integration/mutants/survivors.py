"""Changes that no trial turns red, each with the reason. A test runs them: one that turns red becomes a mutant."""

from dataclasses import dataclass

from tests.integration.mutants.model import Edit, drop, kernel


@dataclass(frozen=True, slots=True)
class Survivor:
    name: str
    changes: str
    why: str
    edits: tuple[Edit, ...]


SURVIVORS = (
    Survivor(
        "value-leading",
        "V's leading offset is wrong",
        "equivalent: it leads to the next 64 elements of head_dim, and head_dim 64 has no next",
        (Edit("traits.cuh", "kMnMajorLeadingBytes = kKeys * 128", "kMnMajorLeadingBytes = 0"),),
    ),
    Survivor(
        "anchor-unguarded",
        "a maximum of -inf is not replaced by 0",
        "equivalent: every tile has a key, so that no maximum stays -inf; masks over queries will need it",
        (Edit("softmax.cuh", "new_max == -kInfinity ? 0.0f : ", ""),),
    ),
    Survivor(
        "factor-contracted",
        "the factor's exponent is one fma",
        "equal maxima then give 1 up to rounding, not exactly: O is rescaled more often, within every limit",
        (
            Edit(
                "softmax.cuh",
                "__fmul_rn(state.max, scale_log2) - anchor",
                "fmaf(state.max, scale_log2, -anchor)",
            ),
        ),
    ),
    Survivor(
        "tile-extra",
        "a tile too many where s_k is a multiple of 128",
        "equivalent but for the time: all its keys are masked, or read as zero and masked",
        (
            kernel(
                "(params.s_k + Traits::kKeys - 1) / Traits::kKeys",
                "params.s_k / Traits::kKeys + 1",
            ),
        ),
    ),
    Survivor(
        "key-commit-nobody-waits-for",
        "key_empty is committed for slots that are not filled again",
        "equivalent: commits complete in order, this one before the last output_full, on which the epilogue waits",
        (
            kernel(
                "    if (j + Traits::kStages < tiles) {\n        ptx::mma_commit(shared.key_empty",
                "    {\n        ptx::mma_commit(shared.key_empty",
            ),
        ),
    ),
    Survivor(
        "relinquish-dropped",
        "the permit to allocate is kept",
        "equivalent for one CTA an SM; a second one waits for the deallocation either way, since all columns are taken",
        (drop("        ptx::tmem_relinquish_alloc_permit();\n"),),
    ),
    Survivor(
        "syncwarp-first",
        "no __syncwarp after the set-up",
        "the CTA barrier that follows is .aligned, and the machine reconverges a warp there",
        (drop("    __syncwarp();\n", before="    // Publishes"),),
    ),
    Survivor(
        "syncwarp-last",
        "no __syncwarp after the roles",
        "the CTA barrier that follows is .aligned, and the machine reconverges a warp there",
        (drop("    __syncwarp();\n", before="\n"),),
    ),
    Survivor(
        "base-not-aligned",
        "the base of shared memory is not rounded up to 1024",
        "the machine starts dynamic shared memory at a multiple of 1024, which no launch promises",
        (kernel("(shared_base + kAlignment - 1) & ~(kAlignment - 1)", "shared_base"),),
    ),
)
