"""Triton kernels that make_triton.py compiles: written for this test suite, in the style that Triton users write."""

# mypy: ignore-errors
# ruff: noqa: N803
# The bodies are Triton's language, not Python: its names are of no type that mypy knows.

import triton
import triton.language as tl


@triton.jit
def vector_add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    y = tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, x + y, mask=inside)


@triton.jit
def softmax_rows(out_ptr, in_ptr, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(in_ptr + row * stride + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    p = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride + at, p / tl.sum(p, axis=0), mask=at < columns)


@triton.jit
def layer_norm(out_ptr, in_ptr, weight_ptr, bias_ptr, mean_ptr, rstd_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(in_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        total += x
        squares += x * x
    mean = tl.sum(total, axis=0) / columns
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / columns - mean * mean + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        x = tl.load(in_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + at, mask=inside).to(tl.float32)
        b = tl.load(bias_ptr + at, mask=inside).to(tl.float32)
        tl.store(out_ptr + row * columns + at, (x - mean) * rstd * w + b, mask=inside)


@triton.jit
def atomic_reduce(in_ptr, sum_ptr, max_ptr, bins_ptr, ticket_ptr, last_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum, maximum and a histogram by atomics; the CTA that draws the last ticket says so."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(in_ptr + at, mask=inside, other=0)
    tl.atomic_add(sum_ptr, tl.sum(x.to(tl.float32), axis=0))
    tl.atomic_max(max_ptr, tl.max(x, axis=0))
    tl.atomic_add(bins_ptr + (x % BINS), 1, mask=inside, sem="relaxed")
    ticket = tl.atomic_add(ticket_ptr, 1, sem="acq_rel")
    if ticket == tl.num_programs(0) - 1:
        tl.store(last_ptr, tl.load(sum_ptr))


@triton.jit
def spin_lock_sum(in_ptr, lock_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Adds up rows under a lock taken with compare-and-swap."""
    at = tl.arange(0, BLOCK)
    x = tl.load(in_ptr + tl.program_id(0) * n + at, mask=at < n, other=0.0)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.debug_barrier()
    total = tl.load(out_ptr + at, mask=at < n)
    tl.store(out_ptr + at, total + x, mask=at < n)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def sort_scan(in_ptr, sorted_ptr, scanned_ptr, argmax_ptr, histogram_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * BLOCK
    x = tl.load(in_ptr + row + at)
    tl.store(sorted_ptr + row + at, tl.sort(x))
    tl.store(scanned_ptr + row + at, tl.cumsum(x, axis=0))
    tl.store(argmax_ptr + tl.program_id(0), tl.argmax(x, axis=0))
    tl.store(histogram_ptr + tl.program_id(0) * 64 + tl.arange(0, 64), tl.histogram(x & 63, 64))


@triton.jit
def pointwise(out_ptr, x_ptr, n, seed, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=1.0)
    f = x.to(tl.float32)
    if KIND == "gelu":
        y = 0.5 * f * (1 + tl.erf(f * 0.70710678))
    elif KIND == "trig":
        y = tl.sin(f) * tl.cos(f) + tl.log(tl.abs(f) + 1) + tl.sqrt(tl.abs(f)) + tl.floor(f) + tl.exp2(f)
    else:
        y = tl.where(tl.rand(seed, at) > 0.5, f * 2, 0.0)
    tl.store(out_ptr + at, y.to(x.dtype), mask=inside)


@triton.jit
def transpose_gather(out_ptr, in_ptr, index_ptr, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    """A tile transposed through shared memory, its columns permuted on the way."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    tile = tl.load(
        in_ptr + m[:, None] * columns + n[None, :], mask=(m < rows)[:, None] & (n < columns)[None, :], other=0
    )
    index = tl.load(index_ptr + tl.arange(0, BN))
    tile = tl.gather(tile, tl.broadcast_to(index[None, :], [BM, BN]), axis=1)
    tl.store(
        out_ptr + n[:, None] * rows + m[None, :], tl.trans(tile), mask=(n < columns)[:, None] & (m < rows)[None, :]
    )


@triton.jit
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C = A B, all row-major, any M and N; loads masked along K."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        left = K - start
        a = tl.load(
            a_ptr + m[:, None] * stride_am + (start + k)[None, :],
            mask=(m < M)[:, None] & (k < left)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + (start + k)[:, None] * stride_bk + n[None, :],
            mask=(k < left)[:, None] & (n < N)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    tl.store(
        c_ptr + m[:, None] * stride_cm + n[None, :],
        acc.to(c_ptr.dtype.element_ty),
        mask=(m < M)[:, None] & (n < N)[None, :],
    )


@triton.jit
def matmul_integer(a_ptr, b_ptr, c_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    width = tl.num_programs(1) * BN
    acc = tl.zeros([BM, BN], tl.int32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :])
        b = tl.load(b_ptr + n[None, :] * K + k[:, None])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * width + n[None, :], acc)


@triton.jit
def matmul_tma(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B^T through tensor maps that the host made."""
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([n, k]).T, acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


@triton.jit
def matmul_device_tma(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """The same through tensor maps that the kernel makes."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN])
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([n, k]).T, acc)
    c_desc.store([m, n], acc.to(c_ptr.dtype.element_ty))


@triton.jit
def matmul_persistent(
    a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, CTAS: tl.constexpr, GROUP: tl.constexpr,
    FLATTEN: tl.constexpr, WARP_SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """Each CTA walks tiles, CTAS apart; tiles are numbered so that GROUP rows of them share their columns of B."""
    rows = tl.cdiv(M, BM)
    columns = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), rows * columns, CTAS, flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE):
        first = tile // (GROUP * columns) * GROUP
        height = min(rows - first, GROUP)
        m = (first + tile % (GROUP * columns) % height) * BM
        n = tile % (GROUP * columns) // height * BN
        acc = tl.zeros([BM, BN], tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a_desc.load([m, k]), b_desc.load([n, k]).T, acc)
        c_desc.store([m, n], acc.to(c_desc.dtype))


@triton.jit
def matmul_specialised(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One tile a CTA, loads and MMAs in warps of their own."""
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=True):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([n, k]).T, acc)
    c_desc.store([m, n], acc.to(c_desc.dtype))


@triton.jit
def matmul_split_k(
    a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr
):
    """Programs of axis 2 share K and add their parts with a reducing tensor store."""
    m = tl.program_id(0) * BM
    n = tl.program_id(1) * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(tl.program_id(2) * BK, K, BK * SPLIT):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([n, k]).T, acc)
    c_desc.atomic_add([m, n], acc)


@triton.jit
def gather_scatter(a_desc, out_desc, rows_ptr, to_ptr, BM: tl.constexpr, BN: tl.constexpr):
    """Rows picked by an index, doubled and put where another index says."""
    at = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN
    x = a_desc.gather(tl.load(rows_ptr + at), n)
    out_desc.scatter(x + x, tl.load(to_ptr + at), n)


@triton.jit
def attention(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, T, S, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """softmax(q k^T scale) v over masked pointers; program (query tile, head)."""
    head = tl.program_id(1)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + head * T * D + m[:, None] * D + d[None, :], mask=(m < T)[:, None], other=0.0)
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    log2_scale = scale * 1.4426950408889634
    end = min(S, (tl.program_id(0) + 1) * BM) if CAUSAL else S
    for start in range(0, end, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(k_ptr + head * S * D + n[None, :] * D + d[:, None], mask=(n < S)[None, :], other=0.0)
        s = tl.dot(q, k) * log2_scale
        allowed = (n < S)[None, :]
        if CAUSAL:
            allowed = allowed & (n[None, :] <= m[:, None])
        s = tl.where(allowed, s, -1.0e30)
        new_top = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + head * S * D + n[:, None] * D + d[None, :], mask=(n < S)[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = new_top
    o = acc / total[:, None]
    tl.store(o_ptr + head * T * D + m[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=(m < T)[:, None])
    tl.store(lse_ptr + head * T + m, (top + tl.log2(total)) * 0.6931471805599453, mask=m < T)


@triton.jit
def attention_tma(
    q_desc, k_desc, v_desc, o_desc, lse_ptr, T, S, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, WARP_SPECIALIZE: tl.constexpr,
):  # fmt: skip
    """The same over tensor maps of heads laid one after the other, whole tiles only."""
    head = tl.program_id(1)
    start_m = tl.program_id(0) * BM
    q = q_desc.load([head * T + start_m, 0])
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    log2_scale = scale * 1.4426950408889634
    for start in tl.range(0, S, BN, warp_specialize=WARP_SPECIALIZE):
        k = k_desc.load([head * S + start, 0])
        s = tl.dot(q, k.T)
        new_top = tl.maximum(top, tl.max(s, 1) * log2_scale)
        p = tl.exp2(s * log2_scale - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        acc = acc * shrink[:, None]
        total = total * shrink + tl.sum(p, 1)
        v = v_desc.load([head * S + start, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        top = new_top
    o_desc.store([head * T + start_m, 0], (acc / total[:, None]).to(o_desc.dtype))
    tl.store(lse_ptr + head * T + start_m + tl.arange(0, BM), (top + tl.log2(total)) * 0.6931471805599453)


@triton.jit
def matmul_scaled(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FORMAT: tl.constexpr, PACK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """C = (A * scales) (B * scales)^T, one scale for GROUP elements of K; PACK elements a byte, b is [N, K]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK // PACK)
    g = tl.arange(0, BK // GROUP)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(K // BK):
        a = tl.load(a_ptr + m[:, None] * (K // PACK) + (start * (BK // PACK) + k)[None, :])
        b = tl.load(b_ptr + n[None, :] * (K // PACK) + (start * (BK // PACK) + k)[:, None])
        sa = tl.load(a_scale_ptr + m[:, None] * (K // GROUP) + (start * (BK // GROUP) + g)[None, :])
        sb = tl.load(b_scale_ptr + n[:, None] * (K // GROUP) + (start * (BK // GROUP) + g)[None, :])
        acc = tl.dot_scaled(a, sa, FORMAT, b, sb, FORMAT, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)
