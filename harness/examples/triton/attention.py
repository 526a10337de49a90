"""softmax(Q K^T scale) V in Triton: a program has a tile of queries of one head."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["T", "S"])  # lengths change with every call
def attention(q, k, v, o, lse, T, S, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    head = tl.program_id(1)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    queries = tl.load(q + (head * T + m[:, None]) * D + d[None, :], mask=(m < T)[:, None], other=0.0)
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    out = tl.zeros([BM, D], tl.float32)
    end = min(S, (tl.program_id(0) + 1) * BM) if CAUSAL else S
    for start in range(0, end, BN):
        n = start + tl.arange(0, BN)
        keys = tl.load(k + (head * S + n[None, :]) * D + d[:, None], mask=(n < S)[None, :], other=0.0)
        allowed = (n < S)[None, :]
        if CAUSAL:
            allowed = allowed & (n[None, :] <= m[:, None])
        s = tl.where(allowed, tl.dot(queries, keys) * (scale * 1.4426950408889634), -1.0e30)
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        values = tl.load(v + (head * S + n[:, None]) * D + d[None, :], mask=(n < S)[:, None], other=0.0)
        out = tl.dot(p.to(values.dtype), values, out * shrink[:, None])
        top = higher
    tl.store(o + (head * T + m[:, None]) * D + d[None, :], out / total[:, None], mask=(m < T)[:, None])
    tl.store(lse + head * T + m, (top + tl.log2(total)) * 0.6931471805599453, mask=m < T)
