from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

OPS: dict[str, int]
SYNTAX: dict[str, str]  # of the operations whose row says how they are decoded
SPECIALS: dict[str, int]
TYPES: dict[str, int]
WIDTHS: dict[str, int]  # of a register that holds a type, in bits
MODS: dict[str, int]
SPACES: dict[str, int]  # by their names in PTX
# What the decoder packs: fields in order, each with its place in bytes and its type as the struct module writes it.
INST_FIELDS: list[tuple[str, int, str]]
INST_RECORD_BYTES: int
CONST_FIELDS: list[tuple[str, int, str]]
CONST_RECORD_BYTES: int
CONST_KINDS: dict[str, int]
ELEMENT_TYPES: dict[str, int]
PARAM_WINDOW: int
SHARED_START: int
CALL_PARAMS: int
DEVICE_CALLS: dict[str, int]

SOURCES: str  # of harness/judge/core_digest.py

def readable(symbol: str) -> str: ...
def decode_matrix(bits: int) -> dict[str, Any]: ...
def decode_instruction(
    bits: int, *, kind: int, ws: bool, pair: bool, a_tmem: bool, sparse: bool, scales: int
) -> dict[str, Any]: ...
def record_of(program: Program, pc: int) -> dict[str, Any]: ...

class Program:
    def __init__(
        self,
        insts: bytes,
        operands: bytes,
        consts: bytes,
        units: int,
        shared_static: int,
        local_bytes: int,
        param_bytes: int,
        arrays: list[tuple[str, list[tuple[int, int]]]],
    ) -> None: ...

class Finding:  # as emulator/core/findings/finding.hpp has it
    rule: Final[str]
    severity: Final[Literal["error", "warning"]]
    message: Final[str]
    pc: Final[int]
    other_pc: Final[int]
    other_launch: Final[int]
    cta: Final[int]
    warp: Final[int]
    count: Final[int]
    details: Final[list[tuple[int, str]]]

class Recorder:
    @property
    def clusters(self) -> list[dict[str, Any]]: ...
    @property
    def first_reads(self) -> dict[int, dict[int, int]]: ...
    def shared_reads(self, one: int, other: int) -> dict[int, float]: ...
    def replay(
        self,
        program: Program,
        ordinals: list[int],
        constants: dict[str, float],
        sms: float,
        from_l2: float,
        from_hbm: float,
        waits: float,
        to_hbm: float,
        traced: bool,
        ranks: Sequence[int] = ...,
    ) -> dict[str, Any]: ...

class Machine:
    recorded: list[int]  # clusters by ordinal
    glimpsed: list[int]
    only_recorded: bool
    counter: int  # an address that CTAs draw from, in turns where only some of them run
    recorder: Recorder | None
    seed: int
    checks: bool
    watched: bool
    max_instructions: int
    multiprocessors: int
    threads: int
    schedule: int
    depth: int
    steps: int
    profile: int
    mma_sums: int
    def __init__(self) -> None: ...
    heap_limit: int
    def allocate(self, size: int, name: str) -> int: ...
    def reserve(self, size: int) -> int: ...
    def back(self, address: int, size: int, name: str) -> None: ...
    def release(self, address: int) -> None: ...
    def add_image(self, image: bytes) -> int: ...  # as emulator/texture_objects.py packs it; a handle
    def drop_image(self, handle: int) -> bool: ...
    def write(self, address: int, data: bytes) -> None: ...
    def zero(self, address: int, size: int) -> None: ...
    def read(self, address: int, size: int) -> bytes: ...
    def copy(self, to: int, source: int, size: int) -> None: ...
    @property
    def printed(self) -> list[tuple[bool, bytes]]: ...  # of the last launch: whether to standard error, and the text
    def run(
        self,
        program: Program,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        cluster: tuple[int, int, int],
        dynamic_shared: int,
        params: bytes,
        workspace: int,
        programmatic: bool,
        first_plane: int,
        number: int,
        beside: list[int],
        overlaps: bool,
        after: int,
        name: str,
        stream: str,
    ) -> list[Finding]: ...
    def work_for_host(
        self, number: int, beside: list[int], name: str, stream: str, accesses: list[tuple[int, int, bool, str]]
    ) -> list[Finding]: ...
    def next_grid(self) -> int: ...  # its kernel's address; 0: all that kernels have launched is complete
    def run_next(self, program: Program) -> list[Finding]: ...
    @property
    def running_grid(self) -> tuple[str, str, tuple[int, int, int], tuple[int, int, int]]: ...  # kernel, its parent's
    def begin_kernels(self, host: str) -> None: ...  # with the kernel that the host launches
    def add_kernel(
        self,
        address: int,
        name: str,
        param_bytes: int,
        max_threads: int,
        required_block: tuple[int, int, int],
        cluster: tuple[int, int, int],
        shared_static: int,
        most_shared: int,
        refused: str,
    ) -> None: ...
    def set_attribute(self, attribute: int, value: int) -> None: ...
    pending_limit: int
    def resident_clusters(
        self, program: Program, block: tuple[int, int, int], cluster: tuple[int, int, int], dynamic_shared: int
    ) -> int: ...
    @property
    def executed(self) -> bytes: ...  # by pc, 1 where an instruction was executed; empty unless watched
    @property
    def stats(self) -> dict[str, float]: ...

class Observer:
    wants: int
    until: int
    def __init__(self, tell: Callable[[str, dict[str, Any]], None]) -> None: ...
    @property
    def events(self) -> int: ...
    @property
    def trace(self) -> bytes: ...
    def interrupt(self, on: bool) -> None: ...
    def stop_at(self, stops: bytes) -> None: ...
    def watch(self, machine: Machine) -> None: ...
    def leave(self) -> None: ...
    def warps(self) -> list[dict[str, Any]]: ...
    def register(self, rank: int, warp: int, unit: int) -> bytes: ...
    def written(self, rank: int, warp: int, unit: int) -> int: ...
    def shared(self, rank: int) -> bytes: ...
    def tensor(self, rank: int) -> bytes: ...
    def mbarriers(self, rank: int) -> list[dict[str, Any]]: ...
    def pending(self) -> list[dict[str, Any]]: ...
    def suppose(self, rank: int, warp: int, budget: int) -> None: ...
