"""C = A B^T on mma.sync, in CuTe DSL: A is [m, k], B is [n, k], both bf16 with k innermost; C is [m, n] in float32."""

import cutlass
from cutlass import cute
from cutlass.cute.nvgpu import CopyUniversalOp, warp

THREADS = 128  # 2 by 2 warps
DEPTH = 32  # of k that lies in shared memory at a time
VECTOR = 8  # elements that a thread copies at once: 16 bytes
PITCH = DEPTH + VECTOR  # a row's elements: rows 80 bytes apart, which spreads them over the banks


@cute.kernel
def gemm(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    rows: cutlass.Constexpr,
    columns: cutlass.Constexpr,
):
    """A CTA has a tile of C of `rows` by `columns`. k is a multiple of VECTOR."""
    thread, _, _ = cute.arch.thread_idx()
    block_m, block_n, _ = cute.arch.block_idx()

    memory = cutlass.utils.SmemAllocator()
    shared_a = memory.allocate_tensor(cutlass.BFloat16, cute.make_layout((rows, DEPTH), stride=(PITCH, 1)), 16)
    shared_b = memory.allocate_tensor(cutlass.BFloat16, cute.make_layout((columns, DEPTH), stride=(PITCH, 1)), 16)

    # From global memory through registers to shared memory, a vector at a time.
    vectors = cute.make_tiled_copy_tv(
        cute.make_copy_atom(CopyUniversalOp(), cutlass.BFloat16, num_bits_per_copy=16 * VECTOR),
        cute.make_layout((THREADS * VECTOR // DEPTH, DEPTH // VECTOR), stride=(DEPTH // VECTOR, 1)),
        cute.make_layout((1, VECTOR)),
    )
    copier = vectors.get_slice(thread)
    pitch = cute.assume(k, divby=VECTOR)
    global_a = cute.make_tensor(a, cute.make_layout((m, k), stride=(pitch, 1)))
    global_b = cute.make_tensor(b, cute.make_layout((n, k), stride=(pitch, 1)))
    tile_a, tile_b = (rows, DEPTH), (columns, DEPTH)
    from_a = copier.partition_S(cute.local_tile(global_a, tile_a, (block_m, None)))
    from_b = copier.partition_S(cute.local_tile(global_b, tile_b, (block_n, None)))
    at_a = copier.partition_S(cute.local_tile(cute.make_identity_tensor((m, k)), tile_a, (block_m, None)))
    at_b = copier.partition_S(cute.local_tile(cute.make_identity_tensor((n, k)), tile_b, (block_n, None)))
    to_a, to_b = copier.partition_D(shared_a), copier.partition_D(shared_b)
    held_a, held_b = cute.make_fragment_like(to_a), cute.make_fragment_like(to_b)

    # From shared memory to the registers of the MMA, by ldmatrix.
    mma = cute.make_tiled_mma(
        warp.MmaF16BF16Op(cutlass.BFloat16, cutlass.Float32, (16, 8, 16)),
        cute.make_layout((2, 2, 1)),
        permutation_mnk=(32, 32, 16),
    )
    multiplier = mma.get_slice(thread)
    left = mma.make_fragment_A(multiplier.partition_A(shared_a))
    right = mma.make_fragment_B(multiplier.partition_B(shared_b))
    matrices = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), cutlass.BFloat16)
    load_a, load_b = cute.make_tiled_copy_A(matrices, mma), cute.make_tiled_copy_B(matrices, mma)
    loader_a, loader_b = load_a.get_slice(thread), load_b.get_slice(thread)

    tile_c = (rows, columns)
    global_c = cute.make_tensor(c, cute.make_layout((m, n), stride=(n, 1)))
    result = multiplier.partition_C(cute.local_tile(global_c, tile_c, (block_m, block_n)))
    at_c = multiplier.partition_C(cute.local_tile(cute.make_identity_tensor((m, n)), tile_c, (block_m, block_n)))
    sums = cute.make_rmem_tensor(result.shape, cutlass.Float32)
    sums.fill(0.0)

    for step in range(cute.ceil_div(k, DEPTH)):
        held_a.fill(0.0)  # what is past an edge stays so
        held_b.fill(0.0)
        for i in cutlass.range_constexpr(cute.size(held_a, mode=[1])):
            if cute.elem_less(at_a[0, i, 0, step], (m, k)):
                cute.copy(vectors, from_a[None, i, 0, step], held_a[None, i, 0])
        for i in cutlass.range_constexpr(cute.size(held_b, mode=[1])):
            if cute.elem_less(at_b[0, i, 0, step], (n, k)):
                cute.copy(vectors, from_b[None, i, 0, step], held_b[None, i, 0])
        cute.arch.sync_threads()  # the tiles of the step before have been read
        cute.copy(vectors, held_a, to_a)
        cute.copy(vectors, held_b, to_b)
        cute.arch.sync_threads()
        cute.copy(load_a, loader_a.partition_S(shared_a), loader_a.retile(left))
        cute.copy(load_b, loader_b.partition_S(shared_b), loader_b.retile(right))
        cute.gemm(mma, sums, left, right, sums)

    for i in cutlass.range_constexpr(cute.size(sums)):
        if cute.elem_less(at_c[i], (m, n)):
            result[i] = sums[i]


@cute.jit
def launch(
    a: cute.Pointer,
    b: cute.Pointer,
    c: cute.Pointer,
    m: cutlass.Int32,
    n: cutlass.Int32,
    k: cutlass.Int32,
    rows: cutlass.Constexpr,
    columns: cutlass.Constexpr,
):
    grid = (cute.ceil_div(m, rows), cute.ceil_div(n, columns), 1)
    gemm(a, b, c, m, n, k, rows, columns).launch(grid=grid, block=(THREADS, 1, 1))
