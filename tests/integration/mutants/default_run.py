"""Mistakes that every suite before `cover` passed but a random one, and that the default run has to see."""

from __future__ import annotations

from tests.integration.mutants.model import COMBINE, LOAD, OUTPUT, ROLE, SOFTMAX, WORK, Edit

COLUMNS = "    for (int column = 0; column < Traits::kOutputColumns; column += kOutputChunk) {\n        float output"
FAULTS: dict[str, tuple[Edit, ...]] = {
    "no-rescale-of-o": (
        Edit(ROLE, "rescale_output<Traits>(thread.tmem + Traits::kTmemOutput, factor);", "(void)factor;"),
    ),
    "heads-reversed": (
        Edit(
            ROLE,
            "+ work.first_row + thread.row;\n    const float shift",
            "+ (work.first_row + thread.row) / params.heads * params.heads + params.heads - 1 -\n"
            "        (work.first_row + thread.row) % params.heads;\n    const float shift",
        ),
    ),
    "keys-of-batch-0": (
        Edit(
            LOAD,
            "first_key(work, n, Traits::kKeys),\n                           work.batch, policy);",
            "first_key(work, n, Traits::kKeys),\n                           0, policy);",
        ),
    ),
    "sink-ignored": (Edit(OUTPUT, "params.sink ? ptx::exp2", "params.sink && false ? ptx::exp2"),),
    "normalised-o-doubled": (Edit(OUTPUT, "return ptx::reciprocal(", "return 2 * ptx::reciprocal("),),
    "threshold-126": (Edit(SOFTMAX, "kRescaleThreshold = 8.0f", "kRescaleThreshold = 126.0f"),),
    "window-unmasked-on-the-left": (Edit(WORK, "return key < work.all_rows.first || key", "return key"),),
    "combine-head-modulo-64": (Edit(COMBINE, "int(row % params.heads), max", "int(row % params.heads) % 64, max"),),
    "causal-dropped": (
        Edit(WORK, "params.window_right == kFmhaUnlimited ? kv_len", "params.window_right <= 0 ? kv_len"),
    ),
    "positions-in-32-bits": (
        Edit(WORK, "int64_t position = int64_t(query) + query_offset;", "int32_t position = query + query_offset;"),
    ),
}
