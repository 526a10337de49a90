"""What fmha.attention is given: the one list of its arguments.

The entry, a plan and its calls (entry.py), torch's operator (operator.py), the float64 twin (fmha.harness.exact), the
checks and the table of docs/use/attention.md are made of it. An argument is a field here, what is checked of it is in
arguments.py or options.py, and what a kernel is told of it in `Call`.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import torch

from fmha.harness.judge.configuration import PathChoice, Statistics

Place = Literal["emulator", "cuda"]
Window = int | tuple[int | None, int | None]
Tensors = tuple[torch.Tensor | None, ...]  # in the order of NAMES
Options = tuple[Any, ...]  # in the order of OPTIONS


class About(NamedTuple):
    """An argument in words, what torch's operator has for it (its type alone where it has the argument's name), and of
    a tensor its dtype, and the names of its sizes where those are the same in each call."""

    text: str
    operand: str
    dtype: torch.dtype | None = None
    shape: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """With dtype and shape, where they are given."""
        tensor = f"{str(self.dtype).removeprefix('torch.')} [{', '.join(self.shape)}]: " if self.shape else ""
        return tensor + self.text


@dataclass(frozen=True, slots=True)
class Sparse:
    """The sparse branch: k and v [batch, s_sparse, head_dim] bf16, v left out when V is K; indices [batch, t, topk] and
    lens [batch, t] int32, lens left out for topk."""

    k: torch.Tensor
    indices: torch.Tensor
    v: torch.Tensor | None = None
    lens: torch.Tensor | None = None


_Q = About(
    "bf16 [batch, t, heads, head_dim]; [total_q, heads, head_dim] with `cu_seqlens_q`. Head `h` attends K/V head "
    "`h // (heads // kv_heads)`",
    "Tensor", torch.bfloat16,
)  # fmt: skip
_K = About(
    "bf16 [batch, s_k, kv_heads, head_dim], or without kv_heads where that is 1; [pages, page_size, kv_heads, "
    "head_dim] with `block_table`, [total_k, kv_heads, head_dim] with `cu_seqlens_k`",
    "Tensor", torch.bfloat16,
)  # fmt: skip
_V = About("as k; left out where V is K", "Tensor?", torch.bfloat16)
_KV_LENS = About("how many keys each entry has; s_k by default", "Tensor?", torch.int32, ("batch",))
_QUERY_OFFSETS = About(
    "the position of the first query; by default the last query is aligned with the last key",
    "Tensor?", torch.int32, ("batch",),
)  # fmt: skip
_SINK = About("a logit for each head, natural log, in the softmax's sum alone", "Tensor?", torch.float32, ("heads",))
_SPARSE = About(
    "`fmha.Sparse(k, indices, v, lens)`, keys that each query has beside those of its window: k, v bf16 [batch, "
    "s_sparse, head_dim], indices int32 [batch, t, topk], lens int32 [batch, t]; with one K/V head only",
    "Tensor? sparse_k, Tensor? sparse_v, Tensor? sparse_indices, Tensor? sparse_lens",
)
_BLOCK_TABLE = About(
    "int32 [batch, n]: key `j` is row `j % page_size` of page `block_table[entry, j // page_size]`; pages have 16, 32, "
    "64, 128 or 256 rows",
    "Tensor?", torch.int32,
)  # fmt: skip
_CU_SEQLENS_Q = About(
    "int32 [batch + 1]: the queries of entry `b` are rows `cu_seqlens_q[b]` to `cu_seqlens_q[b + 1]` of q; outputs are "
    "packed alike",
    "Tensor?", torch.int32,
)  # fmt: skip
_CU_SEQLENS_K = About("int32 [batch + 1]: the same of k and v, in place of `kv_lens`", "Tensor?", torch.int32)
_SCALE = About("of the scores; 1 / sqrt(head_dim) by default", "float?")
_CAUSAL = About("no query sees a key after its own position", "int? window_left, int? window_right")
_WINDOW = About(
    "how many keys a query sees, its own the last; or how many before and after its own, `None` for all", ""
)
_SOFTCAP = About("refused: no kernel has one", "")
_MAX_SEQLEN = "of the entries in `{}`, the longest; a number on the host"
_NORMALISE = About("`False` leaves `o` un-normalised, as `merge` wants it", "bool")
_OUTPUT_DTYPE = About(
    "of `o`: `torch.float32` or `torch.bfloat16`; un-normalised, and by default, float32", "ScalarType"
)
_SPLITS = About(
    "how many parts the keys are divided into; chosen from the sizes by default. A result depends on it in its last "
    "bits",
    "int?",
)
_P_PATH = About('how P reaches the second product: "auto", "tmem" or "smem"', "str")
_STATISTICS = About(
    'what is stored beside `o`: "all" (row_max, row_sum and lse), "lse" or "none"; un-normalised only "all"',
    "str statistics='all'",
)
_DEVICE = About('where the tensors are said to run, "emulator" or "cuda"; an error where they do not', "")


@dataclass(frozen=True, slots=True)
class TensorArguments:
    """The tensors of a call."""

    q: Annotated[torch.Tensor, _Q]
    k: Annotated[torch.Tensor, _K]
    v: Annotated[torch.Tensor | None, _V] = None
    _: KW_ONLY
    kv_lens: Annotated[torch.Tensor | None, _KV_LENS] = None
    query_offsets: Annotated[torch.Tensor | None, _QUERY_OFFSETS] = None
    sink: Annotated[torch.Tensor | None, _SINK] = None
    sparse: Annotated[Sparse | None, _SPARSE] = None
    block_table: Annotated[torch.Tensor | None, _BLOCK_TABLE] = None
    cu_seqlens_q: Annotated[torch.Tensor | None, _CU_SEQLENS_Q] = None
    cu_seqlens_k: Annotated[torch.Tensor | None, _CU_SEQLENS_K] = None


@dataclass(frozen=True, slots=True)
class AttentionArguments(TensorArguments):
    """All that a call is given, as it is given: not checked."""

    _: KW_ONLY
    scale: Annotated[float | None, _SCALE] = None
    causal: Annotated[bool, _CAUSAL] = False
    window: Annotated[Window | None, _WINDOW] = None
    softcap: Annotated[float | None, _SOFTCAP] = None
    max_seqlen_q: Annotated[int | None, About(_MAX_SEQLEN.format("cu_seqlens_q"), "int?")] = None
    max_seqlen_k: Annotated[int | None, About(_MAX_SEQLEN.format("cu_seqlens_k"), "int?")] = None
    normalise: Annotated[bool, _NORMALISE] = True
    output_dtype: Annotated[torch.dtype, _OUTPUT_DTYPE] = torch.float32
    splits: Annotated[int | None, _SPLITS] = None
    p_path: Annotated[PathChoice, _P_PATH] = "auto"
    statistics: Annotated[Statistics, _STATISTICS] = "all"
    device: Annotated[Place | None, _DEVICE] = None

    @property
    def options(self) -> Options:
        """In the order of OPTIONS."""
        return tuple(getattr(self, name) for name in OPTIONS)


def about(arguments: type[TensorArguments]) -> dict[str, About]:
    """What is said of each argument."""
    hints = get_type_hints(arguments, include_extras=True)
    annotated = ((field.name, get_args(hints[field.name])) for field in fields(arguments))
    return {name: of[1] for name, of in annotated if len(of) == 2 and isinstance(of[1], About)}


def operands(arguments: type[TensorArguments]) -> list[str]:
    """What torch's operator is given for them, a type and a name each."""
    found: list[str] = []
    for name, said in about(arguments).items():
        if said.operand:
            found += said.operand.split(", ") if " " in said.operand else [f"{said.operand} {name}"]
    return found


def name_of(operand: str) -> str:
    """An operand's, of "TYPE NAME=DEFAULT"."""
    return re.split("[ =]", operand)[1]


ARGUMENTS = about(AttentionArguments)
OPERANDS = operands(AttentionArguments)
NAMES = tuple(name_of(operand) for operand in operands(TensorArguments))  # of tensors, as in FmhaParams
OPTIONS = tuple(name for name in ARGUMENTS if name not in about(TensorArguments))
SPARSE = tuple(name for name in NAMES if name.startswith("sparse_"))  # of the branch
_INTEGERS = ("sparse_indices", "sparse_lens", *(name for name, said in ARGUMENTS.items() if said.dtype == torch.int32))
FLOATS = tuple(name for name in NAMES if name not in _INTEGERS)  # which might be differentiated


def check_sparse(sparse: Any) -> None:
    """TypeError for what is no sparse branch."""
    if sparse is not None and not isinstance(sparse, Sparse):
        raise TypeError(f"sparse: expected fmha.Sparse, got {type(sparse).__name__}")


def parts(sparse: Any) -> Tensors:
    """The tensors of a sparse branch, in the order of SPARSE. TypeError for what is none."""
    check_sparse(sparse)
    return (sparse.k, sparse.v, sparse.indices, sparse.lens) if sparse is not None else (None,) * len(SPARSE)


def given(tensors: Tensors, options: Options, sparse: Sparse | None) -> AttentionArguments:
    """From tensors in the order of NAMES and options in that of OPTIONS."""
    named = {name: tensor for name, tensor in zip(NAMES, tensors, strict=True) if name not in SPARSE}
    return AttentionArguments(**named, sparse=sparse, **dict(zip(OPTIONS, options, strict=True)))  # type: ignore[arg-type]
