"""CuTe DSL kernels that make_cutedsl.py compiles: written for this test suite, in the style that CuTe users write."""

# mypy: ignore-errors
# The bodies are CuTe's language, not Python: its names are of no type that mypy knows.

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import pipeline, utils
from cutlass.cute.nvgpu import cpasync, tcgen05

ONE, TWO = tcgen05.CtaGroup.ONE, tcgen05.CtaGroup.TWO
MMA_WARP, TMA_WARP, WARPS = 4, 5, 6
EPILOGUE_THREADS = 128
LOADS = {
    "32x32b": (tcgen05.Ld32x32bOp, tcgen05.Repetition.x32),
    "16x64b": (tcgen05.Ld16x64bOp, tcgen05.Repetition.x16),
    "16x128b": (tcgen05.Ld16x128bOp, tcgen05.Repetition.x8),
    "16x256b": (tcgen05.Ld16x256bOp, tcgen05.Repetition.x4),
}


@cute.kernel
def axpy_kernel(x: cute.Tensor, y: cute.Tensor, coordinates: cute.Tensor, shape: cute.Shape, alpha: cutlass.Float32,
                tv: cute.Layout, tiler: cute.Shape):  # fmt: skip
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    tile = ((None, None), block)
    tiled = cute.make_tiled_copy(cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), x.element_type), tv, tiler)
    part = tiled.get_slice(thread)
    from_x, from_y = part.partition_S(x[tile]), part.partition_S(y[tile])
    at = part.partition_S(coordinates[tile])
    inside = cute.make_rmem_tensor(at.shape, cutlass.Boolean)
    for i in cutlass.range_constexpr(cute.size(inside)):
        inside[i] = cute.elem_less(at[i], shape)
    in_x, in_y = cute.make_rmem_tensor_like(from_x), cute.make_rmem_tensor_like(from_y)
    cute.copy(tiled, from_x, in_x, pred=inside)
    cute.copy(tiled, from_y, in_y, pred=inside)
    in_y.store((in_x.load().to(cutlass.Float32) * alpha + in_y.load().to(cutlass.Float32)).to(y.element_type))
    cute.copy(tiled, in_y, from_y, pred=inside)


@cute.jit
def axpy(x: cute.Tensor, y: cute.Tensor, alpha: cutlass.Float32):
    """y += alpha x, of any shape."""
    tiler, tv = cute.make_layout_tv(cute.make_layout((4, 32), stride=(32, 1)), cute.make_layout((4, 4), stride=(4, 1)))
    x_tiles, y_tiles = cute.zipped_divide(x, tiler), cute.zipped_divide(y, tiler)
    coordinates = cute.zipped_divide(cute.make_identity_tensor(y.shape), tiler)
    axpy_kernel(x_tiles, y_tiles, coordinates, y.shape, alpha, tv, tiler).launch(
        grid=(cute.size(y_tiles, mode=[1]), 1, 1), block=(128, 1, 1)
    )


@cute.kernel
def row_sum_kernel(x: cute.Tensor, out: cute.Tensor, columns: cutlass.Constexpr):
    """A CTA a row: each thread strides over it, then warps and shared memory add up."""
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    parts = utils.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(4), 16)
    total = cutlass.Float32(0)
    for i in cutlass.range(thread, columns, 128):
        value = x[row, i].to(cutlass.Float32)
        total += value * value
    for step in cutlass.range_constexpr(5):
        total += cute.arch.shuffle_sync_bfly(total, offset=1 << step)
    if thread % 32 == 0:
        parts[thread // 32] = total
    cute.arch.sync_threads()
    if thread == 0:
        out[row] = cute.math.sqrt(parts[0] + parts[1] + parts[2] + parts[3])


@cute.jit
def row_norm(x: cute.Tensor, out: cute.Tensor):
    row_sum_kernel(x, out, x.shape[1]).launch(grid=(x.shape[0], 1, 1), block=(128, 1, 1))


@dataclass(frozen=True)
class Gemm:
    """C[m, n] = sum_k A[m, k] B[n, k] on tensor cores, TMA and MMA in a warp each, four warps store.

    `cluster` in CTAs along M and N; the loads of a cluster are multicast along it. With `pair`, two CTAs along M share
    an instruction.
    """

    tile: tuple  # (M, N, K) of the instruction tile; a pair's M is that of both CTAs
    element: type = cutlass.Float16  # of A and B
    result: type = cutlass.Float16
    cluster: tuple = (1, 1)
    pair: bool = False
    stages: int = 3
    tma_store: bool = False
    load: str = "32x32b"  # shape of tcgen05.ld in the epilogue
    align: int = 1024  # of the buffers in shared memory

    @property
    def shared_bytes(self):
        m, n, k = self.tile
        m, n = (m // 2, n // 2) if self.pair else (m, n)
        header = (16 * self.stages + 16 + 8 + 4 + self.align - 1) // self.align * self.align
        staged = 2 * m * 32 * self.result.width // 8 if self.tma_store else 0
        return header + self.stages * (m + n) * k * self.element.width // 8 + staged

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
        a_major = utils.LayoutEnum.from_tensor(a).mma_major_mode()
        b_major = utils.LayoutEnum.from_tensor(b).mma_major_mode()
        mma = utils.sm100.make_trivial_tiled_mma(
            a.element_type, a_major, b_major, cutlass.Float32, TWO if self.pair else ONE, self.tile[:2]
        )
        a_smem = utils.sm100.make_smem_layout_a(mma, self.tile, a.element_type, self.stages)
        b_smem = utils.sm100.make_smem_layout_b(mma, self.tile, b.element_type, self.stages)
        cluster = cute.tiled_divide(cute.make_layout((*self.cluster, 1)), (mma.thr_id.shape,))
        a_op = utils.sm100.cluster_shape_to_tma_atom_A((*self.cluster, 1), mma.thr_id)
        b_op = utils.sm100.cluster_shape_to_tma_atom_B((*self.cluster, 1), mma.thr_id)
        one = (None, None, None, 0)
        a_atom, a_tma = cute.nvgpu.make_tiled_tma_atom_A(
            a_op, a, cute.slice_(a_smem, one), self.tile, mma, cluster.shape
        )
        b_atom, b_tma = cute.nvgpu.make_tiled_tma_atom_B(
            b_op, b, cute.slice_(b_smem, one), self.tile, mma, cluster.shape
        )
        cta_m = self.tile[0] // (2 if self.pair else 1)
        c_tile = (cta_m, 32)
        c_smem = utils.sm100.make_smem_layout_epi(c.element_type, utils.LayoutEnum.from_tensor(c), c_tile, 2)
        c_atom, c_tma = None, c
        if cutlass.const_expr(self.tma_store):
            c_atom, c_tma = cpasync.make_tiled_tma_atom(
                cpasync.CopyBulkTensorTileS2GOp(), c, cute.slice_(c_smem, (None, None, 0)), c_tile
            )
        gemm_kernel(self, mma, a_atom, a_tma, b_atom, b_tma, c_atom, c_tma, a_smem, b_smem, c_smem, cluster).launch(
            grid=(c.shape[0] // cta_m, c.shape[1] // self.tile[1], 1),
            block=(32 * WARPS, 1, 1),
            cluster=(*self.cluster, 1),
            smem=self.shared_bytes,
        )


@cute.kernel
def gemm_kernel(
    config: cutlass.Constexpr, mma: cute.TiledMma, a_atom: cute.CopyAtom, a: cute.Tensor, b_atom: cute.CopyAtom,
    b: cute.Tensor, c_atom: cute.CopyAtom, c: cute.Tensor, a_layout: cute.ComposedLayout, b_layout: cute.ComposedLayout,
    c_layout: cute.ComposedLayout, cluster: cute.Layout,
):  # fmt: skip
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    bx, by, _ = cute.arch.block_idx()
    pair = cute.size(mma.thr_id.shape)
    in_pair = bx % pair
    leader = in_pair == 0
    at = cluster.get_flat_coord(cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster()))
    m_tile, n_tile = bx // pair, by
    tile = config.tile

    @cute.struct
    class Storage:
        loaded: cute.struct.MemRange[cutlass.Int64, 2 * config.stages]
        done: cute.struct.MemRange[cutlass.Int64, 2]
        dealloc: cutlass.Int64
        tmem: cutlass.Int32

    smem = utils.SmemAllocator()
    storage = smem.allocate(Storage)
    sa = smem.allocate_tensor(config.element, a_layout.outer, config.align, a_layout.inner)
    sb = smem.allocate_tensor(config.element, b_layout.outer, config.align, b_layout.inner)

    one = (None, None, None, 0)
    nbytes = cute.size_in_bytes(config.element, cute.slice_(a_layout, one)) + cute.size_in_bytes(
        config.element, cute.slice_(b_layout, one)
    )
    consumers = config.cluster[0] // pair + config.cluster[1] - 1
    producer, consumer = pipeline.PipelineTmaUmma.create(
        num_stages=config.stages,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, consumers),
        tx_count=nbytes * pair,
        barrier_storage=storage.loaded.data_ptr(),
        cta_layout_vmnk=cluster,
        defer_sync=True,
    ).make_participants()
    acc_producer, acc_consumer = pipeline.PipelineUmmaAsync.create(
        num_stages=1,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, EPILOGUE_THREADS * pair),
        barrier_storage=storage.done.data_ptr(),
        cta_layout_vmnk=cluster,
        defer_sync=True,
    ).make_participants()
    tmem = utils.TmemAllocator(
        storage.tmem.ptr,
        barrier_for_retrieve=pipeline.NamedBarrier(barrier_id=1, num_threads=EPILOGUE_THREADS + 32),
        allocator_warp_id=0,
        is_two_cta=config.pair,
        two_cta_tmem_dealloc_mbar_ptr=storage.dealloc.ptr,
    )
    pipeline.pipeline_init_arrive(cluster_shape_mn=cluster, is_relaxed=True)

    thread_mma = mma.get_slice(in_pair)
    ga = thread_mma.partition_A(cute.local_tile(a, cute.slice_(tile, (None, 0, None)), (None, None)))
    gb = thread_mma.partition_B(cute.local_tile(b, cute.slice_(tile, (0, None, None)), (None, None)))
    gc = thread_mma.partition_C(cute.local_tile(c, cute.slice_(tile, (None, None, 0)), (None, None)))
    a_mask = cpasync.create_tma_multicast_mask(cluster, at, mcast_mode=2)
    b_mask = cpasync.create_tma_multicast_mask(cluster, at, mcast_mode=1)
    to_sa, from_ga = cpasync.tma_partition(
        a_atom, at[2], cute.make_layout(cute.slice_(cluster, (0, 0, None, 0)).shape),
        cute.group_modes(sa, 0, 3), cute.group_modes(ga, 0, 3),
    )  # fmt: skip
    to_sb, from_gb = cpasync.tma_partition(
        b_atom, at[1], cute.make_layout(cute.slice_(cluster, (0, None, 0, 0)).shape),
        cute.group_modes(sb, 0, 3), cute.group_modes(gb, 0, 3),
    )  # fmt: skip
    from_ga, from_gb = from_ga[(None, m_tile, None)], from_gb[(None, n_tile, None)]
    multicast = cutlass.const_expr(config.pair or config.cluster != (1, 1))

    fa, fb = mma.make_fragment_A(sa), mma.make_fragment_B(sb)
    acc_like = mma.make_fragment_C(mma.partition_shape_C(tile[:2]))
    pipeline.pipeline_init_wait(cluster_shape_mn=cluster)

    if warp == TMA_WARP:
        for k in cutlass.range(cute.size(from_ga, mode=[1]), unroll=1):
            slot = producer.acquire_and_advance()
            if cutlass.const_expr(multicast):
                cute.copy(
                    a_atom, from_ga[(None, k)], to_sa[(None, slot.index)], tma_bar_ptr=slot.barrier, mcast_mask=a_mask
                )
                cute.copy(
                    b_atom, from_gb[(None, k)], to_sb[(None, slot.index)], tma_bar_ptr=slot.barrier, mcast_mask=b_mask
                )
            else:
                cute.copy(a_atom, from_ga[(None, k)], to_sa[(None, slot.index)], tma_bar_ptr=slot.barrier)
                cute.copy(b_atom, from_gb[(None, k)], to_sb[(None, slot.index)], tma_bar_ptr=slot.barrier)
        producer.tail()

    if warp == MMA_WARP:
        tmem.wait_for_alloc()
        acc = cute.make_tensor(tmem.retrieve_ptr(cutlass.Float32), acc_like.layout)
        if leader:
            out = acc_producer.acquire_and_advance()
            mma.set(tcgen05.Field.ACCUMULATE, False)
            for _k in cutlass.range(cute.size(from_ga, mode=[1]), unroll=1):
                slot = consumer.wait_and_advance()
                for part in cutlass.range_constexpr(cute.size(fa, mode=[2])):
                    index = (None, None, part, slot.index)
                    cute.gemm(mma, acc, fa[index], fb[index], acc)
                    mma.set(tcgen05.Field.ACCUMULATE, True)
                slot.release()
            out.commit()
            acc_producer.tail()

    if warp < MMA_WARP:
        tmem.allocate(512 if config.tile[1] > 128 else 128)
        tmem.wait_for_alloc()
        acc = cute.make_tensor(tmem.retrieve_ptr(cutlass.Float32), acc_like.layout)
        ready = acc_consumer.wait_and_advance()
        if cutlass.const_expr(config.tma_store):
            store_by_tma(config, thread, warp, acc, c_atom, gc[(None, None, None, m_tile, n_tile)], c_layout, smem)
        else:
            store_direct(config, thread, acc, gc[(None, None, None, m_tile, n_tile)])
        cute.arch.fence_view_async_tmem_load()
        ready.release()
        tmem.relinquish_alloc_permit()
        cute.arch.barrier(barrier_id=2, number_of_threads=EPILOGUE_THREADS)
        tmem.free(acc.iterator)


@cute.jit
def store_direct(config: cutlass.Constexpr, thread, acc: cute.Tensor, gc: cute.Tensor):
    """Some columns at a time: tensor memory -> registers -> global memory."""
    part = ((None, None), 0, 0)
    op, repeat = LOADS[config.load]
    width = 32
    if cutlass.const_expr(config.pair and config.tile[0] == 128):
        # A pair's 128 rows: 64 in each CTA, half of their columns in lanes 0-63 and half in lanes 64-127.
        width, repeat = config.tile[1], tcgen05.Repetition(config.tile[1] // 2)
    tiler = (cute.size(acc, mode=[0, 0]), width)
    acc_tiles = cute.flat_divide(acc[part], tiler)
    gc_tiles = cute.flat_divide(gc[part], tiler)
    atom = cute.make_copy_atom(op(repeat), cutlass.Float32)
    copy = tcgen05.make_tmem_copy(atom, acc_tiles[(None, None, 0, 0)])
    mine = copy.get_slice(thread)
    source, target = mine.partition_S(acc_tiles), mine.partition_D(gc_tiles)
    registers = cute.make_rmem_tensor(target[(None, None, None, 0, 0)].shape, cutlass.Float32)
    converted = cute.make_rmem_tensor(registers.shape, config.result)
    for i in cutlass.range(cute.size(source, mode=[4]), unroll=1):
        cute.copy(copy, source[(None, None, None, 0, i)], registers)
        converted.store(registers.load().to(config.result))
        cute.autovec_copy(converted, target[(None, None, None, 0, i)])


@cute.jit
def store_by_tma(config: cutlass.Constexpr, thread, warp, acc, c_atom, gc, c_layout, smem):
    """The same by way of shared memory and tensor stores, two buffers in turn."""
    part = ((None, None), 0, 0)
    tiler = (cute.size(acc, mode=[0, 0]), 32)
    sc = smem.allocate_tensor(config.result, c_layout.outer, config.align, c_layout.inner)
    acc_tiles = cute.flat_divide(acc[part], tiler)
    gc_tiles = cute.flat_divide(gc[part], tiler)
    op, repeat = LOADS[config.load]
    atom = cute.make_copy_atom(op(repeat), cutlass.Float32)
    copy = tcgen05.make_tmem_copy(atom, acc_tiles[(None, None, 0, 0)])
    mine = copy.get_slice(thread)
    source, staged = mine.partition_S(acc_tiles), mine.partition_D(sc)
    registers = cute.make_rmem_tensor(staged[(None, None, None, 0)].shape, cutlass.Float32)
    converted = cute.make_rmem_tensor(registers.shape, config.result)
    from_sc, to_gc = cpasync.tma_partition(
        c_atom, 0, cute.make_layout(1), cute.group_modes(sc, 0, 2), cute.group_modes(gc_tiles, 0, 2)
    )
    stores = pipeline.PipelineTmaStore.create(
        num_stages=2, producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, EPILOGUE_THREADS)
    )
    for i in cutlass.range(cute.size(source, mode=[4]), unroll=1):
        cute.copy(copy, source[(None, None, None, 0, i)], registers)
        converted.store(registers.load().to(config.result))
        if warp == 0:
            stores.producer_acquire()
        cute.arch.barrier(barrier_id=2, number_of_threads=EPILOGUE_THREADS)
        cute.autovec_copy(converted, staged[(None, None, None, i % 2)])
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=2, number_of_threads=EPILOGUE_THREADS)
        if warp == 0:
            cute.copy(c_atom, from_sc[(None, i % 2)], to_gc[(None, 0, i)])
            stores.producer_commit()
    if warp == 0:
        stores.producer_tail()
