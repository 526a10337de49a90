"""Mistakes in what a call may ask for: masks, lengths, folded heads, the sparse branch, sinks, outputs, splits."""

from harness.worker.protocol import Configuration
from tests.integration.mutants.model import (
    COMBINE,
    LOAD,
    OUTPUT,
    ROLE,
    SOFTMAX,
    WORK,
    Edit,
    Mutant,
    Trial,
    mutant,
)

CAUSAL = Trial(Configuration(64, 40, 300, mask="causal"))
WINDOW = Trial(Configuration(64, 40, 300, mask="window", window=50))
MORE_QUERIES = Trial(Configuration(64, 200, 60, mask="causal"))
ZERO_OFFSETS = Trial(Configuration(64, 40, 300, batch=2, mask="causal", query_offsets="zero"))
RAGGED = Trial(Configuration(64, 4, 200, batch=4, heads=3, kv_lens="ragged"))
HEADS = Trial(Configuration(64, 5, 200, batch=2, heads=30, mask="causal"))
SPARSE = Trial(
    Configuration(
        64, 3, 100, batch=2, heads=8, topk=200, s_sparse=64, sparse_indices="holes", sparse_lens="ragged",
        mask="window", window=90,
    )
)  # fmt: skip
SPARSE_HEADS = Trial(Configuration(512, 2, 0, heads=70, topk=70, s_sparse=90, sparse_indices="holes"))
SHARED_SPARSE = Trial(Configuration(64, 2, 90, heads=8, kv="shared", topk=70, s_sparse=90))
SINK = Trial(Configuration(64, 4, 150, heads=4, sink="mixed", output="fp32"))
BF16 = Trial(Configuration(64, 4, 150, heads=4, output="bf16"))
SPLITS = Trial(Configuration(64, 4, 900, heads=3, batch=2, splits=4))
SPLITS_SINK = Trial(Configuration(64, 4, 500, heads=4, splits=3, sink="mixed", output="fp32"))
EMPTY_SPLITS = Trial(Configuration(64, 4, 200, heads=3, batch=3, kv_lens="ragged", splits=4))

MASKS = (
    mutant(
        "causal-one-late",
        "a query sees one key after its own",
        Edit(WORK, "position + params.window_right + 1;", "position + params.window_right + 2;"),
        by="cosine lse_error max_error relative_l2 row_sum_error",
        trial=CAUSAL,
    ),
    mutant(
        "window-one-short",
        "a query sees one key less to its left",
        Edit(WORK, "position - params.window_left;", "position - params.window_left + 1;"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=WINDOW,
    ),
    mutant(
        "range-of-the-first-query",
        "tiles end with the last key that the CTA's first query sees",
        Edit(WORK, "work.dense = {first.first, last.end};", "work.dense = {first.first, first.end};"),
        Edit(
            WORK,
            "work.dense_tiles = last.end > first.first ? ceil_div(last.end - first.first",
            "work.dense_tiles = first.end > first.first ? ceil_div(first.end - first.first",
        ),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=CAUSAL,
    ),
    mutant(
        "mask-for-the-last-query",
        "a tile that the last query sees whole is not masked for the others",
        Edit(WORK, "work.all_rows = {last.first, first.end};", "work.all_rows = {last.first, last.end};"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=CAUSAL,
    ),
    mutant(
        "offset-from-the-tensor",
        "the last query is aligned with the tensor's last key, not with that of kv_len",
        Edit(WORK, ": work.kv_len - params.t;", ": params.s_k - params.t;"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=Trial(Configuration(64, 4, 200, batch=4, heads=3, kv_lens="ragged", mask="causal")),
    ),
    mutant(
        "offsets-of-the-first-entry",
        "every batch entry takes the first one's query offset",
        Edit(WORK, "params.query_offsets[batch]", "params.query_offsets[0]"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=Trial(Configuration(64, 40, 300, batch=3, mask="causal", query_offsets="mixed")),
    ),
    mutant(
        "offsets-ignored",
        "query_offsets are not read",
        Edit(WORK, "params.query_offsets ? params.query_offsets[batch] : ", ""),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=ZERO_OFFSETS,
    ),
    mutant(
        "lengths-of-the-first-entry",
        "every batch entry takes the first one's kv_len",
        Edit(WORK, "params.kv_lens[batch]", "params.kv_lens[0]"),
        by="cosine lse_error max_error nonfinite_mismatches relative_l2 row_max_error row_sum_error",
        trial=RAGGED,
    ),
    mutant(
        "tiles-past-the-length",
        "tiles start with the first key: the last one reads the padding, whose NaN no probability of zero silences",
        Edit(WORK, "work.dense.end - (work.dense_tiles - tile) * keys", "work.dense.first + tile * keys"),
        by="cosine max_error nonfinite_mismatches relative_l2",
        trial=RAGGED,
    ),
    mutant(
        "anchor-unguarded",
        "a maximum of -inf is taken for the anchor, and -inf - -inf is NaN",
        Edit(SOFTMAX, "state.anchor = state.max == -kInfinity ? 0.0f : top;", "state.anchor = top;"),
        by="cosine max_error nonfinite_mismatches relative_l2 row_sum_error",
        trial=MORE_QUERIES,
    ),
    mutant(
        "empty-row-at-infinity",
        "a row that sees nothing is shifted by 2^inf",
        Edit(SOFTMAX, "state.max == -kInfinity ? 0.0f : ptx::exp2(-fmaf", "ptx::exp2(-fmaf"),
        by="cosine max_error nonfinite_mismatches relative_l2 row_sum_error",
        trial=MORE_QUERIES,
    ),
    mutant(
        "query-of-a-row",
        "a row is taken for a query although heads are folded into rows",
        Edit(ROLE, "(work.first_row + row) / params.heads)", "work.first_row + row)"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=HEADS,
    ),
)

SPARSE_MUTANTS = (
    mutant(
        "sparse-mask-dropped",
        "an entry that names no row is a key of zeros",
        Edit(ROLE, "        mask_bits(row, bits);\n", ""),
        by="cosine lse_error max_error relative_l2 row_sum_error",
        trial=SPARSE,
    ),
    mutant(
        "sparse-bits-reversed",
        "bit 0 of the mask is the last of 32 entries",
        Edit(SOFTMAX, "bits[i / 32] >> (i % 32)", "bits[i / 32] >> (31 - i % 32)"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=SPARSE,
    ),
    mutant(
        "sparse-negative",
        "negative indices are taken",
        Edit(WORK, "index >= 0 && index < params.s_sparse", "index < params.s_sparse"),
        by="cosine lse_error max_error relative_l2 row_sum_error",
        trial=SPARSE,
    ),
    mutant(
        "sparse-beyond",
        "indices past the tensor are taken: they lead to the next batch entry",
        Edit(WORK, "index >= 0 && index < params.s_sparse", "index >= 0"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=SPARSE,
    ),
    mutant(
        "sparse-length",
        "an index list is read one entry too far",
        Edit(WORK, "entry >= work.entries", "entry > work.entries"),
        by="global-out-of-bounds unwritten",
        trial=SPARSE,
    ),
    mutant(
        "sparse-lens-ignored",
        "sparse_lens are not read",
        Edit(WORK, "params.sparse_lens ? params.sparse_lens[query] : ", ""),
        by="cosine lse_error max_error nonfinite_mismatches relative_l2 row_max_error row_sum_error",
        trial=SPARSE,
    ),
    mutant(
        "sparse-invalid-row",
        "an invalid entry gathers row 0, whatever that holds",
        Edit(LOAD, "row < 0 ? params.batch * params.s_sparse : row", "row < 0 ? 0 : row"),
        by="cosine max_error nonfinite_mismatches relative_l2",
        trial=Trial(Configuration(64, 1, 0, heads=2, topk=70, s_sparse=3000, sparse_indices="holes")),
    ),
    mutant(
        "sparse-entry-of-the-batch",
        "every batch entry gathers from the first one's rows",
        Edit(WORK, "work.batch * params.s_sparse + index", "index"),
        by="cosine lse_error max_error nonfinite_mismatches relative_l2 row_max_error row_sum_error",
        trial=SPARSE,
    ),
    mutant(
        "sparse-list-of-the-batch",
        "every batch entry takes the first one's index lists",
        Edit(WORK, "int64_t(batch) * params.t + first_query", "first_query"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=SPARSE,
    ),
    mutant(
        "sparse-map",
        "the sparse values come from the tensor of the keys",
        Edit(LOAD, "value ? params.sparse_v : params.sparse_k", "params.sparse_k"),
        by="cosine max_error relative_l2",
        trial=SPARSE,
    ),
    mutant(
        "gather-order",
        "a lane's four rows are those of its neighbour",
        Edit(LOAD, "entry + 4 * group + i", "entry + 4 * (group ^ 1) + i"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=SPARSE,
    ),
    mutant(
        "gather-chunk",
        "every chunk of head_dim is gathered from the first",
        Edit(LOAD, "full,\n                         c * Traits::kChunkElements, rows, policy", "full, 0, rows, policy"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=SPARSE_HEADS,
    ),
    mutant(
        "sparse-heads",
        "a query's second CTA starts with its first head again",
        Edit(WORK, "block / blocks * params.heads + head;", "block / blocks * params.heads;"),
        by="race unwritten",
        trial=SPARSE_HEADS,
    ),
    mutant(
        "shared-kv-read-twice",
        "V's map is read although V is K",
        Edit(
            LOAD,
            "const RingOrder order{work.tiles, (params.flags & kFmhaSharedKv) != 0};",
            "const RingOrder order{work.tiles, false};",
        ),
        by="tensor-map unwritten",
        trial=SHARED_SPARSE,
    ),
)

OUTPUTS = (
    mutant(
        "sink-in-statistics",
        "the sink counts in row_sum and LSE",
        Edit(
            ROLE,
            "        store_statistics(params, index, max, sum);",
            "        store_statistics(params, index, max, 1.0f / output_factor(params, 0, max, sum));",
        ),
        by="lse_error row_sum_error",
        trial=SINK,
    ),
    mutant(
        "sink-of-another-head",
        "every head takes the first one's sink",
        Edit(OUTPUT, "params.sink[head]", "params.sink[0]"),
        by="cosine max_error relative_l2",
        trial=SINK,
    ),
    mutant(
        "sink-ignored",
        "the sink is not in the denominator",
        Edit(OUTPUT, "reciprocal(sum + sink)", "reciprocal(sum)"),
        by="cosine max_error relative_l2",
        trial=SINK,
    ),
    mutant(
        "sink-base-2",
        "the sink is taken for a logit in base 2",
        Edit(OUTPUT, "(params.sink[head] - max) * kLog2E", "params.sink[head] - max * kLog2E"),
        by="cosine max_error relative_l2",
        trial=Trial(Configuration(64, 4, 2, heads=8, sink="finite", output="fp32")),
    ),
    mutant(
        "normalise-ignored",
        "O is stored un-normalised",
        Edit(OUTPUT, "!(params.flags & kFmhaNormalise)", "true"),
        by="cosine max_error relative_l2",
        trial=BF16,
    ),
    mutant(
        "bf16-halves",
        "the elements of a pair of bf16 are swapped",
        Edit(OUTPUT, "pack_bf16x2(values[i], values[i + 1])", "pack_bf16x2(values[i + 1], values[i])"),
        by="cosine max_error relative_l2",
        trial=BF16,
    ),
)

SPLIT_MUTANTS = (
    mutant(
        "split-range",
        "the last tile of each split is left to nobody",
        Edit(WORK, "params.splits) - work.first_tile;", "params.splits) - work.first_tile - 1;"),
        by="cosine lse_error max_error relative_l2 row_max_error row_sum_error",
        trial=SPLITS,
    ),
    mutant(
        "split-overlap",
        "every split starts with the first tile",
        Edit(WORK, "work.first_tile = int32_t(tiles * split / params.splits);", "work.first_tile = 0;"),
        by="cosine lse_error max_error relative_l2 row_sum_error",
        trial=SPLITS,
    ),
    mutant(
        "split-partials",
        "every split stores where the first one does",
        Edit(ROLE, "int64_t(work.split) * params.batch * params.t * params.heads + index", "index"),
        by="nonfinite_mismatches race",
        trial=SPLITS,
    ),
    mutant(
        "combine-unweighted",
        "parts are added as if their maxima were equal",
        Edit(COMBINE, "ptx::exp2((split_max - max) * kLog2E)", "1.0f"),
        by="cosine lse_error max_error relative_l2 row_sum_error",
        trial=SPLITS,
    ),
    mutant(
        "combine-base-2",
        "the difference of two natural maxima is an exponent of 2",
        Edit(COMBINE, "(split_max - max) * kLog2E", "split_max - max"),
        by="cosine lse_error max_error relative_l2 row_sum_error",
        trial=SPLITS,
    ),
    mutant(
        "combine-one-split-less",
        "the last split's sum is left out",
        Edit(
            COMBINE,
            "    float sum = 0.0f;\n    for (int s = 0; s < params.splits; ++s) {",
            "    float sum = 0.0f;\n    for (int s = 0; s + 1 < params.splits; ++s) {",
        ),
        by="cosine lse_error max_error relative_l2 row_sum_error",
        trial=SPLITS,
    ),
    mutant(
        "combine-empty-split",
        "the maximum of a split without keys meets that of a row without keys: -inf - -inf",
        Edit(COMBINE, "split_max == -kInfinity ? 0.0f : ", ""),
        by="cosine max_error nonfinite_mismatches relative_l2 row_sum_error",
        trial=EMPTY_SPLITS,
    ),
    mutant(
        "combine-heads",
        "the combine kernel takes a row's first head for its own",
        Edit(COMBINE, "int(row % params.heads)", "0"),
        by="cosine max_error relative_l2",
        trial=SPLITS_SINK,
    ),
)

FEATURES: dict[str, tuple[Mutant, ...]] = {
    "Masks, lengths and heads": MASKS,
    "Sparse branch and K = V": SPARSE_MUTANTS,
    "Sinks and outputs": OUTPUTS,
    "Splits": SPLIT_MUTANTS,
}
